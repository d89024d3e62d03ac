package pacing

import (
	"net/http"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"robotsproxy/cmd/internal/e2e"
	"robotsproxy/robots/testkit"
)

// lengthOf returns the length of the response to the nth request: some are empty, some
// long.
func lengthOf(n int) int { return n * 7919 % (64 << 10) }

// variedPage answers /a?n, the nth request, with lengthOf(n) bytes. Every third response
// takes some time, so that several are in flight at once. If mixed is set, it closes
// about half of its connections, whatever the client does.
func variedPage(mixed bool) http.HandlerFunc {
	body := e2e.RandomBytes(64 << 10)
	return func(w http.ResponseWriter, r *http.Request) {
		n, err := strconv.Atoi(r.URL.RawQuery)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		if mixed && n*2654435761>>16&1 == 0 {
			w.Header().Set("Connection", "close")
		}
		w.Header().Set("Content-Length", strconv.Itoa(lengthOf(n)))
		if n%3 == 0 {
			select {
			case <-time.After(time.Duration(n%10) * 20 * time.Millisecond):
			case <-r.Context().Done():
			}
		}
		w.Write(body[:lengthOf(n)])
	}
}

// Many clients, many new connections and both schemes of one host: no two requests arrive
// closer than the delay, and none is lost. BenchmarkPace sends more of them.
func TestManyClientsKeepTheDelay(t *testing.T) {
	testkit.Long(t, "real clock")
	t.Parallel()
	const clients, each, delay = 30, 4, 25 * time.Millisecond
	o := e2e.NewOrigin(t, "busy", "User-agent: *\nCrawl-delay: 0.025\n")
	o.Handle("/a", variedPage(true))
	p := e2e.StartProxy(t, e2e.Settings{"pace.requests_per_second": 1000, "pace.max_concurrent": 8})
	var all sync.WaitGroup
	var asked atomic.Int64
	for i, client := range p.Clients(t, clients) {
		all.Go(func() {
			for k := range each {
				n := int(asked.Add(1))
				got := e2e.Get(t, client, o.URL(e2e.Schemes[(i+k)%2], "/a?"+strconv.Itoa(n)))
				if got.Status != http.StatusOK || len(got.Body) != lengthOf(n) {
					t.Errorf("request %d: status %d, %d bytes; want 200 and %d", n, got.Status, len(got.Body), lengthOf(n))
				}
			}
		})
	}
	all.Wait()
	var fresh int
	for _, scheme := range e2e.Schemes {
		e2e.WantPolite(t, o, scheme, clients*each/2, delay)
	}
	pages := slices.Concat(o.Pages("http"), o.Pages("https"))
	e2e.WantGaps(t, pages, delay)
	// Otherwise the test would not cover new connections, or kept ones.
	seen := map[int]bool{}
	for _, h := range pages {
		if !seen[h.Conn] {
			seen[h.Conn] = true
			fresh++
		}
	}
	if fresh < len(pages)/3 || fresh > len(pages)*2/3 {
		t.Errorf("%d of %d requests came on new connections, want about half", fresh, len(pages))
	}
}
