package cli

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"robotsproxy/cmd/internal/e2e"
	"robotsproxy/robots/testkit"
)

// Every command that reads the configuration reports each mistake.
func TestBadConfiguration(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, text string
		names      []string
	}{
		{"unknown key", "listen: 127.0.0.1:0\nlisen: 127.0.0.1:0\n", []string{"2", "lisen"}},
		{"unknown nested key", "pace:\n  requests_per_second: 1\n  bursts: 2\n", []string{"3", "bursts"}},
		{"wrong type", "mode: enforce\npace:\n  burst: many\n", []string{"3", "burst"}},
		{"wrong duration", "robots:\n  max_age: 24\n", []string{"2", "max_age"}},
		{"value out of range", "pace:\n  requests_per_second: -1\n", []string{"2", "requests_per_second"}},
		{"value out of a closed set", "mode: watch\n", []string{"1", "mode"}},
		{"not a CIDR", "egress:\n  allow_private: [10.0.0.0/99]\n", []string{"2", "allow_private"}},
		{"not an address", "listen: everywhere\n", []string{"1", "listen"}},
		{"not YAML", "listen: [\n", nil},
		{"key twice", "mode: enforce\nmode: monitor\n", []string{"2", "mode"}},
		{"open to strangers unasked", "listen: 0.0.0.0:18080\n", []string{"1", "listen"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "bad.yaml")
			e2e.WriteFile(t, file, c.text)
			names := append([]string{file}, c.names...)
			e2e.WantOneLine(t, e2e.Command(t, "serve", "-c", file), 1, names...)
			e2e.WantOneLine(t, e2e.Command(t, "config", "check", "-c", file), 1, names...)
			e2e.WantOneLine(t, e2e.Command(t, "run", "-c", file, "--", "true"), 1, names...)
		})
	}
}

// A port in place of an address is answered with the address that was probably meant.
func TestPortInPlaceOfAnAddress(t *testing.T) {
	t.Parallel()
	h := e2e.NewSetup(t, e2e.Settings{})
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"serve", "--listen", "8080"}, 1, `listen: "8080" has no host: use 127.0.0.1:8080`},
		{[]string{"serve", "--admin-listen", "8081"}, 1, `admin.listen: "8081" has no host: use 127.0.0.1:8081`},
		{[]string{"serve", "--admin-listen", "http://127.0.0.1:8081"}, 1, `admin.listen: "http://127.0.0.1:8081" is a URL: use 127.0.0.1:8081`},
		{[]string{"health", "--admin", "8081"}, 2, `--admin: "8081" has no host: use 127.0.0.1:8081`},
		{[]string{"health", "--admin", "http://localhost:8081/"}, 2, `--admin: "http://localhost:8081/" is a URL: use localhost:8081`},
		{[]string{"doctor", "--proxy", "8080"}, 2, `--proxy: 8080 has no host: use 127.0.0.1:8080`},
	} {
		t.Run(strings.Join(c.args, " "), func(t *testing.T) {
			got := e2e.Command(t, append(c.args, "-c", h.Config)...)
			e2e.WantOneLine(t, got, c.code, c.want)
		})
	}
}

