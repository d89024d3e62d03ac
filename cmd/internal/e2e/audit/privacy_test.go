package audit

import (
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"

	"robotsproxy/cmd/internal/e2e"
	"robotsproxy/robots/testkit"
)

// secrets are texts that must not occur in the records of the state directory, whatever
// the configuration.
var secrets = []string{"s3cret", "c00kie", "b0dy", "dXNlcjpzM2NyZXQ"}

func TestAuditHoldsNoSecrets(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		own   e2e.Settings
		leaks []string                    // further texts that must not occur
		fits  func(clients []string) bool // checks the member client
	}{
		{"by default", nil, nil, func(clients []string) bool { return clients[0] == "127.0.0.1" }},
		{"query_strings: drop", e2e.Settings{"audit.query_strings": "drop"}, []string{"whose="}, func([]string) bool { return true }},
		{"clients: hash", e2e.Settings{"audit.clients": "hash"}, []string{"127.0.0.1"}, func(clients []string) bool {
			return len(clients) == 1 && len(clients[0]) == 32 && strings.Trim(clients[0], "0123456789abcdef") == ""
		}},
		{"clients: drop", e2e.Settings{"audit.clients": "drop"}, []string{"127.0.0.1"}, func(clients []string) bool {
			return len(clients) == 1 && clients[0] == ""
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			o := e2e.NewOrigin(t, "secrets", e2e.Forbidding)
			p := e2e.StartProxy(t, e2e.Unpaced.With(c.own))
			tellSecrets(t, p, o)
			p.End(t)
			for line := range strings.Lines(e2e.ReadText(t, p.Audit)) {
				line = strings.ReplaceAll(line, o.Addr(), "") // it may begin like the client's address
				for _, secret := range append(c.leaks, secrets...) {
					if strings.Contains(line, secret) {
						t.Errorf("%s in %s", secret, line)
					}
				}
			}
			var seen []string
			for _, r := range e2e.ReadAudit(t, p.Audit) {
				seen = append(seen, r.Client)
			}
			if seen = slices.Compact(seen); !c.fits(seen) {
				t.Errorf("clients %q", seen)
			}
		})
	}
}

// tellSecrets sends requests that contain secrets, in every way that may lead to a record.
func tellSecrets(t *testing.T, p *e2e.Proxy, o *e2e.Origin) {
	t.Helper()
	o.Handle("/form", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Set-Cookie", "a=c00kie")
		w.Write([]byte("b0dy"))
	})
	client := p.Client(t, false)
	for _, scheme := range e2e.Schemes {
		e2e.Do(t, client, "POST", o.URL(scheme, "/form?whose=mine"), strings.NewReader("b0dy"),
			"Cookie", "a=c00kie", "Authorization", "Basic dXNlcjpzM2NyZXQ=")
		e2e.Get(t, client, o.URL(scheme, "/no?whose=mine"), "Cookie", "a=c00kie", "Proxy-Authorization", "Basic dXNlcjpzM2NyZXQ=")
	}
	for _, line := range []string{
		"GET http://u:s3cret@" + o.Hostport("http") + "/form?whose=mine HTTP/1.1",
		"GET http:/u:s3cret@x/?whose=mine HTTP/1.1",
		"CONNECT u:s3cret@" + o.Hostport("https") + " HTTP/1.1",
		"GET http://x y/?whose=mine HTTP/1.1",
	} {
		w := p.Dial(t)
		w.Send(t, line, "Host: x")
		w.Receive(t, "GET")
		w.Close() // otherwise serve waits for it after an unreadable request
	}
	// A client that leaves during the response: the error of net/http contains its
	// address.
	stop := make(chan struct{})
	o.Handle("/long", func(w http.ResponseWriter, r *http.Request) {
		w.(http.Flusher).Flush()
		for r.Context().Err() == nil {
			if _, err := w.Write(make([]byte, 32<<10)); err != nil {
				break
			}
		}
		close(stop)
	})
	left := p.Dial(t)
	left.Send(t, "GET "+o.URL("http", "/long")+" HTTP/1.1", "Host: "+o.Hostport("http"))
	testkit.Eventually(t, "the page is asked for", func() bool {
		return len(o.Pages("http")) > 0 && o.Pages("http")[len(o.Pages("http"))-1].Path == "/long"
	})
	left.Close()
	testkit.Within(t, "the origin sees the end", stop)
	e2e.AwaitRecord(t, p.Audit, o.URL("http", "/long"))
}

