package e2e

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// wantOneLine holds a command that could not start against how it must say so.
func wantOneLine(t *testing.T, out outcome, code int, names ...string) {
	t.Helper()
	out.want(t, code)
	text := strings.TrimSuffix(out.stderr, "\n")
	if text == "" || strings.Contains(text, "\n") {
		t.Errorf("want one line on stderr:\n%s", out.stderr)
	}
	for _, name := range names {
		if !strings.Contains(text, name) {
			t.Errorf("the error does not name %q: %s", name, text)
		}
	}
	if out.stdout != "" {
		t.Errorf("stdout has %q", out.stdout)
	}
}

// Each mistake of a configuration, met by every command that reads it.
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
			writeFile(t, file, c.text)
			names := append([]string{file}, c.names...)
			wantOneLine(t, command(t, "serve", "-c", file), 1, names...)
			wantOneLine(t, command(t, "config", "check", "-c", file), 1, names...)
			wantOneLine(t, command(t, "run", "-c", file, "--", "true"), 1, names...)
		})
	}
}

func TestMissingFiles(t *testing.T) {
	t.Parallel()
	nowhere := filepath.Join(t.TempDir(), "nowhere.yaml")
	wantOneLine(t, command(t, "serve", "-c", nowhere), 1, nowhere)
	wantOneLine(t, command(t, "run", "-c", nowhere, "--", "true"), 1, nowhere)
	wantOneLine(t, command(t, "config", "check", "-c", nowhere), 1, nowhere)
	h := newHouse(t, settings{"egress.extra_ca": nowhere})
	wantOneLine(t, command(t, "serve", "-c", h.config), 1, nowhere)
}

func TestPortInUse(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	taken := l.Addr().String()
	for _, key := range []string{"listen", "admin.listen"} {
		h := newHouse(t, settings{key: taken})
		wantOneLine(t, command(t, "serve", "-c", h.config), 1, taken)
	}
}

// A path below a regular file can be made by nobody, root included.
func TestStateDirectoryNotWritable(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	writeFile(t, file, "in the way\n")
	state := filepath.Join(file, "state")
	h := newHouse(t, settings{"state_dir": state})
	wantOneLine(t, command(t, "serve", "-c", h.config), 1, file)
	wantOneLine(t, command(t, "run", "-c", h.config, "--", "true"), 1, file)
	h = newHouse(t, settings{})
	wantOneLine(t, command(t, "serve", "-c", h.config, "--state", state), 1, file)
	h = newHouse(t, settings{"audit.file": filepath.Join(file, "audit.jsonl")})
	wantOneLine(t, command(t, "serve", "-c", h.config), 1, file)
}

func TestHalfACA(t *testing.T) {
	t.Parallel()
	h := newHouse(t, settings{})
	p := launch(t, h)
	p.awaitReady(t)
	p.end(t)
	cert := strings.TrimSuffix(command(t, "ca", "path", "-c", h.config).want(t, 0).stdout, "\n")
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
		put(t, cert, c.certText)
		put(t, key, c.keyTxt)
		wantOneLine(t, command(t, "serve", "-c", h.config), 1, c.blame)
		wantOneLine(t, command(t, "run", "-c", h.config, "--", "true"), 1, c.blame)
		if c.keyTxt == nil && exists(key) || c.certText == nil && exists(cert) {
			t.Errorf("%s: the missing half was made anew", c.name)
		}
	}
	put(t, cert, certText)
	put(t, key, keyText)
	only := newHouse(t, settings{"tls.ca_cert": cert})
	wantOneLine(t, command(t, "serve", "-c", only.config), 1, "ca_key")
	only = newHouse(t, settings{"tls.ca_key": key})
	wantOneLine(t, command(t, "serve", "-c", only.config), 1, "ca_cert")
	only = newHouse(t, settings{"tls.ca_cert": trustedFile(t), "tls.ca_key": key})
	wantOneLine(t, command(t, "serve", "-c", only.config), 1, trustedFile(t))
}

// put writes the file, or removes it where there is nothing to write.
func put(t *testing.T, file string, text []byte) {
	t.Helper()
	if text == nil {
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
		return
	}
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestUsage(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		{"run", "--"}, {"run"}, {"check"}, {"nonsense"}, {"serve", "--nonsense"}, {"serve", "surplus"}, {"ca", "nonsense"},
		{"config", "nonsense"},
	} {
		t.Run(strings.Join(args, " "), func(t *testing.T) {
			out := command(t, args...).want(t, 2)
			if out.stderr == "" || strings.Contains(out.stderr, "panic") {
				t.Errorf("stderr: %q", out.stderr)
			}
		})
	}
	wantOneLine(t, command(t, "run", "--"), 2, "run")
}

// Status 1 of check is an answer, so that no mistake may end with it.
func TestCheckCouldNotTell(t *testing.T) {
	t.Parallel()
	nowhere := filepath.Join(t.TempDir(), "nowhere")
	for _, args := range [][]string{
		{"check", "-c", nowhere, "http://a.test/"}, {"check", "--robots", nowhere, "http://a.test/"},
		{"check", "--dialect", "nonsense", "http://a.test/"}, {"check", "http://"}, {"check", "--nonsense", "http://a.test/"},
	} {
		t.Run(strings.Join(args[1:], " "), func(t *testing.T) { command(t, args...).want(t, 2) })
	}
}
