package robotstxt

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"robotsproxy/cmd/internal/e2e"
)

// preferences are headers by which an origin states what its content may be used for,
// with hostile values.
var preferences = http.Header{
	"X-Robots-Tag":    {"noindex", `otherbot: "none", \`, "unavailable_after: 25 Jun 2027 15:00:00 PST"},
	"Content-Signal":  {"search=yes, ai-train=no"},
	"Content-Usage":   {"train-ai=n\t;\"", "\xc3\xa9\xff\xe2\x80\xae"},
	"Tdm-Reservation": slices.Repeat([]string{"1"}, 300),
	"Tdm-Policy":      {"https://site.test/" + strings.Repeat("a", 20_000)},
}

// wishing returns a page with these headers.
func wishing(w http.ResponseWriter, r *http.Request) {
	for name, lines := range preferences {
		w.Header()[name] = lines
	}
	e2e.TextPage("text/plain", r.URL.Path)(w, r)
}

// Usage preferences of an origin are recorded, with limits, and reach the client
// unchanged. They decide nothing.
func TestPreferencesAreRecorded(t *testing.T) {
	t.Parallel()
	const robots = "User-agent: *\nContent-Signal: search=yes, ai-train=no\nContent-Usage: train-ai=n\nContent-Usage: /free/ train-ai=y, \"\u202e\n" +
		"Disallow: /private\n"
	o := e2e.NewOrigin(t, "preferences", robots)
	for _, path := range []string{"/a", "/b", "/free/a", "/private"} {
		o.Handle(path, wishing)
	}
	o.Handle("/none", e2e.TextPage("text/plain", "none"))
	p := e2e.StartProxy(t, e2e.Unpaced)
	cut := func(s string) string { // truncates in the same way as a record
		if len(s) <= 1024 {
			return s
		}
		return fmt.Sprintf("%s…(%d bytes)", s[:994], len(s))
	}
	want := e2e.Record{
		RobotsSignal: "search=yes, ai-train=no", RobotsUsage: "train-ai=n",
		RobotsTag: strings.Join(preferences["X-Robots-Tag"], ", "), ContentSignal: "search=yes, ai-train=no",
		ContentUsage: "train-ai=n\t;\", é\ufffd\u202e",
		TDMReserved:  cut(strings.Join(preferences["Tdm-Reservation"], ", ")), TDMPolicy: cut(preferences["Tdm-Policy"][0]),
	}
	for _, scheme := range e2e.Schemes {
		for path, h2 := range map[string]bool{"/a": false, "/b": true} {
			got := e2e.Get(t, p.Client(t, h2), o.URL(scheme, path))
			if got.Status != http.StatusOK || string(got.Body) != path {
				t.Fatalf("%s: %v", scheme, got)
			}
			for name, lines := range preferences {
				if !slices.Equal(got.Header[name], lines) {
					t.Errorf("%s%s: %s reached the client as %.100q", scheme, path, name, got.Header[name])
				}
			}
			wantPreferences(t, p, o.URL(scheme, path), want)
		}
		free := want
		free.RobotsUsage = "train-ai=y, \"\u202e"
		if got := e2e.Get(t, p.Client(t, false), o.URL(scheme, "/free/a")); got.Status != http.StatusOK {
			t.Errorf("%s: %v", scheme, got)
		}
		wantPreferences(t, p, o.URL(scheme, "/free/a"), free)

		e2e.Get(t, p.Client(t, false), o.URL(scheme, "/none"))
		wantPreferences(t, p, o.URL(scheme, "/none"), e2e.Record{RobotsSignal: want.RobotsSignal, RobotsUsage: want.RobotsUsage})
		e2e.WantOwn(t, e2e.Get(t, p.Client(t, false), o.URL(scheme, "/private")), http.StatusForbidden, "http_request_denied")
		wantPreferences(t, p, o.URL(scheme, "/private"), e2e.Record{RobotsSignal: want.RobotsSignal, RobotsUsage: want.RobotsUsage})

	}
	text, err := os.ReadFile(p.Audit)
	if err != nil {
		t.Fatal(err)
	}
	if i := strings.IndexFunc(string(text), func(r rune) bool { return r != '\n' && r < ' ' || r == '\u202e' || r == '\ufffd' }); i >= 0 {
		t.Errorf("unescaped in the audit: %q", text[i:min(len(text), i+40)])
	}
}

// The header of a response that changes the protocol is recorded as well.
func TestPreferencesOfAnUpgradeAreRecorded(t *testing.T) {
	t.Parallel()
	o := e2e.NewOrigin(t, "upgradewishes", "")
	o.Handle("/ws", func(w http.ResponseWriter, _ *http.Request) {
		e2e.ServeUpgrade(t, w, "TDM-Reservation: 1\r\nTDM-Reservation: 0\r\n", func(*bufio.ReadWriter) {})
	})
	p := e2e.StartProxy(t, e2e.Unpaced)
	for _, scheme := range e2e.Schemes {
		w, target := p.Dial(t), o.URL("http", "/ws")
		if scheme == "https" {
			w, target = p.Connect(t, o.Hostport("https")).Secure(t, p, o.Name), "/ws"
		}
		w.Send(t, "GET "+target+" HTTP/1.1", "Host: "+o.Hostport(scheme), "Connection: Upgrade", "Upgrade: websocket")
		if got := w.Receive(t, http.MethodGet); got.Status != http.StatusSwitchingProtocols || !slices.Equal(got.Header["Tdm-Reservation"], []string{"1", "0"}) {
			t.Errorf("%s: %v", scheme, got)
		}
		w.Close()
		if r := e2e.AwaitRecord(t, p.Audit, o.URL(scheme, "/ws")); r.Status != http.StatusSwitchingProtocols || r.TDMReserved != "1, 0" {
			t.Errorf("%s: record: %+v", scheme, r)
		}
	}
}

// wantPreferences compares the record of a URL with the preferences.
func wantPreferences(t *testing.T, p *e2e.Proxy, target string, want e2e.Record) {
	t.Helper()
	r := e2e.AwaitRecord(t, p.Audit, target)
	got := e2e.Record{
		RobotsSignal: r.RobotsSignal, RobotsUsage: r.RobotsUsage, RobotsTag: r.RobotsTag, ContentSignal: r.ContentSignal,
		ContentUsage: r.ContentUsage, TDMReserved: r.TDMReserved, TDMPolicy: r.TDMPolicy,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("record of %s (-want +got):\n%s", target, diff)
	}
}

// If an origin states no preferences, the record does not mention them.
func TestNoPreferencesAreRecordedWhereThereAreNone(t *testing.T) {
	t.Parallel()
	o := e2e.NewOrigin(t, "nowishes", "User-agent: *\nDisallow: /private\n")
	o.Handle("/a", e2e.TextPage("text/plain", "a"))
	p := e2e.StartProxy(t, e2e.Unpaced)
	for _, scheme := range e2e.Schemes {
		e2e.Get(t, p.Client(t, false), o.URL(scheme, "/a"))
		e2e.AwaitRecord(t, p.Audit, o.URL(scheme, "/a"))
	}
	text, err := os.ReadFile(p.Audit)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		var named map[string]json.RawMessage
		if err := json.Unmarshal([]byte(line), &named); err != nil {
			t.Fatal(err)
		}
		for _, name := range strings.Fields("robots_content_signal robots_content_usage x_robots_tag content_signal content_usage tdm_reservation tdm_policy") {
			if v, there := named[name]; there {
				t.Errorf("%s is recorded as %s", name, v)
			}
		}
	}
}
