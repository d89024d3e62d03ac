package e2e

import (
	"io"
	"net/http"
	"testing"
)

// However many ask for an origin at once, its robots.txt is fetched once, and
// none of them goes before it is there.
func TestHerdFetchesRobotsOnce(t *testing.T) {
	t.Parallel()
	const herd = 1000
	o := newOrigin(t, "herd", "")
	release := make(chan struct{})
	o.handle("/robots.txt", func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-release:
		case <-r.Context().Done():
		}
		io.WriteString(w, "User-agent: *\nDisallow: /private\n")
	})
	o.handle("/a", textPage("text/plain", "a"))
	p := startProxy(t, outOfTheWay)
	clients := make([]*wireClient, herd)
	for i := range clients {
		clients[i] = p.dial(t)
		path := "/a?"
		if i%10 == 0 {
			path = "/private?"
		}
		clients[i].send(t, "GET "+o.url("http", path+itoa(i))+" HTTP/1.1", "Host: "+o.hostport("http"))
	}
	eventually(t, patience, "robots.txt is asked for", func() bool { return len(o.arrivals("http")) > 0 })
	close(release)
	count := map[int]int{}
	for _, w := range clients {
		count[w.receive(t, http.MethodGet).Status]++
	}
	if count[http.StatusOK] != herd*9/10 || count[http.StatusForbidden] != herd/10 {
		t.Errorf("answers by status: %v", count)
	}
	wantPolite(t, o, "http", herd*9/10, 0)
	eventually(t, patience, "each has its record", func() bool { return len(readAudit(t, p.audit)) == herd })
}

// The same inside tunnels, many streams to the connection.
func TestHerdOfStreamsFetchesRobotsOnce(t *testing.T) {
	t.Parallel()
	const herd = 200
	o := newOrigin(t, "herdh2", "")
	release := make(chan struct{})
	o.handle("/robots.txt", func(http.ResponseWriter, *http.Request) { <-release })
	o.handle("/a", textPage("text/plain", "a"))
	p := startProxy(t, outOfTheWay)
	client := p.client(t, true)
	answers := make(chan int, herd)
	for i := range herd {
		go func() { answers <- get(t, client, o.url("https", "/a?"+itoa(i))).Status }()
	}
	eventually(t, patience, "robots.txt is asked for", func() bool { return len(o.arrivals("https")) > 0 })
	close(release)
	for range herd {
		if status := within(t, patience, "an answer", answers); status != http.StatusOK {
			t.Errorf("status %d", status)
		}
	}
	wantPolite(t, o, "https", herd, 0)
}