// A configuration without -c is answered with -c, by every command that has the flag.
func TestConfigurationAsAnArgument(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, mode := range map[string]os.FileMode{"my.yaml": 0o600, "my conf": 0o600, "tool.yml": 0o700} {
		testkit.Must(t, os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"), mode))
	}
	for _, c := range []struct {
		name, args string
		code       int
		want       string // "": nothing is suggested
	}{
		{"serve", "serve my.yaml", 2, `got "my.yaml": did you mean -c my.yaml? (see robotsproxy serve --help)`},
		{"another name", "serve my\x00conf", 2, `got "my conf": did you mean -c 'my conf'?`},
		{"after another flag", "serve --listen 127.0.0.1:0 my.yaml", 2, "did you mean -c my.yaml?"},
		{"config check", "config check my.yaml", 2, "did you mean -c my.yaml?"},
		{"doctor", "doctor my.yaml", 2, "did you mean -c my.yaml?"},
		{"run", "run my.yaml -- true", 2, "did you mean -c my.yaml?"},
		{"check", "check my.yaml http://a.test/", 2, "did you mean -c my.yaml?"},
		{"audit tail", "audit tail my.yaml", 2, "did you mean -c my.yaml?"},
		{"no command", "my.yaml", 2, "did you mean serve -c my.yaml?"},
		{"beside a configuration", "serve -c my.yaml my.yaml", 2, ""},
		{"a file that does not exist", "serve none.yaml", 2, ""},
		{"a program", "run tool.yml", 0, ""},
		{"a program's own argument", "run -- test -f my.yaml", 0, ""},
		{"a command without configuration", "version my.yaml", 2, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			args := strings.Fields(c.args)
			for i := range args {
				args[i] = strings.ReplaceAll(args[i], "\x00", " ")
			}
			cmd := e2e.Prepare(t, args...)
			cmd.Dir = dir
			cmd.Env = append(cmd.Env, "PATH="+dir+":"+os.Getenv("PATH"))
			got := e2e.Finish(t, cmd).Want(t, c.code)
			if !strings.Contains(got.Stderr, c.want) || c.want == "" && strings.Contains(got.Stderr, "did you mean") {
				t.Errorf("%s", got.Stderr)
			}
		})
	}
}

func TestMissingFiles(t *testing.T) {
	t.Parallel()
	nowhere := filepath.Join(t.TempDir(), "nowhere.yaml")
	e2e.WantOneLine(t, e2e.Command(t, "serve", "-c", nowhere), 1, nowhere)
	e2e.WantOneLine(t, e2e.Command(t, "run", "-c", nowhere, "--", "true"), 1, nowhere)
	e2e.WantOneLine(t, e2e.Command(t, "config", "check", "-c", nowhere), 1, nowhere)
	h := e2e.NewSetup(t, e2e.Settings{"egress.extra_ca": nowhere})
	e2e.WantOneLine(t, e2e.Command(t, "serve", "-c", h.Config), 1, nowhere)
}

func TestPortInUse(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	taken := l.Addr().String()
	for key, hint := range map[string]string{
		"listen": "with --listen or with listen in", "listen_transparent": "with listen_transparent in",
		"admin.listen": "with --admin-listen or with admin.listen in", "admin.metrics_listen": "with admin.metrics_listen in",
	} {
		h := e2e.NewSetup(t, e2e.Settings{key: taken})
		got := e2e.Command(t, "serve", "-c", h.Config)
		e2e.WantOneLine(t, got, 1, taken)
		if !strings.HasPrefix(got.Stderr, "robotsproxy: "+key+": ") || !strings.Contains(got.Stderr, "choose another address "+hint) {
			t.Errorf("%s: %s", key, got.Stderr)
		}
	}
	h := e2e.NewSetup(t, e2e.Settings{})
	for _, flag := range []string{"--listen", "--admin-listen"} { // in place of an address that is free
		e2e.WantOneLine(t, e2e.Command(t, "serve", "-c", h.Config, flag, taken), 1, taken)
	}
}

// Nobody can create a path below a regular file, not even root.
func TestStateDirectoryNotWritable(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	e2e.WriteFile(t, file, "in the way\n")
	state := filepath.Join(file, "state")
	h := e2e.NewSetup(t, e2e.Settings{"state_dir": state})
	e2e.WantOneLine(t, e2e.Command(t, "serve", "-c", h.Config), 1, file)
	e2e.WantOneLine(t, e2e.Command(t, "run", "-c", h.Config, "--", "true"), 1, file)
	h = e2e.NewSetup(t, e2e.Settings{})
	e2e.WantOneLine(t, e2e.Command(t, "serve", "-c", h.Config, "--state", state), 1, file)
	h = e2e.NewSetup(t, e2e.Settings{"audit.file": filepath.Join(file, "audit.jsonl")})
	e2e.WantOneLine(t, e2e.Command(t, "serve", "-c", h.Config), 1, file)
}

