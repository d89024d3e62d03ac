package audit

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"robotsproxy/robots"
)

func TestLineHasThePreferences(t *testing.T) {
	r := allowed()
	r.Decision.Signals = robots.Signals{Search: robots.Yes, AITrain: robots.No}
	r.Decision.ContentUsage = "train-ai=n"
	h := make(http.Header)
	for _, line := range [][2]string{
		{"x-robots-tag", "noindex"}, {"X-ROBOTS-TAG", `foobot: "none"`}, {"Content-Signal", "ai-train=no"},
		{"Content-Usage", "train-ai=n"}, {"TDM-Reservation", "1"}, {"TDM-Policy", "https://site.test/tdm.json"},
	} {
		h.Add(line[0], line[1])
	}
	r.Preferences = PreferencesOf(h)
	const want = `"robots_sha256":"ab","robots_content_signal":"search=yes, ai-train=no","robots_content_usage":"train-ai=n",` +
		`"crawl_delay_s":10,"crawl_delay_asked_s":100,"wait_ms":1.5,"x_robots_tag":"noindex, foobot: \"none\"","content_signal":"ai-train=no",` +
		`"content_usage":"train-ai=n","tdm_reservation":"1","tdm_policy":"https://site.test/tdm.json","status":200,`
	if got := encoded(r, Options{}); !strings.Contains(got, want) {
		t.Errorf("got %s\nwant %s in it", got, want)
	}
}

// The tdm-policy of tdmrep.json is recorded unless the response has one, or a reservation of its own.
func TestLineHasTheTDMPolicy(t *testing.T) {
	for _, c := range []struct{ file, reservation, policy, want string }{
		{"", "", "", ""},
		{"https://a.test/file", "", "", "https://a.test/file"},
		{"https://a.test/file", "1", "", ""},
		{"https://a.test/file", "", "https://a.test/header", "https://a.test/header"},
		{"", "1", "https://a.test/header", "https://a.test/header"},
		{"https://a.test/\x1b" + strings.Repeat("x", 5000), "", "", `https://a.test/\u001bxxx`},
	} {
		r := allowed()
		r.Decision.TDMPolicy = c.file
		r.Preferences = PreferencesOf(http.Header{"Tdm-Reservation": {c.reservation}, "Tdm-Policy": {c.policy}})
		line := encoded(r, Options{})
		if want := `"tdm_policy":"` + c.want; strings.Contains(line, `"tdm_policy"`) != (c.want != "") || c.want != "" && !strings.Contains(line, want) || len(line) > 4<<10 {
			t.Errorf("%+v: %s", c, line)
		}
	}
}

func TestPreferencesAreBounded(t *testing.T) {
	long := strings.Repeat("0123456789", maxPreference)
	for _, c := range []struct {
		name  string
		lines []string
		want  string
		whole int
	}{
		{"none", nil, "", 0},
		{"an empty one", []string{""}, "", 0},
		{"an empty one first", []string{"", "b"}, "b", 1},
		{"as long as may be", []string{long[:maxPreference]}, long[:maxPreference], maxPreference},
		{"one more", []string{long[:maxPreference+1]}, long[:maxPreference], maxPreference + 1},
		{"cut in a later line", []string{"noindex", long}, "noindex, " + long[:maxPreference-9], len(long) + 9},
		{"cut at the comma", []string{long[:maxPreference-1], "b"}, long[:maxPreference-1] + ",", maxPreference + 2},
		{"cut behind it", []string{long[:maxPreference-2], "b"}, long[:maxPreference-2] + ", ", maxPreference + 1},
		{"many lines", strings.Split(strings.Repeat("a", 10_000), ""), strings.Repeat("a, ", maxPreference)[:maxPreference], 29_998},
	} {
		if got := PreferencesOf(http.Header{"X-Robots-Tag": c.lines}).RobotsTag; got != (Preference{c.want, c.whole}) {
			t.Errorf("%s: %d of %d bytes, want %d of %d: %.80q", c.name, len(got.Text), got.Bytes, len(c.want), c.whole, got.Text)
		}
	}
	r := allowed()
	r.Preferences = PreferencesOf(http.Header{"Tdm-Policy": {"a", long}})
	if got := encoded(r, Options{}); !strings.Contains(got, `"tdm_policy":"a, 0123`) || !strings.Contains(got, fmt.Sprintf(`…(%d bytes)","status"`, len(long)+3)) {
		t.Errorf("a TDM-Policy of %d bytes: %s", len(long)+3, got)
	}
}

// TestPreferencesCannotForgeALine: what a header may hold, an origin may send.
func TestPreferencesCannotForgeALine(t *testing.T) {
	r := allowed()
	const hostile = "no\"index\\\",\"status\":1}\t\x1b[2J\u202e\u009bé\xff"
	w := Preference{hostile, len(hostile)}
	r.Preferences = Preferences{w, w, w, w, w, w, w}
	r.Decision.ContentUsage = hostile
	b := []byte(encoded(r, Options{}) + "}")
	for _, c := range string(b[:len(b)-1]) {
		if c < ' ' || c == 0x9b || c == 0x202e {
			t.Errorf("%U stands in the line unescaped", c)
		}
	}
	var line map[string]any
	if err := json.Unmarshal(b, &line); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"x_robots_tag", "content_signal", "content_usage", "tdm_reservation", "tdm_policy", "license", "crawler_price", "robots_content_usage"} {
		if got, want := line[name], strings.ToValidUTF8(hostile, "\ufffd"); got != want {
			t.Errorf("%s read back as %q, want %q", name, got, want)
		}
	}
	if line["status"] != 200.0 {
		t.Errorf("status %v", line["status"])
	}
}

// plainAnswer has no usage preferences, as most.
var plainAnswer = http.Header{"Content-Type": {"text/html"}, "Date": {"now"}, "Server": {"x"}, "Content-Length": {"5"}, "Etag": {"a"}, "Vary": {"b"}, "Age": {"0"}, "Cache-Control": {"c"}, "Link": {"d"}}

func TestPreferencesOfPlainAnswersAllocateNothing(t *testing.T) {
	if n := testing.AllocsPerRun(100, func() { PreferencesOf(plainAnswer) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkPreferencesOf(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		if PreferencesOf(plainAnswer) != (Preferences{}) {
			b.Fatal("there are some")
		}
	}
}
