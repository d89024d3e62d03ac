package admin

import (
	"errors"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"robotsproxy/policy/stops"
	"robotsproxy/robots/testkit"
)

// A resumed is the answer to the end of a pause.
type resumed struct {
	Host  string       `json:"host"`
	Ended bool         `json:"ended"`
	Left  []pauseState `json:"still_paused"`
}

// TestPauseByAPI: pauses of a host and of all begin, change and end, and each is stored and recorded with who and why.
func TestPauseByAPI(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		began := time.Now().UTC()
		p := decode[pauseState](t, f.do("POST", "/api/v1/hosts/A.test/pause", `{"reason":"they asked","until":"2h","by":"alice"}`), 200)
		want := pauseState{"a.test", "they asked", "alice (as stated), API from 192.0.2.1", began, began.Add(2 * time.Hour)}
		if p != want {
			t.Errorf("%+v, want %+v", p, want)
		}
		until := began.Add(24 * time.Hour).Truncate(time.Second)
		all := decode[pauseState](t, f.do("POST", "/api/v1/pause", `{"reason":"too loud","until":"`+until.Format(time.RFC3339)+`"}`), 200)
		if all != (pauseState{"", "too loud", "API from 192.0.2.1", began, until}) {
			t.Errorf("%+v", all)
		}
		list := decode[struct{ Pauses []pauseState }](t, f.do("GET", "/api/v1/pause", ""), 200)
		if len(list.Pauses) != 2 || list.Pauses[0] != all || list.Pauses[1] != want {
			t.Errorf("%+v", list)
		}
		// A host without requests is known by its pause, one that is not paused itself by its requests.
		f.record("b.test", "allow", "no-rule", "https://b.test/", "Bot")
		for host, reason := range map[string]string{"a.test": "too loud", "b.test": "too loud"} {
			got := decode[struct{ Pause pauseState }](t, f.do("GET", "/api/v1/hosts/"+host, ""), 200)
			if got.Pause.Reason != reason {
				t.Errorf("%s: %+v", host, got)
			}
		}
		decode[problemDetails](t, f.do("GET", "/api/v1/hosts/c.test", ""), 404)
		hosts := decode[struct{ Hosts []struct{ Host string } }](t, f.do("GET", "/api/v1/hosts?sort=paused", ""), 200)
		if len(hosts.Hosts) != 2 {
			t.Errorf("%+v", hosts)
		}
		got := decode[resumed](t, f.do("DELETE", "/api/v1/hosts/a.test/pause", `{"by":"bob"}`), 200)
		if got.Host != "a.test" || !got.Ended || len(got.Left) != 1 || got.Left[0] != all {
			t.Errorf("%+v", got)
		}
		if got := decode[resumed](t, f.do("DELETE", "/api/v1/hosts/a.test/pause", ""), 200); got.Ended || len(got.Left) != 1 {
			t.Errorf("%+v", got)
		}
		decode[pauseState](t, f.do("POST", "/api/v1/hosts/b.test/pause", `{"reason":"x"}`), 200)
		if got := decode[resumed](t, f.do("DELETE", "/api/v1/pause", "{}"), 200); !got.Ended || len(got.Left) != 1 || got.Left[0].Host != "b.test" || !got.Left[0].Until.IsZero() {
			t.Errorf("%+v", got)
		}
		var events []string
		for _, s := range f.paused {
			what := "paused "
			if s.Ended {
				what = "resumed "
			}
			events = append(events, what+s.Host+" "+s.Reason+" "+s.By)
		}
		if got := strings.Join(events, "; "); got != "paused a.test they asked alice (as stated), API from 192.0.2.1; paused  too loud API from 192.0.2.1; "+
			"resumed a.test they asked bob (as stated), API from 192.0.2.1; paused b.test x API from 192.0.2.1; resumed  too loud API from 192.0.2.1" {
			t.Errorf("events: %s", got)
		}
	})
}