func TestHalfACA(t *testing.T) {
	t.Parallel()
	h := e2e.NewSetup(t, e2e.Settings{})
	p := e2e.Launch(t, h)
	p.AwaitReady(t)
	p.End(t)
	cert := strings.TrimSuffix(e2e.Command(t, "ca", "path", "-c", h.Config).Want(t, 0).Stdout, "\n")
	key := filepath.Join(filepath.Dir(cert), "ca.key")
	keyText, err := os.ReadFile(key)
	if err != nil {
		t.Fatal(err)
	}
	certText, err := os.ReadFile(cert)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name             string
		certText, keyTxt []byte
		blame            string
	}{
		{"certificate without key", certText, nil, key},
		{"key without certificate", nil, keyText, cert},
		{"empty key", certText, []byte{}, key},
		{"certificate that is none", []byte("no certificate\n"), keyText, cert},
		{"cut certificate", certText[:len(certText)/2], keyText, cert},
	} {
		e2e.Put(t, cert, c.certText)
		e2e.Put(t, key, c.keyTxt)
		e2e.WantOneLine(t, e2e.Command(t, "serve", "-c", h.Config), 1, c.blame)
		e2e.WantOneLine(t, e2e.Command(t, "run", "-c", h.Config, "--", "true"), 1, c.blame)
		if c.keyTxt == nil && e2e.Exists(key) || c.certText == nil && e2e.Exists(cert) {
			t.Errorf("%s: the missing half was made anew", c.name)
		}
	}
	e2e.Put(t, cert, certText)
	e2e.Put(t, key, keyText)
	only := e2e.NewSetup(t, e2e.Settings{"tls.ca_cert": cert})
	e2e.WantOneLine(t, e2e.Command(t, "serve", "-c", only.Config), 1, "ca_key")
	only = e2e.NewSetup(t, e2e.Settings{"tls.ca_key": key})
	e2e.WantOneLine(t, e2e.Command(t, "serve", "-c", only.Config), 1, "ca_cert")
	only = e2e.NewSetup(t, e2e.Settings{"tls.ca_cert": e2e.TrustedFile(t), "tls.ca_key": key})
	e2e.WantOneLine(t, e2e.Command(t, "serve", "-c", only.Config), 1, e2e.TrustedFile(t))
}

func TestUsage(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		{"run", "--"}, {"run"}, {"check"}, {"nonsense"}, {"serve", "--nonsense"}, {"serve", "surplus"}, {"ca", "nonsense"},
		{"config", "nonsense"},
	} {
		t.Run(strings.Join(args, " "), func(t *testing.T) {
			out := e2e.Command(t, args...).Want(t, 2)
			if out.Stderr == "" || strings.Contains(out.Stderr, "panic") {
				t.Errorf("stderr: %q", out.Stderr)
			}
		})
	}
	e2e.WantOneLine(t, e2e.Command(t, "run", "--"), 2, "run")
}

// Status 1 of check is an answer, so no mistake may end with it.
func TestCheckCouldNotTell(t *testing.T) {
	t.Parallel()
	nowhere := filepath.Join(t.TempDir(), "nowhere")
	for _, args := range [][]string{
		{"check", "-c", nowhere, "http://a.test/"}, {"check", "--robots", nowhere, "http://a.test/"},
		{"check", "--dialect", "nonsense", "http://a.test/"}, {"check", "http://"}, {"check", "--nonsense", "http://a.test/"},
	} {
		t.Run(strings.Join(args[1:], " "), func(t *testing.T) { e2e.Command(t, args...).Want(t, 2) })
	}
}
