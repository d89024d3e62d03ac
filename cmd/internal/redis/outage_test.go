package redis

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"robotsproxy/cmd/internal/redis/redistest"
	"robotsproxy/policy/pace"
	"robotsproxy/robots/testkit"
)

// A request is one that three replicas have sent to one host.
type request struct {
	replica int
	at      time.Time
	alone   bool
}

// A crawl is three replicas that send to one host as fast as permitted.
type crawl struct {
	t      *testing.T
	fleets []*Fleet
	pacers []*pace.Pacer

	mu   sync.Mutex
	sent []request
}

const (
	crawlDelay = 100 * time.Millisecond
	late       = time.Millisecond // a time is read before the event that it belongs to
)

// begin sends requests until stop is called.
func (c *crawl) begin() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	for i := range c.pacers {
		for range 3 {
			wg.Go(func() {
				for ctx.Err() == nil {
					c.send(ctx, i)
				}
			})
		}
	}
	return sync.OnceFunc(func() { cancel(); wg.Wait() })
}

func (c *crawl) send(ctx context.Context, i int) {
	s, err := c.pacers[i].Wait(ctx, "", pace.Limits{
		Key: "a.test", PerSecond: 1000, Burst: 1, CrawlDelay: crawlDelay, MaxConcurrent: 6, MaxWait: time.Minute, MaxQueue: 10,
	})
	if err == nil {
		defer s.Release()
		err = s.Ready(ctx)
	}
	for err == nil {
		at := time.Now()
		if s.Timely() {
			s.Sent()
			c.mu.Lock()
			defer c.mu.Unlock()
			c.sent = append(c.sent, request{i, at, s.Held().StoreAway})
			return
		}
		err = s.Ready(ctx)
	}
	if ctx.Err() == nil {
		c.t.Errorf("replica %d: a request is lost: %v", i, err)
	}
}

// kept fails unless the requests were as far apart as promised.
func (c *crawl) kept() {
	slices.SortFunc(c.sent, func(a, b request) int { return a.at.Compare(b.at) })
	alone := 0
	for i, r := range c.sent {
		if r.alone {
			alone++
		}
		if i == 0 {
			continue
		}
		if d := r.at.Sub(c.sent[i-1].at); d < crawlDelay-late {
			c.t.Errorf("request %d of %d was sent %v after the one before, want %v", i, len(c.sent), d, crawlDelay)
		}
	}
	n := len(c.sent)
	took := c.sent[n-1].at.Sub(c.sent[0].at)
	c.t.Logf("%d requests in %v, %d of them alone", n, took, alone)
	if alone == 0 || alone == n {
		c.t.Errorf("%d of %d requests were sent alone", alone, n)
	}
}

// No request is lost while the server hangs or is stopped, and none is sent too soon,
// neither then nor when the state changes.
func TestRequestsOfAnOutage(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	settled(t, s.URL())
	c := &crawl{t: t}
	for range 3 {
		f, p := pacer(t, Open, s.URL(), 3)
		c.fleets, c.pacers = append(c.fleets, f), append(c.pacers, p)
	}
	shared := func(want bool) {
		t.Helper()
		testkit.Eventually(t, "all share, or none does", func() bool {
			return !slices.ContainsFunc(c.fleets, func(f *Fleet) bool { return (f.Standing() == pace.Standing{Slowdown: 1}) != want })
		})
	}
	shared(true)
	stop := c.begin()
	defer stop()
	<-time.After(settledFor + 6*crawlDelay)
	s.Stop()
	shared(false)
	<-time.After(gone + 20*crawlDelay)
	s.Continue()
	shared(true)
	<-time.After(settledFor + 6*crawlDelay)
	s.Kill()
	shared(false)
	<-time.After(quietEvery - settledFor + 6*crawlDelay)
	s.Restart()
	shared(true)
	<-time.After(6 * crawlDelay)
	stop()
	c.kept()
}
