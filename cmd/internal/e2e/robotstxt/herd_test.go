package robotstxt

import (
	"io"
	"net/http"
	"strconv"
	"testing"

	"robotsproxy/cmd/internal/e2e"
	"robotsproxy/robots/testkit"
)

// However many clients request an origin at once, its robots.txt is fetched once, and no
// request is sent before that.
func TestHerdFetchesRobotsOnce(t *testing.T) {
	t.Parallel()
	const herd = 300
	o := e2e.NewOrigin(t, "herd", "")
	release := make(chan struct{})
	o.Handle("/robots.txt", func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-release:
		case <-r.Context().Done():
		}
		io.WriteString(w, "User-agent: *\nDisallow: /private\n")
	})
	o.Handle("/a", e2e.TextPage("text/plain", "a"))
	p := e2e.StartProxy(t, e2e.Unpaced)
	clients := make([]*e2e.RawClient, herd)
	for i := range clients {
		clients[i] = p.Dial(t)
		path := "/a?"
		if i%10 == 0 {
			path = "/private?"
		}
		clients[i].Send(t, "GET "+o.URL("http", path+strconv.Itoa(i))+" HTTP/1.1", "Host: "+o.Hostport("http"))
	}
	testkit.Eventually(t, "robots.txt is asked for", func() bool { return len(o.Arrivals("http")) > 0 })
	close(release)
	count := map[int]int{}
	for _, w := range clients {
		count[w.Receive(t, http.MethodGet).Status]++
	}
	if count[http.StatusOK] != herd*9/10 || count[http.StatusForbidden] != herd/10 {
		t.Errorf("answers by status: %v", count)
	}
	e2e.WantPolite(t, o, "http", herd*9/10, 0)
	testkit.Eventually(t, "each has its record", func() bool { return len(e2e.ReadAudit(t, p.Audit)) == herd })
}

// The same inside tunnels, with many streams per connection.
func TestHerdOfStreamsFetchesRobotsOnce(t *testing.T) {
	t.Parallel()
	const herd = 100
	o := e2e.NewOrigin(t, "herdh2", "")
	release := make(chan struct{})
	o.Handle("/robots.txt", func(http.ResponseWriter, *http.Request) { <-release })
	o.Handle("/a", e2e.TextPage("text/plain", "a"))
	p := e2e.StartProxy(t, e2e.Unpaced)
	client := p.Client(t, true)
	answers := make(chan int, herd)
	for i := range herd {
		go func() { answers <- e2e.Get(t, client, o.URL("https", "/a?"+strconv.Itoa(i))).Status }()
	}
	testkit.Eventually(t, "robots.txt is asked for", func() bool { return len(o.Arrivals("https")) > 0 })
	close(release)
	for range herd {
		if status := testkit.Within(t, "an answer", answers); status != http.StatusOK {
			t.Errorf("status %d", status)
		}
	}
	e2e.WantPolite(t, o, "https", herd, 0)
}
