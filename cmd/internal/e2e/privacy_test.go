package e2e

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode"
)

// secrets are what no configuration may have in the state directory's records.
var secrets = []string{"s3cret", "c00kie", "b0dy", "dXNlcjpzM2NyZXQ"}

func TestAuditHoldsNoSecrets(t *testing.T) {
	t.Parallel()
	o := newOrigin(t, "secrets", forbidding)
	o.handle("/form", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Set-Cookie", "a=c00kie")
		w.Write([]byte("b0dy"))
	})
	for _, c := range []struct {
		name    string
		own     settings
		leaks   []string                          // what must not be there beside secrets
		clients func(t *testing.T, seen []string) // of the member client
	}{
		{"by default", nil, nil, func(t *testing.T, seen []string) {
			if seen[0] != "127.0.0.1" {
				t.Errorf("clients %q", seen)
			}
		}},
		{"query_strings: drop", settings{"audit.query_strings": "drop"}, []string{"whose="}, nil},
		{"clients: hash", settings{"audit.clients": "hash"}, []string{"127.0.0.1"}, func(t *testing.T, seen []string) {
			if len(seen) != 1 || len(seen[0]) != 32 || strings.Trim(seen[0], "0123456789abcdef") != "" {
				t.Errorf("clients %q", seen)
			}
		}},
		{"clients: drop", settings{"audit.clients": "drop"}, []string{"127.0.0.1"}, func(t *testing.T, seen []string) {
			if len(seen) != 1 || seen[0] != "" {
				t.Errorf("clients %q", seen)
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := startProxy(t, outOfTheWay.with(c.own))
			client := p.client(t, false)
			for _, scheme := range schemes {
				do(t, client, "POST", o.url(scheme, "/form?whose=mine"), strings.NewReader("b0dy"),
					"Cookie", "a=c00kie", "Authorization", "Basic dXNlcjpzM2NyZXQ=")
				get(t, client, o.url(scheme, "/no?whose=mine"), "Cookie", "a=c00kie", "Proxy-Authorization", "Basic dXNlcjpzM2NyZXQ=")
			}
			for _, line := range []string{
				"GET http://u:s3cret@" + o.hostport("http") + "/form?whose=mine HTTP/1.1",
				"GET http:/u:s3cret@x/?whose=mine HTTP/1.1",
				"CONNECT u:s3cret@" + o.hostport("https") + " HTTP/1.1",
				"GET http://x y/?whose=mine HTTP/1.1",
			} {
				w := p.dial(t)
				w.send(t, line, "Host: x")
				w.receive(t, "GET")
			}
			// One that leaves while it is answered: net/http's error names its address.
			stop := make(chan struct{})
			o.handle("/long", func(w http.ResponseWriter, r *http.Request) {
				w.(http.Flusher).Flush()
				for r.Context().Err() == nil {
					if _, err := w.Write(make([]byte, 32<<10)); err != nil {
						break
					}
				}
				close(stop)
			})
			left := p.dial(t)
			left.send(t, "GET "+o.url("http", "/long")+" HTTP/1.1", "Host: "+o.hostport("http"))
			eventually(t, patience, "the page is asked for", func() bool {
				return len(o.pages("http")) > 0 && o.pages("http")[len(o.pages("http"))-1].Path == "/long"
			})
			left.Close()
			within(t, patience, "the origin sees the end", stop)
			awaitRecord(t, p.audit, o.url("http", "/long"))
			p.end(t)

			text, err := os.ReadFile(p.audit)
			if err != nil {
				t.Fatal(err)
			}
			for _, secret := range append(secrets, c.leaks...) {
				for line := range strings.Lines(string(text)) {
					if secret == "127.0.0.1" { // which the origins' addresses may begin with
						line = strings.ReplaceAll(line, o.addr(), "")
					}
					if strings.Contains(line, secret) {
						t.Errorf("%s in %s", secret, line)
					}
				}
			}
			if c.clients == nil {
				return
			}
			var seen []string
			for _, r := range readAudit(t, p.audit) {
				if len(seen) == 0 || seen[len(seen)-1] != r.Client {
					seen = append(seen, r.Client)
				}
			}
			c.clients(t, seen)
		})
	}
}

// The same client has the same name after a new start, and another one elsewhere.
func TestHashedClientsAreToldApart(t *testing.T) {
	t.Parallel()
	o := newOrigin(t, "hashed", forbidding)
	name := func(h *house) string {
		p := launch(t, h)
		p.awaitReady(t)
		p.ca = strings.TrimSuffix(command(t, "ca", "path", "-c", p.config).want(t, 0).stdout, "\n")
		get(t, p.client(t, false), o.url("http", "/no"))
		p.end(t)
		records := readAudit(t, p.audit)
		return records[len(records)-1].Client
	}
	here, there := newHouse(t, settings{"audit.clients": "hash"}), newHouse(t, settings{"audit.clients": "hash"})
	first := name(here)
	if again := name(here); again != first {
		t.Errorf("%q, then %q", first, again)
	}
	if other := name(there); other == first {
		t.Error("another proxy gives the same name: it can be guessed")
	}
	info, err := os.Stat(filepath.Join(here.state, "audit.key"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
}

// A User-Agent of control characters and terminal escapes forges neither a line nor a
// terminal.
func TestHostileAgentStaysInItsLine(t *testing.T) {
	t.Parallel()
	o := newOrigin(t, "hostile", forbidding)
	p := startProxy(t, outOfTheWay)
	hostile := "x\t\x9b2J\xc2\x9b31m\u202eevil\u2028\\\"}{\"decision\":\"allow\"} \xff\u200b" + strings.Repeat("A", 9<<10)
	w := p.dial(t)
	w.send(t, "GET "+o.url("http", "/no/\xc2\x9b?\xe2\x80\xae")+" HTTP/1.1", "Host: "+o.hostport("http"), "User-Agent: "+hostile)
	w.SetReadDeadline(time.Now().Add(patience))
	w.receive(t, "GET")
	p.end(t)
	text, err := os.ReadFile(p.audit)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(text), "\n"); n != 2 { // one is of the fetch
		t.Errorf("%d lines", n)
	}
	for _, r := range strings.ReplaceAll(string(text), "\n", "") {
		if !unicode.IsPrint(r) {
			t.Errorf("%U stands in the line", r)
		}
	}
	if got := readAudit(t, p.audit); got[0].Decision != "block" {
		t.Errorf("got %+v", got[0])
	}
}
