package cli

import (
	"fmt"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"robotsproxy/cmd/internal/e2e"
	"robotsproxy/robots/testkit"
)

// known is a configuration with two clients: one with a password, and one at an address.
var known = e2e.Settings{
	"log.level": "debug",
	"clients": []any{
		map[string]any{"name": "lab-a", "password_hash": e2e.SecretHash, "robots": map[string]any{"dialect": "rfc9309"}},
		map[string]any{"name": "lab-b", "networks": []string{"127.0.0.2/32"}},
	},
}

// Every common client logs in with the credentials in the proxy's URL.
func TestPeersLogIn(t *testing.T) {
	t.Parallel()
	o := e2e.NewOrigin(t, "login", "User-agent: *\nDisallow: /private\n")
	o.Handle("/a", e2e.TextPage("text/plain", "a"))
	p := e2e.StartProxy(t, e2e.Unpaced.With(known))
	var ran atomic.Bool
	t.Run("each", func(t *testing.T) {
		for _, peer := range e2e.Peers {
			t.Run(peer.Name, func(t *testing.T) {
				t.Parallel()
				argv := peer.Need(t)
				urls := []string{o.URL("http", "/a?"+peer.Name), o.URL("https", "/a?"+peer.Name), o.URL("https", "/private?"+peer.Name)}
				got := peer.Fetch(t, argv, p.EnvAs(t, e2e.Secret), urls)
				for i, status := range []int{200, 200, 403} {
					if got[i].Status != status {
						t.Errorf("%s: %v, want %d", urls[i], got[i], status)
					}
					if r := e2e.AwaitRecord(t, p.Audit, urls[i]); r.Client != "lab-a" || r.Dialect != "rfc9309" {
						t.Errorf("%s: client %q under %q", urls[i], r.Client, r.Dialect)
					}
				}
				ran.Store(true)
			})
		}
	})
	if ran.Load() {
		p.WantNoSecret(t, o)
	}
}

// How curl handles each response, and how the audit names the client.
func TestCurlIsRefused(t *testing.T) {
	t.Parallel()
	curl := e2e.NeedPeer(t, "curl")
	o := e2e.NewOrigin(t, "login", "")
	o.Handle("/a", e2e.TextPage("text/plain", "a"))
	p := e2e.StartProxy(t, e2e.Unpaced.With(known))
	asked := 0
	for _, c := range []struct {
		name    string
		args    []string
		status  string
		client  string // in the audit
		records int    // number of records for each request
	}{
		{"in the address", []string{"-x", p.As("lab-a", e2e.Secret)}, "200", "lab-a", 1},
		{"--proxy-user", []string{"-x", p.Listen, "--proxy-user", "lab-a:" + e2e.Secret}, "200", "lab-a", 1},
		{"--proxy-anyauth: asked first", []string{"-x", p.Listen, "--proxy-anyauth", "--proxy-user", "lab-a:" + e2e.Secret}, "200", "lab-a", 2},
		{"wrong password", []string{"-x", p.As("lab-a", e2e.Secret+"!")}, "407", "127.0.0.1", 1},
		{"unknown name", []string{"-x", p.As("lab-c", e2e.Secret)}, "407", "127.0.0.1", 1},
		{"one without a password", []string{"-x", p.As("lab-b", e2e.Secret)}, "407", "127.0.0.1", 1},
		{"none", []string{"-x", p.Listen}, "407", "127.0.0.1", 1},
		{"Bearer", []string{"-x", p.Listen, "--proxy-header", "Proxy-Authorization: Bearer " + e2e.Secret}, "407", "127.0.0.1", 1},
		{"from the network", []string{"-x", p.Listen, "--interface", "127.0.0.2"}, "200", "lab-b", 1},
		{"from the network, wrong password", []string{"-x", p.As("lab-a", "x"), "--interface", "127.0.0.2"}, "407", "127.0.0.2", 1},
	} {
		for scheme, exit := range map[string]int{"http": 0, "https": 56} { // exit status of curl if a CONNECT is refused
			if c.status == "200" {
				exit = 0
			}
			url, shown := o.URL(scheme, "/a"), "%{http_code}"
			if scheme == "https" {
				shown = "%{http_connect}"
			}
			argv := append([]string{curl, "-q", "-sS", "-o", "/dev/null", "--cacert", p.CA, "-w", shown, url}, c.args...)
			if out := e2e.RunPeer(t, argv, e2e.CleanEnv()).Want(t, exit); out.Stdout != c.status {
				t.Errorf("%s, %s: %s, want %s", c.name, scheme, out.Stdout, c.status)
			}
			asked += c.records
			r := lastOf(t, p, asked)
			if r.Client != c.client || strconv.Itoa(r.Status) != c.status || (c.status == "407") != (r.Reason == "auth") {
				t.Errorf("%s, %s: %+v", c.name, scheme, r)
			}
			if r.Status == http.StatusProxyAuthRequired && r.URL != url && r.URL != o.Hostport(scheme) {
				t.Errorf("%s, %s: what was asked for is recorded as %q", c.name, scheme, r.URL)
			}
		}
	}
	for _, scheme := range e2e.Schemes {
		if n := len(o.Pages(scheme)); n != 4 {
			t.Errorf("%s: %d pages arrived, want 4", scheme, n)
		}
	}
	p.WantNoSecret(t, o)
}

