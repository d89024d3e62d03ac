package identity

import (
	"bytes"
	"cmp"
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"robotsproxy/cmd/internal/cli"
	"robotsproxy/cmd/internal/config"
	"robotsproxy/cmd/internal/daemon"
	"robotsproxy/proxy/signature"
	"robotsproxy/robots/testkit"
)

// webServer starts a web server with TLS. The configuration trusts it.
func webServer(t *testing.T, h http.HandlerFunc) (cfg config.Config, url string) {
	t.Helper()
	s := httptest.NewUnstartedServer(h)
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	s.StartTLS()
	t.Cleanup(s.Close)
	file := filepath.Join(t.TempDir(), "roots.pem")
	testkit.Must(t, os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}), 0o600))
	cfg = config.Default()
	cfg.Egress.ExtraCA, cfg.Egress.AllowPrivate = file, []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	return cfg, s.URL
}

func TestCheckDirectory(t *testing.T) {
	key, next, other := signature.NewKey(), signature.NewKey(), signature.NewKey()
	answer := func(media string, keys ...*signature.Key) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", media)
			var public []signature.PublicKey
			for _, k := range keys {
				public = append(public, k.Public())
			}
			w.Write(signature.Directory(public...))
		}
	}
	for _, c := range []struct {
		name, path string
		answer     http.HandlerFunc
		status     cli.Status
		says       string
	}{
		{"both keys", signature.DirectoryPath, answer(signature.DirectoryType, key, next), cli.StatusOK, "has the key " + key.ID()},
		{"an origin alone stands for the well-known path", "", answer(signature.DirectoryType, key, next), cli.StatusOK, ""},
		{"another path and media type", "/jwks.json", answer("application/json", other, key, next), cli.StatusOK, ""},
		{"without the next key", signature.DirectoryPath, answer(signature.DirectoryType, key), cli.StatusWarn, "does not have the next key " + next.ID()},
		{"without the key", signature.DirectoryPath, answer(signature.DirectoryType, other, next), cli.StatusFail, "does not have the key " + key.ID()},
		{"another media type at the well-known path", signature.DirectoryPath, answer("application/json", key, next), cli.StatusFail, `its media type is "application/json"`},
		{"no file", signature.DirectoryPath, http.NotFound, cli.StatusFail, "the web server answers 404 Not Found"},
		{"a redirect is not followed", signature.DirectoryPath, http.RedirectHandler("/elsewhere", http.StatusFound).ServeHTTP, cli.StatusFail, "the web server answers 302 Found"},
		{"no JSON", "/keys", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "<html>") }, cli.StatusFail, "not a JWK Set"},
		{"too long", "/keys", func(w http.ResponseWriter, _ *http.Request) { w.Write(make([]byte, maxDirectory+1)) }, cli.StatusFail, "more than 65536 bytes"},
		{"another clock", "/keys", func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Date", time.Now().Add(time.Hour+time.Minute/2).UTC().Format(http.TimeFormat))
			answer("application/json", key, next)(w, r)
		}, cli.StatusWarn, "differs by 1h0m"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			asked := make(chan *http.Request, 9)
			cfg, url := webServer(t, func(w http.ResponseWriter, r *http.Request) {
				asked <- r
				c.answer(w, r)
			})
			got := CheckDirectory(t.Context(), cfg, daemon.Agent{URL: url + c.path, Key: key, Next: next})
			if got.Status != c.status || !strings.Contains(got.Detail, c.says) {
				t.Errorf("%s: %s, want %s with %q", got.Status, got.Detail, c.status, c.says)
			}
			if (got.Hint != "") != (c.status != cli.StatusOK) {
				t.Errorf("hint: %q", got.Hint)
			}
			if r := <-asked; len(asked) > 0 || r.URL.Path != "/"+strings.TrimPrefix(cmp.Or(c.path, signature.DirectoryPath), "/") {
				t.Errorf("%s was requested, and %d more", r.URL, len(asked))
			}
		})
	}
}

func TestDirectoryThatCannotBeReached(t *testing.T) {
	got := CheckDirectory(t.Context(), config.Default(), daemon.Agent{URL: "https://127.0.0.1:1/keys", Key: signature.NewKey()})
	if got.Status != cli.StatusFail || !strings.Contains(got.Detail, "cannot be used") {
		t.Errorf("%s: %s", got.Status, got.Detail)
	}
}