// TestMistakesInAPause are refused, and pause nothing.
func TestMistakesInAPause(t *testing.T) {
	f := newFixture(t)
	for body, want := range map[string]string{
		``:                          "not the JSON object",
		`{}`:                        "reason: required",
		`{"reason":""}`:             "reason: required",
		`{"reason":"x","for":"2h"}`: "not the JSON object",
		`{"reason":"a\nb"}`:         "one line",
		`{"reason":"` + strings.Repeat("x", stops.MaxReason+1) + `"}`:      "at most 500 bytes",
		`{"reason":"x","until":"soon"}`:                                    `until: must be a time or a duration`,
		`{"reason":"x","until":"2027-01-31"}`:                              `until: must be a time or a duration`,
		`{"reason":"x","until":"-1h"}`:                                     "in the future",
		`{"reason":"x","until":"0"}`:                                       "in the future",
		`{"reason":"x","until":"2001-01-01T00:00:00Z"}`:                    "in the future",
		`{"reason":"x","until":"9999-01-01T00:00:00Z"}`:                    "within ten years",
		`{"reason":"x","until":"2562047h"}`:                                "within ten years",
		`{"reason":"x","by":"a\u202eb"}`:                                   "by: must be one line",
		`{"reason":"x","by":"` + strings.Repeat("x", maxOperator+1) + `"}`: "by: must be one line",
	} {
		for _, path := range []string{"/api/v1/pause", "/api/v1/hosts/a.test/pause"} {
			if got := decode[problemDetails](t, f.do("POST", path, body), 400); !strings.Contains(got.Detail, want) {
				t.Errorf("%.60s: %+v, want %q", body, got, want)
			}
		}
	}
	decode[problemDetails](t, f.do("POST", "/api/v1/hosts/a%20b/pause", `{"reason":"x"}`), 400)
	decode[problemDetails](t, f.do("DELETE", "/api/v1/hosts/a.test/pause", `{"reason":"x"}`), 400)
	decode[problemDetails](t, f.do("DELETE", "/api/v1/pause", `{"by":"\u0007"}`), 400)
	if f.stops.All() != nil || f.paused != nil {
		t.Errorf("%+v, %+v", f.stops.All(), f.paused)
	}
	for i := range stops.MaxPauses {
		_, err := f.stops.Put(stops.Stop{Kind: stops.Paused, Host: "h" + strings.Repeat("x", i%50) + string(rune('a'+i/50)) + ".test", Reason: "x"})
		testkit.Must(t, err)
	}
	if got := decode[problemDetails](t, f.do("POST", "/api/v1/pause", `{"reason":"x"}`), 409); !strings.Contains(got.Detail, "1000 pauses") {
		t.Errorf("%+v", got)
	}
}

// TestPauseThatIsNotKept holds, and the operator learns that it is not stored or recorded.
func TestPauseThatIsNotKept(t *testing.T) {
	for name, fail := range map[string]func(*fixture, error){
		"not stored":   func(f *fixture, err error) { f.saveErr = err },
		"not recorded": func(f *fixture, err error) { f.auditErr = err },
	} {
		f := newFixture(t)
		fail(f, errors.New("disk full"))
		if got := decode[problemDetails](t, f.do("POST", "/api/v1/pause", `{"reason":"x"}`), 503); got.Detail != pauseNotKept {
			t.Errorf("%s: %+v", name, got)
		}
		if _, ok := f.stops.Of(stops.Paused, "a.test", ""); !ok || len(f.paused) != 1 {
			t.Errorf("%s: it does not hold", name)
		}
		if got := decode[problemDetails](t, f.do("DELETE", "/api/v1/pause", ""), 503); got.Detail != endNotKept {
			t.Errorf("%s: %+v", name, got)
		}
		if _, ok := f.stops.Of(stops.Paused, "a.test", ""); ok || len(f.paused) != 2 {
			t.Errorf("%s: it holds", name)
		}
	}
}

