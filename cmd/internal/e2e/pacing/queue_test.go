package pacing

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"robotsproxy/cmd/internal/e2e"
	"robotsproxy/robots/testkit"
)

// onePlace is a pace at which requests are sent one after the other, without a delay.
var onePlace = e2e.Unpaced.With(e2e.Settings{"pace.max_concurrent": 1})

// gatePage holds each response until it is opened, and records the arrivals.
func gatePage() (page http.HandlerFunc, arrived <-chan string, open func()) {
	paths, release := make(chan string, 1000), make(chan struct{})
	return func(w http.ResponseWriter, r *http.Request) {
		paths <- r.URL.RawQuery
		select {
		case <-release:
		case <-r.Context().Done():
		}
	}, paths, sync.OnceFunc(func() { close(release) })
}

// queries returns the queries of arrivals, in their order.
func queries(hits []e2e.Hit) (all []string) {
	for _, h := range hits {
		_, query, _ := strings.Cut(h.Path, "?")
		all = append(all, query)
	}
	return all
}

// Clients take turns: a client with many queued requests delays another client's five
// requests by five of its own.
func TestGreedyClientDoesNotStarveOthers(t *testing.T) {
	t.Parallel()
	const many, few = 60, 5
	o := e2e.NewOrigin(t, "greedy", "")
	page, arrived, open := gatePage()
	o.Handle("/a", page)
	p := e2e.StartProxy(t, onePlace.With(e2e.Named("127.0.3.2")))
	greedy, modest := e2e.From(t, p.Client(t, false), "127.0.3.1"), e2e.From(t, p.Client(t, false), "127.0.3.2")
	var all sync.WaitGroup
	defer all.Wait()
	defer open()
	ask := func(c *http.Client, query string) {
		all.Go(func() {
			if got := e2e.Get(t, c, o.URL("http", "/a?"+query)); got.Status != http.StatusOK {
				t.Errorf("%s: %v", query, got)
			}
		})
	}
	ask(greedy, "first")
	testkit.Within(t, "the first is at the origin", arrived)
	for range many - 1 {
		ask(greedy, "greedy")
	}
	p.AwaitMetric(t, e2e.Waiting, many-1)
	for range few {
		ask(modest, "modest")
	}
	p.AwaitMetric(t, e2e.Waiting, many-1+few)
	open()
	all.Wait()
	order := queries(o.Pages("http"))
	if len(order) != many+few {
		t.Fatalf("%d pages arrived, want %d", len(order), many+few)
	}
	last := 0
	for i, who := range order {
		if who == "modest" {
			last = i
		}
	}
	if last > 2*few+1 {
		t.Errorf("the last of %d requests came behind %d others; the first were %v", few, last, order[:2*few+2])
	}
}

// abandon begins to request a URL. leave disconnects and waits until that is done.
func abandon(t testing.TB, c *http.Client, url string) (leave func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		resp, err := c.Do(req)
		if err == nil {
			resp.Body.Close()
			t.Errorf("%s was answered with %s before its client left", url, resp.Status)
		}
	}()
	return func() {
		cancel()
		<-gone
	}
}

// A request whose client leaves, from the queue or during the response, has no effect:
// its slot is free at once, and if it was not sent yet, it never is.
func TestLeaversFreeTheirPlaces(t *testing.T) {
	t.Parallel()
	p := e2e.StartProxy(t, onePlace.With(e2e.Settings{"pace.max_queue": 3}))
	for _, way := range []struct {
		name, scheme string
		h2           bool
	}{{"http", "http", false}, {"https by h1", "https", false}, {"https by h2", "https", true}} {
		t.Run(way.name, func(t *testing.T) {
			o := e2e.NewOrigin(t, "leavers", "")
			page, arrived, open := gatePage()
			o.Handle("/a", page)
			url := func(query string) string { return o.URL(way.scheme, "/a?"+query) }

			// Each one is in its tunnel before the slot is taken, because CONNECT needs a
			// slot too.
			o.Handle("/hello", e2e.TextPage("text/plain", "hello"))
			clients := make([]*http.Client, 5)
			for i := range clients {
				clients[i] = p.Client(t, way.h2)
				e2e.Get(t, clients[i], o.URL(way.scheme, "/hello"))
			}
			p.AwaitMetric(t, e2e.UnderWay, 0)

			leaveOrigin := abandon(t, clients[0], url("held"))
			testkit.Within(t, "the first is at the origin", arrived)
			var leaveQueue []func()
			for i := range 3 {
				leaveQueue = append(leaveQueue, abandon(t, clients[1+i], url("queued"+strconv.Itoa(i))))
			}
			p.AwaitMetric(t, e2e.Waiting, 3)
			e2e.WantOwn(t, e2e.Get(t, clients[4], url("refused")), http.StatusTooManyRequests, "connection_limit_reached")
			for _, leave := range leaveQueue {
				leave()
			}
			p.AwaitMetric(t, e2e.Waiting, 0)

			var next sync.WaitGroup
			defer next.Wait()
			defer open()
			defer leaveOrigin()
			next.Go(func() {
				if got := e2e.Get(t, clients[4], url("next")); got.Status != http.StatusOK {
					t.Errorf("the next: %v", got)
				}
			})
			p.AwaitMetric(t, e2e.Waiting, 1)
			leaveOrigin()
			if got := testkit.Within(t, "the next is at the origin", arrived); got != "next" {
				t.Errorf("%s went to the origin", got)
			}
			open()
			next.Wait()
			pages := slices.DeleteFunc(queries(o.Pages(way.scheme)), func(q string) bool { return q == "" })
			if !slices.Equal(pages, []string{"held", "next"}) {
				t.Errorf("at the origin were %v", pages)
			}
		})
	}
}

