package pacing

import (
	"net/http"
	"testing"
	"time"

	"robotsproxy/cmd/internal/e2e"
	"robotsproxy/robots/testkit"
)

// A host that asks to be left alone is, for as long as it says, and the records of
// the one that was told so and of the one that had to wait say it.
func TestAHostIsLeftAlone(t *testing.T) {
	testkit.Long(t, "real clock")
	t.Parallel()
	const pause = 2 * time.Second
	p := e2e.StartProxy(t, quick)
	for _, scheme := range e2e.Schemes {
		t.Run(scheme, func(t *testing.T) {
			t.Parallel()
			o := e2e.NewOrigin(t, "alone", "")
			o.Handle("/busy", busyPage("2"))
			o.Handle("/a", e2e.TextPage("text/plain", "a"))
			client := p.Client(t, true) // one tunnel: the CONNECT of another would wait, and leave no record
			if got := e2e.Get(t, client, o.URL(scheme, "/busy")); got.Status != http.StatusServiceUnavailable {
				t.Errorf("%v, want the origin's own 503", got)
			}
			if got := e2e.Get(t, client, o.URL(scheme, "/a")); got.Status != http.StatusOK {
				t.Errorf("%v", got)
			}
			e2e.WantPolite(t, o, scheme, 2, pause)
			for path, least := range map[string]float64{"/busy": pause.Seconds() - 0.01, "/a": 0.001} {
				if r := e2e.AwaitRecord(t, p.Audit, o.URL(scheme, path)); r.BackOff < least || r.BackOff > pause.Seconds() {
					t.Errorf("%s: back_off_s %v", r.URL, r.BackOff)
				}
			}
		})
	}
}

// A host whose answers take over a second is asked no sooner than they take.
func TestASlowHostIsAskedLess(t *testing.T) {
	testkit.Long(t, "real clock")
	t.Parallel()
	p := e2e.StartProxy(t, quick)
	for _, scheme := range e2e.Schemes {
		t.Run(scheme, func(t *testing.T) {
			t.Parallel()
			askSlowHost(t, p, scheme)
		})
	}
}

// askSlowHost asks a host of its own for a page that takes long, and for two that do not.
func askSlowHost(t *testing.T, p *e2e.Proxy, scheme string) {
	const slow, fourth = 1500 * time.Millisecond, 4
	o := e2e.NewOrigin(t, "slow", "")
	o.Handle("/slow", func(http.ResponseWriter, *http.Request) { <-time.After(slow) })
	o.Handle("/a", e2e.TextPage("text/plain", "a"))
	client := p.Client(t, true)
	took := map[string]float64{} // seconds
	for _, path := range []string{"/slow", "/a?1", "/a?2"} {
		begun := time.Now()
		if got := e2e.Get(t, client, o.URL(scheme, path)); got.Status != http.StatusOK {
			t.Errorf("%v", got)
		}
		took[path] = time.Since(begun).Seconds()
	}
	average := slow - slow/fourth // that the quick answer has left
	pages := o.Pages(scheme)
	if len(pages) != 3 {
		t.Fatalf("%d pages arrived", len(pages))
	}
	e2e.WantGaps(t, pages[:2], slow)
	e2e.WantGaps(t, pages[1:], average)
	for path, want := range map[string]struct{ least, most float64 }{
		"/slow": {0, 0},
		"/a?1":  {slow.Seconds(), took["/slow"]},
		"/a?2":  {average.Seconds(), took["/slow"] + (took["/a?1"]-took["/slow"])/fourth},
	} {
		r := e2e.AwaitRecord(t, p.Audit, o.URL(scheme, path))
		if r.Slowed < want.least-0.002 || r.Slowed > want.most+0.001 { // it is rounded, and lacks the gap of quick
			t.Errorf("%s: slowed_s %v, want %v to %v", r.URL, r.Slowed, want.least, want.most)
		}
	}
}
