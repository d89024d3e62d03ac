package e2e

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// secret is the password of lab-a, and needs escapes in an address; secretHash
// is what libxcrypt made of it.
const (
	secret     = "s3cret:of@lab/a"
	secretHash = "$2y$04$0123456789ABCDEFGHIJKeWhxGazFJvgwd1EV8Nvgo/k/wcxTQ3fW"
)

// known is a configuration with two clients: one that knows a password, and one
// at an address.
var known = settings{
	"log.level": "debug",
	"clients": []any{
		map[string]any{"name": "lab-a", "password_hash": secretHash, "robots": map[string]any{"dialect": "rfc9309"}},
		map[string]any{"name": "lab-b", "networks": []string{"127.0.0.2/32"}},
	},
}

// as is the address of the proxy with a name and a password in it.
func (p *proxy) as(name, password string) string {
	return (&url.URL{Scheme: "http", Host: p.listen, User: url.UserPassword(name, password)}).String()
}

// envAs leads a client through the proxy with the password.
func (p *proxy) envAs(t testing.TB, password string) []string {
	t.Helper()
	env := p.env(t)
	for i := range env {
		env[i] = strings.ReplaceAll(env[i], "http://"+p.listen, p.as("lab-a", password))
	}
	return env
}

// wantNoSecret ends the proxy and looks for the password in all that others
// can read: the audit, the log, and what arrived at the origin.
func (p *proxy) wantNoSecret(t testing.TB, o *origin) {
	t.Helper()
	p.end(t)
	audit, err := os.ReadFile(p.audit)
	if err != nil {
		t.Fatal(err)
	}
	for where, text := range map[string]string{
		"the audit": string(audit), "the log": p.stderr.String(),
		"what arrived": fmt.Sprintf("%+v %+v", o.arrivals("http"), o.arrivals("https")),
	} {
		for _, s := range []string{secret, url.QueryEscape(secret), url.PathEscape(secret), secretHash, "Proxy-Authorization",
			base64.StdEncoding.EncodeToString([]byte("lab-a:" + secret))} {
			if strings.Contains(text, s) {
				t.Errorf("%q is in %s", s, where)
			}
		}
	}
}

// Every client that people use logs in with what the address of the proxy says.
func TestPeersLogIn(t *testing.T) {
	t.Parallel()
	o := newOrigin(t, "login", "User-agent: *\nDisallow: /private\n")
	o.handle("/a", textPage("text/plain", "a"))
	p := startProxy(t, outOfTheWay.with(known))
	ran := 0
	t.Run("each", func(t *testing.T) {
		for _, peer := range peers {
			t.Run(peer.name, func(t *testing.T) {
				argv := peer.need(t)
				urls := []string{o.url("http", "/a?"+peer.name), o.url("https", "/a?"+peer.name), o.url("https", "/private?"+peer.name)}
				got := peer.fetch(t, argv, p.envAs(t, secret), urls)
				for i, status := range []int{200, 200, 403} {
					if got[i].Status != status {
						t.Errorf("%s: %v, want %d", urls[i], got[i], status)
					}
					if r := awaitRecord(t, p.audit, urls[i]); r.Client != "lab-a" || r.Dialect != "rfc9309" {
						t.Errorf("%s: client %q under %q", urls[i], r.Client, r.Dialect)
					}
				}
				ran++
			})
		}
	})
	if ran > 0 {
		p.wantNoSecret(t, o)
	}
}