// lastOf waits until the audit has n records and returns the last one.
func lastOf(t *testing.T, p *e2e.Proxy, n int) e2e.Record {
	t.Helper()
	var records []e2e.Record
	testkit.Eventually(t, fmt.Sprint("record number ", n), func() bool {
		records = e2e.ReadAudit(t, p.Audit)
		return len(records) >= n
	})
	if len(records) > n {
		t.Errorf("%d records, want %d", len(records), n)
	}
	return records[n-1]
}

// A listener that other machines can reach is not open by accident: only clients in the
// configuration may use it.
func TestListenForClients(t *testing.T) {
	t.Parallel()
	o := e2e.NewOrigin(t, "listen", "")
	o.Handle("/a", e2e.TextPage("text/plain", "a"))
	h := e2e.NewSetup(t, e2e.Settings{"listen": "0.0.0.0:0"})
	if out := e2e.Command(t, "serve", "-c", h.Config).Want(t, 1); !strings.Contains(out.Stderr, "add entries to clients, or set open: true") {
		t.Errorf("stderr: %s", out.Stderr)
	}
	port := e2e.FreePort(t)
	p := e2e.StartProxy(t, e2e.Unpaced.With(known).With(e2e.Settings{"listen": fmt.Sprint("0.0.0.0:", port)}))
	p.Listen = fmt.Sprint("127.0.0.1:", port)
	for address, status := range map[string]int{"127.0.0.1": 407, "127.0.0.2": 200} {
		if got := e2e.Get(t, e2e.From(t, p.Client(t, false), address), o.URL("http", "/a")); got.Status != status {
			t.Errorf("from %s: %v", address, got)
		}
	}
	p.End(t)
}

// A run belongs to its command, which needs no password. Networks still identify the
// client.
func TestRunAsksForNoPassword(t *testing.T) {
	t.Parallel()
	curl := e2e.NeedPeer(t, "curl")
	o := e2e.NewOrigin(t, "runlogin", "")
	o.Handle("/a", e2e.TextPage("text/plain", "a"))
	for name, c := range map[string]struct {
		client map[string]any
		want   string
	}{
		"password":             {map[string]any{"name": "lab-a", "password_hash": e2e.SecretHash}, "127.0.0.1"},
		"password and network": {map[string]any{"name": "lab-a", "password_hash": e2e.SecretHash, "networks": []string{"127.0.0.0/8"}}, "lab-a"},
		"network":              {map[string]any{"name": "lab-a", "networks": []string{"127.0.0.0/8"}}, "lab-a"},
		"another network":      {map[string]any{"name": "lab-a", "networks": []string{"192.0.2.0/24"}}, "127.0.0.1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := e2e.NewSetup(t, e2e.Unpaced.With(e2e.Settings{"clients": []any{c.client}}))
			audit := filepath.Join(h.Dir, "run.jsonl")
			out := e2e.Command(t, "run", "-c", h.Config, "--audit", audit, "--", curl, "-q", "-sS", o.URL("http", "/a"), o.URL("https", "/a")).Want(t, 0)
			if out.Stdout != "aa" {
				t.Errorf("stdout: %s", out.Stdout)
			}
			records := e2e.ReadAudit(t, audit)
			for _, r := range records {
				if r.Client != c.want || r.Status != http.StatusOK {
					t.Errorf("%+v", r)
				}
			}
			if len(records) != 2 {
				t.Errorf("%d records", len(records))
			}
		})
	}
}
