package storetest

import (
	"context"
	"errors"
	"fmt"
	"math/rand"
	"slices"
	"sync"
	"testing"
	"time"

	"robotsproxy/policy/pace"
)

// Pacers tests that several keep together what one alone keeps. start gives so many that
// share a Store, none of which is alone and that know nothing yet, or as often the one;
// it ends them with the test. in runs each test: it is synctest.Test, or nil for the real time,
// at which nothing is too late.
func Pacers(t *testing.T, in func(*testing.T, func(*testing.T)), start func(t *testing.T, n int) []*pace.Pacer) {
	exact := in != nil
	if !exact {
		in = func(t *testing.T, test func(*testing.T)) { test(t) }
	}
	for name, test := range map[string]func(*crowd){
		"a gap":                      keepGap,
		"a burst and a rate":         keepRate,
		"places":                     keepPlaces,
		"assets have a clock":        keepAssets,
		"a client's own rate":        keepOwn,
		"a pause":                    keepPause,
		"a pause of one of several":  keepPauseApart,
		"who cannot wait is refused": keepMaxWait,
		"who leaves":                 keepLeft,
		"a replay counts":            keepReplay,
		"a random crowd":             keepAll,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in(t, func(t *testing.T) { test(&crowd{T: t, pacers: start(t, 3), exact: exact}) })
		})
	}
}

// A crowd is who asks several Pacers, and what was sent.
type crowd struct {
	*testing.T
	pacers []*pace.Pacer
	exact  bool // time passes only while all wait

	mu     sync.Mutex
	sent   []time.Time
	places int
}

func terms(perSecond float64, burst int, gap time.Duration) pace.Limits {
	return pace.Limits{
		Key: "a.test", PerSecond: perSecond, Burst: burst, CrawlDelay: gap,
		MaxConcurrent: 1000, MaxWait: time.Minute, MaxQueue: 1000,
	}
}

// place gives a slot on its way, that is to be released.
func (c *crowd) place(ctx context.Context, i int, client string, l pace.Limits) (*pace.Slot, error) {
	s, err := c.pacers[i%len(c.pacers)].Wait(ctx, client, l)
	if err != nil {
		return nil, err
	}
	if err := s.Ready(ctx); err != nil {
		s.Release()
		return nil, err
	}
	return s, nil
}

// send sends on s, as a connection does it: in time, or not before its next turn.
func (c *crowd) send(ctx context.Context, s *pace.Slot) (time.Time, error) {
	for {
		at := time.Now()
		if s.Timely() {
			s.Sent()
			c.mu.Lock()
			defer c.mu.Unlock()
			c.sent = append(c.sent, at)
			return at, nil
		}
		if err := s.Ready(ctx); err != nil {
			return at, err
		}
	}
}

// ask sends one request, which takes no time.
func (c *crowd) ask(i int, client string, l pace.Limits) (time.Time, error) {
	s, err := c.place(c.Context(), i, client, l)
	if err != nil {
		return time.Time{}, err
	}
	defer s.Release()
	return c.send(c.Context(), s)
}

func (c *crowd) must(i int, client string, l pace.Limits) time.Time {
	c.Helper()
	at, err := c.ask(i, client, l)
	if err != nil {
		c.Errorf("request %d: %v", i, err)
	}
	return at
}

// all has n requests come at once.
func (c *crowd) all(n int, l pace.Limits) {
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { c.must(i, "", l) })
	}
	wg.Wait()
	slices.SortFunc(c.sent, time.Time.Compare)
}

func (c *crowd) spaced(gap time.Duration) {
	c.Helper()
	slices.SortFunc(c.sent, time.Time.Compare)
	for i := 1; i < len(c.sent); i++ {
		if d := c.sent[i].Sub(c.sent[i-1]); d < gap-slack {
			c.Errorf("request %d was sent %v after the one before, want %v", i, d, gap)
		}
	}
}

func keepGap(c *crowd) {
	const gap, n = 30 * time.Millisecond, 30
	c.all(n, terms(1000, 10, gap))
	c.spaced(gap)
	if d := c.sent[n-1].Sub(c.sent[0]); c.exact && d > 2*n*gap {
		c.Errorf("%d took %v", n, d)
	}
}