// What curl makes of each answer, and what the audit says of who asked.
func TestCurlAtTheDoor(t *testing.T) {
	t.Parallel()
	curl := needPeer(t, "curl")
	o := newOrigin(t, "door", "")
	o.handle("/a", textPage("text/plain", "a"))
	p := startProxy(t, outOfTheWay.with(known))
	asked := 0
	newest := func(more int) record {
		t.Helper()
		asked += more
		var records []record
		eventually(t, patience, fmt.Sprint("record number ", asked), func() bool {
			records = readAudit(t, p.audit)
			return len(records) >= asked
		})
		if len(records) > asked {
			t.Errorf("%d records, want %d", len(records), asked)
		}
		return records[asked-1]
	}
	for _, c := range []struct {
		name    string
		args    []string
		status  string
		client  string // in the audit
		records int    // of each request
	}{
		{"in the address", []string{"-x", p.as("lab-a", secret)}, "200", "lab-a", 1},
		{"--proxy-user", []string{"-x", p.listen, "--proxy-user", "lab-a:" + secret}, "200", "lab-a", 1},
		{"--proxy-anyauth: asked first", []string{"-x", p.listen, "--proxy-anyauth", "--proxy-user", "lab-a:" + secret}, "200", "lab-a", 2},
		{"wrong password", []string{"-x", p.as("lab-a", secret+"!")}, "407", "127.0.0.1", 1},
		{"unknown name", []string{"-x", p.as("lab-c", secret)}, "407", "127.0.0.1", 1},
		{"one without a password", []string{"-x", p.as("lab-b", secret)}, "407", "127.0.0.1", 1},
		{"none", []string{"-x", p.listen}, "407", "127.0.0.1", 1},
		{"Bearer", []string{"-x", p.listen, "--proxy-header", "Proxy-Authorization: Bearer " + secret}, "407", "127.0.0.1", 1},
		{"from the network", []string{"-x", p.listen, "--interface", "127.0.0.2"}, "200", "lab-b", 1},
		{"from the network, wrong password", []string{"-x", p.as("lab-a", "x"), "--interface", "127.0.0.2"}, "407", "127.0.0.2", 1},
	} {
		for scheme, exit := range map[string]int{"http": 0, "https": 56} { // curl's, for a CONNECT that was refused
			if c.status == "200" {
				exit = 0
			}
			url, shown := o.url(scheme, "/a"), "%{http_code}"
			if scheme == "https" {
				shown = "%{http_connect}"
			}
			argv := append([]string{curl, "-q", "-sS", "-o", "/dev/null", "--cacert", p.ca, "-w", shown, url}, c.args...)
			if out := runPeer(t, argv, cleanEnv()).want(t, exit); out.stdout != c.status {
				t.Errorf("%s, %s: %s, want %s", c.name, scheme, out.stdout, c.status)
			}
			r := newest(c.records)
			if r.Client != c.client || itoa(r.Status) != c.status || (c.status == "407") != (r.Reason == "auth") {
				t.Errorf("%s, %s: %+v", c.name, scheme, r)
			}
			if r.Status == http.StatusProxyAuthRequired && r.URL != url && r.URL != o.hostport(scheme) {
				t.Errorf("%s, %s: what was asked for is recorded as %q", c.name, scheme, r.URL)
			}
		}
	}
	for _, scheme := range schemes {
		if n := len(o.pages(scheme)); n != 4 {
			t.Errorf("%s: %d pages arrived, want 4", scheme, n)
		}
	}
	p.wantNoSecret(t, o)
}

// A listener that others reach is not opened to them by accident: clients say
// who may come in, and who is none of them does not.
func TestListenForClients(t *testing.T) {
	t.Parallel()
	o := newOrigin(t, "listen", "")
	o.handle("/a", textPage("text/plain", "a"))
	h := newHouse(t, settings{"listen": "0.0.0.0:0"})
	if out := command(t, "serve", "-c", h.config).want(t, 1); !strings.Contains(out.stderr, "say who may with clients, or open: true") {
		t.Errorf("stderr: %s", out.stderr)
	}
	port := freePort(t)
	p := startProxy(t, outOfTheWay.with(known).with(settings{"listen": fmt.Sprint("0.0.0.0:", port)}))
	p.listen = fmt.Sprint("127.0.0.1:", port)
	for address, status := range map[string]int{"127.0.0.1": 407, "127.0.0.2": 200} {
		if got := get(t, from(t, p.client(t, false), address), o.url("http", "/a")); got.Status != status {
			t.Errorf("from %s: %v", address, got)
		}
	}
	p.end(t)
}

// A run is its command's own, which knows no password; networks name it still.
func TestRunAsksForNoPassword(t *testing.T) {
	t.Parallel()
	curl := needPeer(t, "curl")
	o := newOrigin(t, "runlogin", "")
	o.handle("/a", textPage("text/plain", "a"))
	for name, c := range map[string]struct {
		client map[string]any
		want   string
	}{
		"password":             {map[string]any{"name": "lab-a", "password_hash": secretHash}, "127.0.0.1"},
		"password and network": {map[string]any{"name": "lab-a", "password_hash": secretHash, "networks": []string{"127.0.0.0/8"}}, "lab-a"},
		"network":              {map[string]any{"name": "lab-a", "networks": []string{"127.0.0.0/8"}}, "lab-a"},
		"another network":      {map[string]any{"name": "lab-a", "networks": []string{"192.0.2.0/24"}}, "127.0.0.1"},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHouse(t, outOfTheWay.with(settings{"clients": []any{c.client}}))
			audit := filepath.Join(h.dir, "run.jsonl")
			out := command(t, "run", "-c", h.config, "--audit", audit, "--", curl, "-q", "-sS", o.url("http", "/a"), o.url("https", "/a")).want(t, 0)
			if out.stdout != "aa" {
				t.Errorf("stdout: %s", out.stdout)
			}
			records := readAudit(t, audit)
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