// A client that returns after Retry-After is served, and Retry-After is not too long.
func TestRetryAfterIsTrue(t *testing.T) {
	testkit.Long(t, "real clock")
	t.Parallel()
	for _, c := range []struct {
		name   string
		own    e2e.Settings
		queued int
		most   int // seconds
	}{
		{"max_wait", e2e.Settings{"pace.requests_per_second": 0.4, "pace.max_wait": "100ms"}, 0, 3},
		{"max_queue", e2e.Settings{"pace.requests_per_second": 0.4, "pace.max_queue": 1}, 1, 5},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			o := e2e.NewOrigin(t, "retry", "")
			o.Handle("/a", e2e.TextPage("text/plain", "a"))
			p := e2e.StartProxy(t, c.own)
			client := p.Client(t, false)
			e2e.Get(t, client, o.URL("http", "/a?first"))
			var all sync.WaitGroup
			for range c.queued {
				all.Go(func() { e2e.Get(t, client, o.URL("http", "/a?queued")) })
			}
			p.AwaitMetric(t, e2e.Waiting, float64(c.queued))
			got := e2e.Get(t, client, o.URL("http", "/a?refused"))
			e2e.WantOwn(t, got, http.StatusTooManyRequests, "connection_limit_reached")
			after, err := strconv.Atoi(got.Header.Get("Retry-After"))
			if err != nil || after < 1 || after > c.most {
				t.Fatalf("Retry-After %q, want up to %d", got.Header.Get("Retry-After"), c.most)
			}
			<-time.After(time.Duration(after) * time.Second) // the Retry-After of the response
			if got := e2e.Get(t, client, o.URL("http", "/a?again")); got.Status != http.StatusOK {
				t.Errorf("who came again when told to: %v", got)
			}
			all.Wait()
			if n := len(o.Pages("http")); n != c.queued+2 {
				t.Errorf("%d pages arrived, want %d", n, c.queued+2)
			}
		})
	}
}

// A long download holds its own slot and no other.
func TestPagesGoOnBesideADownload(t *testing.T) {
	t.Parallel()
	const half, pages = 1 << 20, 50
	body := e2e.RandomBytes(2 * half)
	for _, scheme := range e2e.Schemes {
		t.Run(scheme, func(t *testing.T) {
			t.Parallel()
			o := e2e.NewOrigin(t, "download", "")
			release := make(chan struct{})
			o.Handle("/large", e2e.HeldPage("application/octet-stream", string(body[:half]), string(body[half:]), release))
			o.Handle("/small", e2e.TextPage("text/plain", "small"))
			p := e2e.StartProxy(t, e2e.Unpaced.With(e2e.Settings{"pace.max_concurrent": 2}))
			resp, err := p.Client(t, false).Get(o.URL(scheme, "/large"))
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			first := make([]byte, half)
			if _, err := io.ReadFull(resp.Body, first); err != nil {
				t.Fatal(err)
			}
			p.AwaitMetric(t, e2e.UnderWay, 1)
			client := p.Client(t, false)
			for i := range pages {
				if got := e2e.Get(t, client, o.URL(scheme, "/small?"+strconv.Itoa(i))); got.Status != http.StatusOK || string(got.Body) != "small" {
					t.Fatalf("page %d beside the download: %v", i, got)
				}
			}
			close(release)
			rest, err := io.ReadAll(resp.Body)
			if err != nil || !bytes.Equal(append(first, rest...), body) {
				t.Errorf("the download: %d bytes, %v; want %d, identical", half+len(rest), err, len(body))
			}
		})
	}
}
