package pacing

import (
	"net/http"
	"testing"
	"time"

	"robotsproxy/cmd/internal/e2e"
	"robotsproxy/robots/testkit"
)

// A host that asks for a back-off gets no request for that time. The record of the
// request that got the 429 and the record of the one that waited both say so.
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
			client := p.Client(t, true) // one tunnel: another CONNECT would wait, and leave no record
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

// A host whose responses take more than a second gets requests no faster than it
// responds, until another path shows that only one is slow.
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

// askSlowHost requests, from a new host, a page that takes long, and two that do not.
func askSlowHost(t *testing.T, p *e2e.Proxy, scheme string) {
	const slow = 1500 * time.Millisecond
	o := e2e.NewOrigin(t, "slow", "")
	o.Handle("/slow", func(http.ResponseWriter, *http.Request) { <-time.After(slow) })
	o.Handle("/a", e2e.TextPage("text/plain", "a"))
	client := p.Client(t, true)
	took := map[string]float64{} // seconds
	paths := []string{"/slow?1", "/slow?2", "/a?1", "/a?2"}
	for _, path := range paths {
		begun := time.Now()
		if got := e2e.Get(t, client, o.URL(scheme, path)); got.Status != http.StatusOK {
			t.Errorf("%v", got)
		}
		took[path] = time.Since(begun).Seconds()
	}
	pages := o.Pages(scheme)
	if len(pages) != len(paths) {
		t.Fatalf("%d pages arrived", len(pages))
	}
	slowed := func(path string) float64 { return e2e.AwaitRecord(t, p.Audit, o.URL(scheme, path)).Slowed }
	// A late proxy starts to measure after the origin does, so only slowAnswer is a certain minimum.
	const slowAnswer, rounded = 1, 0.001
	for _, path := range []string{"/slow?1", "/a?2"} {
		if s := slowed(path); s != 0 {
			t.Errorf("%s: slowed_s %v, want 0", path, s)
		}
	}
	for _, path := range []string{"/slow?2", "/a?1"} {
		if s := slowed(path); s < slowAnswer || s > max(took["/slow?1"], took["/slow?2"])+rounded {
			t.Errorf("%s: slowed_s %v, want %v to %v", path, s, slowAnswer, took["/slow?1"])
		}
	}
	e2e.WantGaps(t, pages[1:3], time.Duration(slowed("/a?1")*float64(time.Second)))
}