func TestVerifyRequest(t *testing.T) {
	dir, key := t.TempDir(), signature.NewKey()
	testkit.Must(t, os.WriteFile(filepath.Join(dir, "bot.pem"), key.PEM(), 0o600))
	file := filepath.Join(dir, "robotsproxy.yaml")
	testkit.Must(t, os.WriteFile(file, fmt.Appendf(nil, "identity: {sign: {key: %q, agent: \"https://bot.example/keys\"}}\n", filepath.Join(dir, "bot.pem")), 0o600))
	by, err := signature.New(signature.Options{Key: key, Agent: "https://bot.example/keys", Valid: time.Minute})
	testkit.Must(t, err)
	r, err := http.NewRequest(http.MethodGet, "https://example.com:443/page", nil)
	testkit.Must(t, err)
	testkit.Must(t, by.Sign(r))
	head, err := httputil.DumpRequest(r, false)
	testkit.Must(t, err)
	for _, c := range []struct{ name, head, at, want string }{
		{"as captured", string(head), "", "ok       the signature is valid\nkey      " + key.ID()},
		{"without the empty line, with LF", strings.TrimSpace(strings.ReplaceAll(string(head), "\r\n", "\n")), "", "ok "},
		{"another host", strings.Replace(string(head), "example.com", "example.org", 1), "", signature.ErrSignature.Error()},
		{"later", string(head), time.Now().Add(time.Hour).Format(time.RFC3339), "it expired at "},
		{"a wrong time", string(head), "noon", "must be a time"},
	} {
		t.Run(c.name, func(t *testing.T) {
			cmd := Command()
			var out bytes.Buffer
			cmd.SetOut(&out)
			cmd.SetErr(&out)
			cmd.SetIn(strings.NewReader(c.head))
			cmd.SetArgs([]string{"verify", "-c", file, "-", "--at", c.at})
			err := cmd.Execute()
			if strings.HasPrefix(c.want, "ok") != (err == nil) || !strings.Contains(out.String(), c.want) {
				t.Errorf("%v, %q, want %q", err, out.String(), c.want)
			}
		})
	}
}

// TestDirectoryOfAllKeys: the directory of an agent has the keys of all agents whose directory it is.
func TestDirectoryOfAllKeys(t *testing.T) {
	dir, keys := t.TempDir(), map[string]*signature.Key{}
	for _, name := range []string{"all", "lab", "other"} {
		keys[name] = signature.NewKey()
		testkit.Must(t, os.WriteFile(filepath.Join(dir, name+".pem"), keys[name].PEM(), 0o600))
	}
	file := filepath.Join(dir, "robotsproxy.yaml")
	testkit.Must(t, os.WriteFile(file, []byte(`
identity: {sign: {key: all.pem, agent: "https://bot.example"}}
clients:
  - {name: lab, networks: [192.0.2.0/24], identity: {sign: {key: lab.pem, agent: "https://bot.example/.well-known/http-message-signatures-directory"}}}
  - {name: other, networks: [198.51.100.0/24], identity: {sign: {key: other.pem, agent: "https://other.example"}}}
`), 0o600))
	for of, want := range map[string][]string{"": {"all", "lab"}, "lab": {"all", "lab"}, "other": {"other"}} {
		args := []string{"directory", "-c", file}
		if of != "" {
			args = append(args, "--client", of)
		}
		var out, errOut bytes.Buffer
		if status := cli.Execute(t.Context(), Command(), args, nil, &out, &errOut); status != 0 {
			t.Fatalf("status %d: %s", status, errOut.String())
		}
		for name, key := range keys {
			if has := strings.Contains(out.String(), key.ID()); has != slices.Contains(want, name) {
				t.Errorf("the directory of client %q has the key of %s: %v", of, name, has)
			}
		}
	}
}

// TestFlagsWithoutEffect: no flag is ignored.
func TestFlagsWithoutEffect(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"verify", "--at", "2026-11-25T10:00:00Z"}, "FILE, which is missing"},
		{[]string{"verify", "--http"}, "FILE, which is missing"},
		{[]string{"show", "--state", ""}, "--state: empty directory name"},
		{[]string{"key", "--client", ""}, "--client: empty name"},
	} {
		var out, errOut bytes.Buffer
		if status := cli.Execute(t.Context(), Command(), c.args, nil, &out, &errOut); status != cli.ExitUsage || !strings.Contains(errOut.String(), c.want) {
			t.Errorf("%q: status %d, %q, want %q", c.args, status, errOut.String(), c.want)
		}
	}
}
