package e2e

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
)

// wishes are the headers by which an origin says what its content may be used for,
// with what a stranger may put into them.
var wishes = http.Header{
	"X-Robots-Tag":    {"noindex", `otherbot: "none", \`, "unavailable_after: 25 Jun 2027 15:00:00 PST"},
	"Content-Signal":  {"search=yes, ai-train=no"},
	"Content-Usage":   {"train-ai=n\t;\"", "\xc3\xa9\xff\xe2\x80\xae"},
	"Tdm-Reservation": slices.Repeat([]string{"1"}, 300),
	"Tdm-Policy":      {"https://site.test/" + strings.Repeat("a", 20_000)},
}

// wishing answers a page with them.
func wishing(w http.ResponseWriter, r *http.Request) {
	for name, lines := range wishes {
		w.Header()[name] = lines
	}
	textPage("text/plain", r.URL.Path)(w, r)
}

// What an origin wishes is in the record, within bounds, and reaches the client as it
// was; it decides nothing.
func TestWishesAreRecorded(t *testing.T) {
	t.Parallel()
	const robots = "User-agent: *\nContent-Signal: search=yes, ai-train=no\nContent-Usage: train-ai=n\nContent-Usage: /free/ train-ai=y, \"\u202e\n" +
		"Disallow: /private\n"
	o := newOrigin(t, "wishes", robots)
	for _, path := range []string{"/a", "/b", "/free/a", "/private"} {
		o.handle(path, wishing)
	}
	o.handle("/none", textPage("text/plain", "none"))
	p := startProxy(t, outOfTheWay)
	cut := func(s string) string { // as a record cuts it
		if len(s) <= 1024 {
			return s
		}
		return fmt.Sprintf("%s…(%d bytes)", s[:994], len(s))
	}
	want := record{
		RobotsSignal: "search=yes, ai-train=no", RobotsUsage: "train-ai=n",
		RobotsTag: strings.Join(wishes["X-Robots-Tag"], ", "), ContentSignal: "search=yes, ai-train=no",
		ContentUsage: "train-ai=n\t;\", é\ufffd\u202e",
		TDMReserved:  cut(strings.Join(wishes["Tdm-Reservation"], ", ")), TDMPolicy: cut(wishes["Tdm-Policy"][0]),
	}
	for _, scheme := range schemes {
		for path, h2 := range map[string]bool{"/a": false, "/b": true} {
			got := get(t, p.client(t, h2), o.url(scheme, path))
			if got.Status != http.StatusOK || string(got.Body) != path {
				t.Fatalf("%s: %v", scheme, got)
			}
			for name, lines := range wishes {
				if !slices.Equal(got.Header[name], lines) {
					t.Errorf("%s%s: %s reached the client as %.100q", scheme, path, name, got.Header[name])
				}
			}
			wantWishes(t, p, o.url(scheme, path), want)
		}
		free := want
		free.RobotsUsage = "train-ai=y, \"\u202e"
		if got := get(t, p.client(t, false), o.url(scheme, "/free/a")); got.Status != http.StatusOK {
			t.Errorf("%s: %v", scheme, got)
		}
		wantWishes(t, p, o.url(scheme, "/free/a"), free)

		get(t, p.client(t, false), o.url(scheme, "/none"))
		wantWishes(t, p, o.url(scheme, "/none"), record{RobotsSignal: want.RobotsSignal, RobotsUsage: want.RobotsUsage})
		wantOwn(t, get(t, p.client(t, false), o.url(scheme, "/private")), http.StatusForbidden, "http_request_denied")
		wantWishes(t, p, o.url(scheme, "/private"), record{RobotsSignal: want.RobotsSignal, RobotsUsage: want.RobotsUsage})

	}
	text, err := os.ReadFile(p.audit)
	if err != nil {
		t.Fatal(err)
	}
	if i := strings.IndexFunc(string(text), func(r rune) bool { return r != '\n' && r < ' ' || r == '\u202e' || r == '\ufffd' }); i >= 0 {
		t.Errorf("unescaped in the audit: %q", text[i:min(len(text), i+40)])
	}
}

// An answer that changes the protocol has a header as others.
func TestWishesOfAnUpgradeAreRecorded(t *testing.T) {
	t.Parallel()
	o := newOrigin(t, "upgradewishes", "")
	o.handle("/ws", func(w http.ResponseWriter, _ *http.Request) {
		serveUpgrade(t, w, "TDM-Reservation: 1\r\nTDM-Reservation: 0\r\n", func(*bufio.ReadWriter) {})
	})
	p := startProxy(t, outOfTheWay)
	for _, scheme := range schemes {
		w, target := p.dial(t), o.url("http", "/ws")
		if scheme == "https" {
			w, target = p.connect(t, o.hostport("https")).secure(t, p, o.Name), "/ws"
		}
		w.send(t, "GET "+target+" HTTP/1.1", "Host: "+o.hostport(scheme), "Connection: Upgrade", "Upgrade: websocket")
		if got := w.receive(t, http.MethodGet); got.Status != http.StatusSwitchingProtocols || !slices.Equal(got.Header["Tdm-Reservation"], []string{"1", "0"}) {
			t.Errorf("%s: %v", scheme, got)
		}
		w.Close()
		if r := awaitRecord(t, p.audit, o.url(scheme, "/ws")); r.Status != http.StatusSwitchingProtocols || r.TDMReserved != "1, 0" {
			t.Errorf("%s: record: %+v", scheme, r)
		}
	}
}

// wantWishes holds the record of a URL against the wishes in another.
func wantWishes(t *testing.T, p *proxy, target string, want record) {
	t.Helper()
	r := awaitRecord(t, p.audit, target)
	got := record{
		RobotsSignal: r.RobotsSignal, RobotsUsage: r.RobotsUsage, RobotsTag: r.RobotsTag, ContentSignal: r.ContentSignal,
		ContentUsage: r.ContentUsage, TDMReserved: r.TDMReserved, TDMPolicy: r.TDMPolicy,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("record of %s (-want +got):\n%s", target, diff)
	}
}

// Where nobody wishes anything, the record has no word of it.
func TestNoWishesAreRecordedWhereThereAreNone(t *testing.T) {
	t.Parallel()
	o := newOrigin(t, "nowishes", "User-agent: *\nDisallow: /private\n")
	o.handle("/a", textPage("text/plain", "a"))
	p := startProxy(t, outOfTheWay)
	for _, scheme := range schemes {
		get(t, p.client(t, false), o.url(scheme, "/a"))
		awaitRecord(t, p.audit, o.url(scheme, "/a"))
	}
	text, err := os.ReadFile(p.audit)
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
