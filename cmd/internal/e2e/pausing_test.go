package e2e

import (
	"net/http"
	"testing"
	"time"
)

// A host that asks to be left alone is, for as long as it says, and the records of
// the one that was told so and of the one that had to wait say it.
func TestAHostIsLeftAlone(t *testing.T) {
	t.Parallel()
	const pause = 4 * time.Second
	p := startProxy(t, settings{"pace.requests_per_second": 1000})
	for _, scheme := range schemes {
		o := newOrigin(t, "alone", "")
		o.handle("/busy", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "4")
			w.WriteHeader(http.StatusServiceUnavailable)
		})
		o.handle("/a", textPage("text/plain", "a"))
		client := p.client(t, true) // one tunnel: the CONNECT of another would wait, and leave no record
		if got := get(t, client, o.url(scheme, "/busy")); got.Status != http.StatusServiceUnavailable {
			t.Errorf("%v, want the origin's own 503", got)
		}
		if got := get(t, client, o.url(scheme, "/a")); got.Status != http.StatusOK {
			t.Errorf("%v", got)
		}
		wantPolite(t, o, scheme, 2, pause)
		for path, least := range map[string]float64{"/busy": 3.99, "/a": 1} {
			if r := awaitRecord(t, p.audit, o.url(scheme, path)); r.BackOff < least || r.BackOff > pause.Seconds() {
				t.Errorf("%s: back_off_s %v", r.URL, r.BackOff)
			}
		}
	}
}

// A host whose answers take over a second is asked no sooner than they take.
func TestASlowHostIsAskedLess(t *testing.T) {
	t.Parallel()
	const slow, fourth = 2 * time.Second, 4
	p := startProxy(t, settings{"pace.requests_per_second": 1000})
	for _, scheme := range schemes {
		o := newOrigin(t, "slow", "")
		o.handle("/slow", func(http.ResponseWriter, *http.Request) { <-time.After(slow) })
		o.handle("/a", textPage("text/plain", "a"))
		client := p.client(t, true)
		took := map[string]float64{} // seconds
		for _, path := range []string{"/slow", "/a?1", "/a?2"} {
			begun := time.Now()
			if got := get(t, client, o.url(scheme, path)); got.Status != http.StatusOK {
				t.Errorf("%v", got)
			}
			took[path] = time.Since(begun).Seconds()
		}
		average := slow - slow/fourth // that the quick answer has left
		pages := o.pages(scheme)
		if len(pages) != 3 {
			t.Fatalf("%d pages arrived", len(pages))
		}
		wantGaps(t, pages[:2], slow)
		wantGaps(t, pages[1:], average)
		for path, want := range map[string]struct{ least, most float64 }{
			"/slow": {0, 0},
			"/a?1":  {slow.Seconds(), took["/slow"]},
			"/a?2":  {average.Seconds(), took["/slow"] + (took["/a?1"]-took["/slow"])/fourth},
		} {
			r := awaitRecord(t, p.audit, o.url(scheme, path))
			if r.Slowed < want.least || r.Slowed > want.most+0.001 { // it is rounded
				t.Errorf("%s: slowed_s %v, want %v to %v", r.URL, r.Slowed, want.least, want.most)
			}
		}
	}
}
