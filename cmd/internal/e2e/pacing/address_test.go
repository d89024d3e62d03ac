package pacing

import (
	"net/http"
	"strconv"
	"sync"
	"testing"
	"time"

	"robotsproxy/cmd/internal/e2e"
)

// A server that goes by many names is one neighbour: the delay holds over all of
// them, whatever is spoken, and a server at another address waits for none.
func TestOneAddressOnePace(t *testing.T) {
	t.Parallel()
	near, far := e2e.NewOrigin(t, "near", e2e.SlowRobots), e2e.NewOrigin(t, "far", e2e.SlowRobots)
	urls := []string{near.URL("https", "/a"), far.URL("http", "/a")}
	for _, alias := range []string{"alias-a." + near.Name, "alias-b." + near.Name} {
		e2e.Names.Point(alias, near.Ip)
		urls = append(urls, "http://"+alias+":"+strconv.Itoa(near.Ports["http"])+"/a")
	}
	for _, o := range []*e2e.Origin{near, far} {
		o.Handle("/a", e2e.TextPage("text/plain", "a"))
	}
	p := e2e.StartProxy(t, e2e.Settings{"pace.per": "address"})
	client := p.Client(t, false)
	var all sync.WaitGroup
	for _, url := range urls {
		all.Go(func() {
			if got := e2e.Get(t, client, url); got.Status != http.StatusOK {
				t.Errorf("%s: %v", url, got)
			}
		})
	}
	all.Wait()
	pages := append(near.Pages("http"), near.Pages("https")...)
	if len(pages) != 3 {
		t.Errorf("%d pages arrived, want 3", len(pages))
	}
	e2e.WantGaps(t, pages, time.Second)                                // which sorts them
	for _, host := range []string{near.Name, "alias-a." + near.Name} { // the operator sees the pace that they share
		if got := e2e.API[e2e.APIHost](t, p, "GET", "hosts/"+host, "", 200); got.Pace == nil {
			t.Errorf("%s has no pace: %+v", host, got)
		}
	}
	if apart := far.Pages("http"); len(apart) != 1 || apart[0].At.After(pages[len(pages)-1].At) {
		t.Errorf("%d pages arrived at the other address, or later than at this one", len(apart))
	}
}