func keepRate(c *crowd) {
	const perSecond, burst, n = 50, 5, 30
	began := time.Now()
	c.all(n, terms(perSecond, burst, 0))
	for i, at := range c.sent {
		d := at.Sub(began) // and not since the first one, which the machine may have held up
		if most := burst + perSecond*(d+slack).Seconds(); float64(i+1) > most {
			c.Fatalf("%d in %v", i+1, d)
		}
	}
}

// occupy counts places and holds them against the most.
func (c *crowd) occupy(n, most int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.places += n; c.places > most {
		c.Errorf("%d places taken, %d permitted", c.places, most)
	}
}

func keepPlaces(c *crowd) {
	l := terms(1e4, 100, 0)
	l.MaxConcurrent = 2
	var wg sync.WaitGroup
	for i := range 12 {
		wg.Go(func() {
			s, err := c.place(c.Context(), i, "", l)
			if err != nil {
				c.Errorf("request %d: %v", i, err)
				return
			}
			c.occupy(1, 2)
			c.send(c.Context(), s)
			pass(20 * time.Millisecond)
			c.occupy(-1, 2)
			s.Release()
		})
	}
	wg.Wait()
	for range 2 {
		s, err := c.place(c.Context(), 0, "", l)
		if err != nil {
			c.Fatal(err)
		}
		defer s.Release()
		c.send(c.Context(), s)
	}
	l.MaxWait = 50 * time.Millisecond
	_, err := c.ask(1, "", l)
	isBusy(c.T, err, pace.ConcurrencyFull)
}

func pass(d time.Duration) { <-time.After(d) }

func isBusy(t *testing.T, err error, r pace.Reason) {
	t.Helper()
	busy, ok := errors.AsType[*pace.BusyError](err)
	if !ok || busy.Reason != r || busy.RetryAfter < time.Second {
		t.Errorf("%v, want that %v", err, r)
	}
}

// keepAssets: they go by a clock of their own, which is all Pacers' too.
func keepAssets(c *crowd) {
	page := terms(1.0/60, 1, 0)
	c.must(0, "", page)
	asset := page
	asset.AssetBurst, asset.MaxWait = 2, time.Second
	c.must(1, "", asset)
	c.must(2, "", asset)
	for i := range 3 {
		_, err := c.ask(i, "", asset)
		isBusy(c.T, err, pace.WaitTooLong)
	}
}

func keepOwn(c *crowd) {
	const gap = 100 * time.Millisecond
	l := terms(1000, 100, 0)
	own := l
	own.Client = pace.Rate{PerSecond: float64(time.Second / gap), Burst: 1}
	var wg sync.WaitGroup
	for i := range 9 {
		wg.Go(func() { c.must(i, "slow", own) })
	}
	wg.Wait()
	c.spaced(gap)
	own.Client.PerSecond = 1.0 / 60
	c.must(0, "slowest", own)
	own.MaxWait = time.Second
	_, err := c.ask(1, "slowest", own)
	isBusy(c.T, err, pace.WaitTooLong)
	own.MaxWait = time.Minute
	c.must(2, "other", own)
}

func keepPause(c *crowd) {
	const pause = 3 * time.Second
	l := terms(100, 10, 0)
	s, err := c.place(c.Context(), 0, "", l)
	if err != nil {
		c.Fatal(err)
	}
	c.send(c.Context(), s)
	began := time.Now()
	s.BackOff(pause)
	s.Release()
	hasty := l
	hasty.MaxWait = 0
	for i := range c.pacers {
		until(c.T, "the pause at each", func() bool { _, err = c.ask(i, "", hasty); return err != nil })
		isBusy(c.T, err, pace.BackedOff)
	}
	for i := range c.pacers {
		if at := c.must(i, "", l); at.Sub(began) < pause-slack {
			c.Errorf("sent %v after the pause of %v began", at.Sub(began), pause)
		}
	}
}

