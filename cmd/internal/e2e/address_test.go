package e2e

import (
	"net/http"
	"sync"
	"testing"
	"time"
)

// A server that goes by many names is one neighbour: the delay holds over all of
// them, whatever is spoken, and a server at another address waits for none.
func TestOneAddressOnePace(t *testing.T) {
	t.Parallel()
	near, far := newOrigin(t, "near", slowRobots), newOrigin(t, "far", slowRobots)
	urls := []string{near.url("https", "/a"), far.url("http", "/a")}
	for _, alias := range []string{"alias-a." + near.Name, "alias-b." + near.Name} {
		names.point(alias, near.ip)
		urls = append(urls, "http://"+alias+":"+itoa(near.ports["http"])+"/a")
	}
	for _, o := range []*origin{near, far} {
		o.handle("/a", textPage("text/plain", "a"))
	}
	p := startProxy(t, settings{"pace.per": "address"})
	client := p.client(t, false)
	var all sync.WaitGroup
	for _, url := range urls {
		all.Go(func() {
			if got := get(t, client, url); got.Status != http.StatusOK {
				t.Errorf("%s: %v", url, got)
			}
		})
	}
	all.Wait()
	pages := append(near.pages("http"), near.pages("https")...)
	if len(pages) != 3 {
		t.Errorf("%d pages arrived, want 3", len(pages))
	}
	wantGaps(t, pages, time.Second)                                    // which sorts them
	for _, host := range []string{near.Name, "alias-a." + near.Name} { // the operator sees the pace that they share
		if got := api[apiHost](t, p, "GET", "hosts/"+host, "", 200); got.Pace == nil {
			t.Errorf("%s has no pace: %+v", host, got)
		}
	}
	if apart := far.pages("http"); len(apart) != 1 || apart[0].At.After(pages[len(pages)-1].At) {
		t.Errorf("%d pages arrived at the other address, or later than at this one", len(apart))
	}
}
