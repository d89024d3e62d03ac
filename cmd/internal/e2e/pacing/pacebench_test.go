//go:build linux && !race

package pacing

import (
	"context"
	"fmt"
	"io"
	"math"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"robotsproxy/cmd/internal/e2e"
)

// A demand is many clients that always wait for one host, and the number of requests to
// measure.
type demand struct {
	delay  time.Duration
	scheme string
	mixed  bool // the origin closes about half of its connections
	pages  int
}

func (d demand) String() string {
	kind := "warm"
	if d.mixed {
		kind = "mixed"
	}
	return fmt.Sprintf("%v/%s/%s", d.delay, d.scheme, kind)
}

// A yield is the result of a demand at the origin.
type yield struct {
	share float64       // percentage of the rate that the delay permits
	least time.Duration // minimum time between two arrivals
}

// meet runs all demands at the same time, each with its own host.
func meet(b *testing.B, clients []*http.Client, demands ...demand) map[demand]yield {
	var mu sync.Mutex // guards yields
	yields := map[demand]yield{}
	var all sync.WaitGroup
	for _, d := range demands {
		o := e2e.NewOrigin(b, "pace", fmt.Sprintf("User-agent: *\nCrawl-delay: %v\n", d.delay.Seconds()))
		all.Go(func() {
			y := d.meet(b, clients, o)
			mu.Lock()
			defer mu.Unlock()
			yields[d] = y
		})
	}
	all.Wait()
	return yields
}

// meet makes the clients send requests until enough pages have arrived.
func (d demand) meet(b *testing.B, clients []*http.Client, o *e2e.Origin) yield {
	page := variedPage(d.mixed)
	var came, asked atomic.Int64
	ctx, stop := context.WithCancel(b.Context())
	defer stop()
	o.Handle("/a", func(w http.ResponseWriter, r *http.Request) {
		if came.Add(1) == int64(d.pages) {
			stop()
		}
		page(w, r)
	})
	var all sync.WaitGroup
	for _, client := range clients {
		all.Go(func() {
			for ctx.Err() == nil {
				visit(b, ctx, client, o.URL(d.scheme, "/a?"+strconv.Itoa(int(asked.Add(1)))))
			}
		})
	}
	all.Wait()
	pages := o.Pages(d.scheme)
	if len(pages) < d.pages {
		b.Errorf("%v: %d pages arrived, want %d", d, len(pages), d.pages)
		return yield{}
	}
	y := yield{least: math.MaxInt64}
	for i := 1; i < d.pages; i++ {
		y.least = min(y.least, pages[i].At.Sub(pages[i-1].At))
	}
	took := pages[d.pages-1].At.Sub(pages[0].At)
	y.share = 100 * float64(d.pages-1) * float64(d.delay) / float64(took)
	return y
}

// visit requests a page until ctx ends. Before that it must not fail.
func visit(b *testing.B, ctx context.Context, client *http.Client, url string) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		b.Error(err)
		return
	}
	resp, err := client.Do(req)
	if err == nil {
		_, err = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
	}
	switch {
	case ctx.Err() != nil:
	case err != nil:
		b.Errorf("%s: %v", url, err)
	case resp.StatusCode != http.StatusOK:
		b.Errorf("%s: %s", url, resp.Status)
	}
}

// While requests wait, the origin gets nearly as many as its Crawl-delay permits, and
// none too early. Delays of whole seconds are measured with eight hosts at once, and a
// rate of 20 a second with one host after the other.
func BenchmarkPace(b *testing.B) {
	p := e2e.StartProxy(b, e2e.Settings{
		"pace.requests_per_second": 1000, "pace.max_concurrent": 8, "pace.max_wait": "10m", "pace.max_queue": 1000,
	})
	clients := p.Clients(b, 50)
	var slow, fast []demand
	for _, scheme := range e2e.Schemes {
		for _, mixed := range []bool{false, true} {
			slow = append(slow, demand{time.Second, scheme, mixed, 21}, demand{2 * time.Second, scheme, mixed, 11})
			fast = append(fast, demand{50 * time.Millisecond, scheme, mixed, 101})
		}
	}
	together := sync.OnceValue(func() map[demand]yield { return meet(b, clients, slow...) })
	for _, d := range slow {
		b.Run(d.String(), func(b *testing.B) { together()[d].claim(b, d, 99) })
	}
	for _, d := range fast {
		b.Run(d.String(), func(b *testing.B) {
			// Other work of the machine can only lower the yield, so one of three runs
			// must succeed.
			var best yield
			for try := 0; try < 3 && best.share < 96; try++ {
				y := meet(b, clients, d)[d]
				if y.least < d.delay-e2e.Early {
					best = y
					break
				}
				if y.share > best.share {
					best = y
				}
			}
			best.claim(b, d, 96)
		})
	}
}

// claim reports the yield and compares it with the documented one.
func (y yield) claim(b *testing.B, d demand, share float64) {
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(y.share, "%permitted")
	b.ReportMetric(float64(y.least)/float64(time.Millisecond), "min-gap-ms")
	if y.share < share {
		b.Errorf("%v: %.2f %% of what is permitted, want %v", d, y.share, share)
	}
	if y.least < d.delay-e2e.Early {
		b.Errorf("%v: two requests came within %v", d, y.least)
	}
}