// TestPauseByForm: the buttons work without scripts, and what they did is shown on the page of the host, in the list of hosts and, for a
// pause of all, on every page.
func TestPauseByForm(t *testing.T) {
	f := newFixture(t)
	post := func(path, body string) string {
		t.Helper()
		w := f.do("POST", path, body, "Content-Type", "application/x-www-form-urlencoded")
		if w.Code != http.StatusSeeOther {
			t.Errorf("%s %s: %d", path, body, w.Code)
		}
		return w.Header().Get("Location")
	}
	page := func(path string) string { return f.do("GET", path, "").Body.String() }
	if got := page("/hosts/new.test"); !strings.Contains(got, `<form class="acts fields" method="post" action="/hosts/new.test">`) {
		t.Errorf("the page of an unknown host has no form:\n%s", got)
	}
	reason := url.QueryEscape("<b>they asked")
	for _, c := range []struct{ path, body, want string }{
		{"/hosts/a.test", "do=pause&reason=&until=", "/hosts/a.test?done=bad-pause"},
		{"/hosts/a.test", "do=pause&reason=x&until=soon", "/hosts/a.test?done=bad-pause"},
		{"/hosts/a.test", "do=resume", "/hosts/a.test?done=no-pause"},
		{"/hosts/A.test", "do=pause&until=2h&reason=" + reason, "/hosts/a.test?done=paused"},
		{"/pause", "do=resume", "/hosts?done=no-pause"},
		{"/pause", "do=pause&until=&reason=too+loud", "/hosts?done=paused"},
	} {
		if got := post(c.path, c.body); got != c.want {
			t.Errorf("%s %s leads to %q", c.path, c.body, got)
		}
		if page := page(c.want); !strings.Contains(page, `role="status"`) {
			t.Errorf("%s says nothing", c.want)
		}
	}
	if got := page("/hosts/a.test"); !strings.Contains(got, "Requests to this host are paused (for 1 h 59 min)") || !strings.Contains(got, "&lt;b&gt;they asked") ||
		!strings.Contains(got, "dashboard from 192.0.2.1") {
		t.Errorf("the page of the host:\n%s", got)
	}
	if got := page("/hosts"); !strings.Contains(got, "</svg>Paused</span>") {
		t.Errorf("the list of hosts:\n%s", got)
	}
	for _, path := range []string{"/", "/hosts", "/hosts/b.test", "/exceptions", "/clients", "/explain", "/about", "/state"} {
		if got := page(path); !strings.Contains(got, "Requests to all hosts are paused (no end set)") || !strings.Contains(got, "too loud") ||
			!strings.Contains(got, "Resume all requests") || !strings.Contains(got, "All requests are paused") {
			t.Errorf("%s does not show the pause of all hosts", path)
		}
	}
	if got := page("/"); !strings.Contains(got, "1 paused, 0 in back-off") {
		t.Errorf("the overview:\n%s", got)
	}
	if got := post("/pause", "do=resume"); got != "/hosts?done=resumed" {
		t.Errorf("the button leads to %q", got)
	}
	if got := post("/hosts/a.test", "do=resume"); got != "/hosts/a.test?done=resumed" {
		t.Errorf("the button leads to %q", got)
	}
	if got := page("/hosts/a.test"); strings.Contains(got, "are paused") || len(f.paused) != 4 {
		t.Errorf("after the end: %+v\n%s", f.paused, got)
	}
	f.saveErr = errors.New("disk full")
	if a, b := post("/pause", "do=pause&reason=x"), post("/pause", "do=resume"); a != "/hosts?done=pause-lost" || b != "/hosts?done=end-lost" {
		t.Errorf("the buttons lead to %q, %q", a, b)
	}
	if w := f.do("POST", "/pause", "do=nothing", "Content-Type", "application/x-www-form-urlencoded"); w.Code != 400 {
		t.Errorf("an unknown action: %d", w.Code)
	}
	if w := f.do("POST", "/hosts/a%20b", "do=pause&reason=x", "Content-Type", "application/x-www-form-urlencoded"); w.Code != 400 {
		t.Errorf("an invalid host: %d", w.Code)
	}
	if w := f.do("POST", "/pause", "do=pause&reason=x", "Content-Type", "application/x-www-form-urlencoded", "Origin", "http://evil.test"); w.Code != 403 {
		t.Errorf("a page of another origin: %d", w.Code)
	}
}