// A client keeps its hashed name after a restart, and has another one in another state
// directory.
func TestHashedClientsAreToldApart(t *testing.T) {
	t.Parallel()
	o := e2e.NewOrigin(t, "hashed", e2e.Forbidding)
	name := func(h *e2e.Setup) string {
		p := e2e.Launch(t, h)
		p.AwaitReady(t)
		e2e.Get(t, p.Client(t, false), o.URL("http", "/no"))
		p.End(t)
		records := e2e.ReadAudit(t, p.Audit)
		return records[len(records)-1].Client
	}
	here, there := e2e.NewSetup(t, e2e.Settings{"audit.clients": "hash"}), e2e.NewSetup(t, e2e.Settings{"audit.clients": "hash"})
	first := name(here)
	if again := name(here); again != first {
		t.Errorf("%q, then %q", first, again)
	}
	if other := name(there); other == first {
		t.Error("another proxy gives the same name: it can be guessed")
	}
	info, err := os.Stat(filepath.Join(here.State, "audit.key"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
}

// A User-Agent with control characters and terminal escapes forges neither a line nor
// terminal output.
func TestHostileAgentStaysInItsLine(t *testing.T) {
	t.Parallel()
	o := e2e.NewOrigin(t, "hostile", e2e.Forbidding)
	p := e2e.StartProxy(t, e2e.Unpaced)
	hostile := "x\t\x9b2J\xc2\x9b31m\u202eevil\u2028\\\"}{\"decision\":\"allow\"} \xff\u200b" + strings.Repeat("A", 9<<10)
	w := p.Dial(t)
	w.Send(t, "GET "+o.URL("http", "/no/\xc2\x9b?\xe2\x80\xae")+" HTTP/1.1", "Host: "+o.Hostport("http"), "User-Agent: "+hostile)
	w.SetReadDeadline(time.Now().Add(testkit.Patience))
	w.Receive(t, "GET")
	p.End(t)
	text, err := os.ReadFile(p.Audit)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(text), "\n"); n != 4 { // others are about the fetch, the start and the stop
		t.Errorf("%d lines", n)
	}
	for _, r := range strings.ReplaceAll(string(text), "\n", "") {
		if !unicode.IsPrint(r) {
			t.Errorf("%U stands in the line", r)
		}
	}
	if got := e2e.ReadAudit(t, p.Audit); got[0].Decision != "block" {
		t.Errorf("got %+v", got[0])
	}
}

// TestDroppedQueriesAreNowhere: with audit.query_strings: drop, no query of a redirect or a licence is in the state
// directory.
func TestDroppedQueriesAreNowhere(t *testing.T) {
	t.Parallel()
	o, failing := e2e.NewOrigin(t, "queries", ""), e2e.NewOrigin(t, "failing", "")
	o.Handle("/robots.txt", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "/rules.txt?whose=1", http.StatusFound)
	})
	o.Handle("/rules.txt", e2e.TextPage("text/plain", e2e.Forbidding))
	o.Handle("/page", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Link", `<https://licence.test/terms?whose=2>; rel="license"`)
		w.Header().Set("Tdm-Reservation", "1")
		w.Header().Set("Tdm-Policy", "https://licence.test/policy?whose=3")
	})
	failing.Handle("/robots.txt", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "http://nowhere.test/rules.txt?whose=4", http.StatusFound)
	})
	p := e2e.StartProxy(t, e2e.Unpaced.With(e2e.Settings{"audit.query_strings": "drop"}))
	c := p.Client(t, false)
	e2e.Get(t, c, o.URL("http", "/page?whose=5"))
	e2e.Get(t, c, o.URL("http", "/no?whose=6"))
	e2e.Get(t, c, failing.URL("http", "/page?whose=7"))
	p.End(t)
	text := e2e.ReadText(t, p.Audit)
	for _, kept := range []string{"/rules.txt", "https://licence.test/terms", "https://licence.test/policy", "http://nowhere.test/rules.txt"} {
		if !strings.Contains(text, kept) {
			t.Errorf("the audit does not have %s", kept)
		}
	}
	err := filepath.WalkDir(p.State, func(path string, d os.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			if text := e2e.ReadText(t, path); strings.Contains(text, "whose=") {
				t.Errorf("%s has a query", path)
			}
		}
		return err
	})
	testkit.Must(t, err)
}
