package pacing

import (
	"net/http"
	"strconv"
	"testing"

	"robotsproxy/cmd/internal/e2e"
)

// With pace.per: address, all names and schemes of one server share a pace: only the first
// request is sent. A server at another address is independent.
func TestOneAddressOnePace(t *testing.T) {
	t.Parallel()
	near, far := e2e.NewOrigin(t, "near", hourRobots), e2e.NewOrigin(t, "far", hourRobots)
	urls := []string{near.URL("https", "/a")}
	for _, alias := range []string{"alias-a." + near.Name, "alias-b." + near.Name} {
		e2e.Names.Point(alias, near.Ip)
		urls = append(urls, "http://"+alias+":"+strconv.Itoa(near.Ports["http"])+"/a")
	}
	for _, o := range []*e2e.Origin{near, far} {
		o.Handle("/a", e2e.TextPage("text/plain", "a"))
	}
	p := e2e.StartProxy(t, refusing.With(e2e.Settings{"pace.per": "address"}))
	client := p.Client(t, false)
	for i, url := range urls {
		if got := e2e.Get(t, client, url); i == 0 && got.Status != http.StatusOK {
			t.Errorf("%s: %v", url, got)
		} else if i > 0 {
			e2e.WantOwn(t, got, http.StatusTooManyRequests, "connection_limit_reached")
		}
	}
	if got := e2e.Get(t, client, far.URL("http", "/a")); got.Status != http.StatusOK {
		t.Errorf("at the other address: %v", got)
	}
	if n := len(near.Pages("http")) + len(near.Pages("https")); n != 1 {
		t.Errorf("%d pages arrived, want 1", n)
	}
	for _, host := range []string{near.Name, "alias-a." + near.Name} { // the operator sees the pace that they share
		if got := e2e.API[e2e.APIHost](t, p, "GET", "hosts/"+host, "", 200); got.Pace == nil {
			t.Errorf("%s has no pace: %+v", host, got)
		}
	}
}