// keepPauseApart: of hosts that share a pace the one that is paused is so at each, and the
// others at none.
func keepPauseApart(c *crowd) {
	l := terms(100, 10, 0)
	l.MaxWait = 10 * time.Second
	busy, fine := l, l
	busy.BackOffKey, fine.BackOffKey = "busy.test", "fine.test"
	s, err := c.place(c.Context(), 0, "", busy)
	if err != nil {
		c.Fatal(err)
	}
	c.send(c.Context(), s)
	s.BackOff(time.Minute)
	s.Release()
	for i := range c.pacers {
		until(c.T, "the pause at each", func() bool { _, err = c.ask(i, "", busy); return err != nil })
		isBusy(c.T, err, pace.BackedOff)
		c.must(i, "", fine)
	}
}

func keepMaxWait(c *crowd) {
	l := terms(1.0/60, 1, 0)
	c.must(0, "", l)
	l.MaxWait = 10 * time.Second
	for i := range 6 {
		_, err := c.ask(i, "", l)
		isBusy(c.T, err, pace.WaitTooLong)
	}
}

// keepLeft: who leaves while it waits for its turn costs nobody one.
func keepLeft(c *crowd) {
	const gap = 4 * time.Second // all have left before it is over, on a busy machine too
	l := terms(1000, 1, gap)
	began := c.must(0, "", l)
	for i := range c.pacers {
		ctx, leave := context.WithTimeout(c.Context(), gap/20)
		if _, err := c.place(ctx, i, "", l); !errors.Is(err, context.DeadlineExceeded) {
			c.Errorf("%v, want its own end", err)
		}
		leave()
		pass(gap / 20) // its turn is given back only while nobody has a later one
	}
	at := c.must(1, "", l)
	c.spaced(gap)
	if d := at.Sub(began); c.exact && d > gap+gap/10 {
		c.Errorf("the next was sent after %v", d)
	}
}

func keepReplay(c *crowd) {
	const gap = 100 * time.Millisecond
	s, err := c.place(c.Context(), 0, "", terms(1000, 1, gap))
	if err != nil {
		c.Fatal(err)
	}
	defer s.Release()
	for i := range 3 {
		if _, err := c.send(c.Context(), s); err != nil {
			c.Fatal(err)
		}
		c.must(i, "", terms(1000, 1, gap))
		if err := s.Ready(c.Context()); err != nil {
			c.Fatal(err)
		}
	}
	c.spaced(gap)
}

// keepAll has what comes, leaves, fails and is sent again keep the gap and the places.
func keepAll(c *crowd) {
	const gap, places = 10 * time.Millisecond, 3
	l := terms(1000, 10, gap)
	l.MaxConcurrent, l.MaxWait = places, 2*time.Second
	rnd := rand.New(rand.NewSource(1))
	var wg sync.WaitGroup
	for i := range 150 {
		chance, dial, took := rnd.Intn(8), time.Duration(rnd.Intn(20))*time.Millisecond, time.Duration(rnd.Intn(20))*time.Millisecond
		wg.Go(func() { c.request(i, l, chance, dial, took) })
	}
	wg.Wait()
	c.spaced(gap)
	if c.exact && len(c.sent) < 30 {
		c.Errorf("only %d were sent", len(c.sent))
	}
}

func (c *crowd) request(i int, l pace.Limits, chance int, dial, took time.Duration) {
	ctx := c.Context()
	if chance == 0 {
		var leave context.CancelFunc
		ctx, leave = context.WithTimeout(ctx, 10*took)
		defer leave()
	}
	s, err := c.pacers[i%len(c.pacers)].Wait(ctx, fmt.Sprint(i%5), l)
	if err != nil {
		c.excuse(err)
		return
	}
	defer s.Release()
	pass(dial)
	if chance == 1 {
		return // nobody answers
	}
	if chance == 2 {
		s.Redial()
	}
	if err := s.Ready(ctx); err != nil {
		c.excuse(err)
		return
	}
	c.occupy(1, l.MaxConcurrent)
	defer func() { c.occupy(-1, l.MaxConcurrent) }()
	if chance == 3 {
		pass(dial) // the connection takes it late, or never
		if dial > took {
			return
		}
	}
	if _, err := c.send(ctx, s); err != nil {
		c.excuse(err)
		return
	}
	pass(took)
}

// excuse fails for an error that is neither a refusal nor one's own end.
func (c *crowd) excuse(err error) {
	if !errors.Is(err, pace.ErrTooBusy) && !errors.Is(err, context.DeadlineExceeded) {
		c.Error(err)
	}
}
