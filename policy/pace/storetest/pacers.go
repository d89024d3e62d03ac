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

// Pacers tests that several Pacers together keep the limits of one. start returns the given
// number of Pacers that share a Store, connected and without state. It may also return one
// Pacer several times. It closes them at the end of the test. in runs each test: it is
// synctest.Test, or nil for real time, in which nothing counts as too late.
func Pacers(t *testing.T, in func(*testing.T, func(*testing.T)), start func(t *testing.T, n int) []*pace.Pacer) {
	exact := in != nil
	if !exact {
		in = func(t *testing.T, test func(*testing.T)) { test(t) }
	}
	for name, test := range map[string]func(*harness){
		"a gap":                  keepGap,
		"a burst and a rate":     keepRate,
		"concurrency":            keepConcurrency,
		"assets have a limiter":  keepAssets,
		"a client's own rate":    keepOwn,
		"a back-off":             keepBackOff,
		"a back-off of one host": keepSeparateBackOff,
		"a back-off is ended":    endBackOff,
		"no time to wait":        keepMaxWait,
		"a caller leaves":        keepLeft,
		"a replay counts":        keepReplay,
		"a page and its fetch":   keepFetch,
		"random requests":        keepAll,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in(t, func(t *testing.T) { test(&harness{T: t, pacers: start(t, 3), exact: exact}) })
		})
	}
}

// A harness sends requests by several Pacers and records them.
type harness struct {
	*testing.T
	pacers []*pace.Pacer

	// exact means that time passes only while all goroutines wait.
	exact bool

	mu       sync.Mutex
	sent     []time.Time
	underWay int
}

func limits(perSecond float64, burst int, gap time.Duration) pace.Limits {
	return pace.Limits{
		Key: "a.test", PerSecond: perSecond, Burst: burst, CrawlDelay: gap,
		MaxConcurrent: 1000, MaxWait: time.Minute, MaxQueue: 1000,
	}
}

// ready returns a Slot that has the permit to send. The caller must release it.
func (h *harness) ready(ctx context.Context, i int, client string, l pace.Limits) (*pace.Slot, error) {
	s, err := h.pacers[i%len(h.pacers)].Wait(ctx, client, l)
	if err != nil {
		return nil, err
	}
	if err := s.Ready(ctx); err != nil {
		s.Release()
		return nil, err
	}
	return s, nil
}

// send sends on s as a connection does: in time, or after another Ready.
func (h *harness) send(ctx context.Context, s *pace.Slot) (time.Time, error) {
	for {
		at := time.Now()
		if s.Timely() {
			s.Sent()
			h.mu.Lock()
			defer h.mu.Unlock()
			h.sent = append(h.sent, at)
			return at, nil
		}
		if err := s.Ready(ctx); err != nil {
			return at, err
		}
	}
}

// ask sends one request that takes no time.
func (h *harness) ask(i int, client string, l pace.Limits) (time.Time, error) {
	s, err := h.ready(h.Context(), i, client, l)
	if err != nil {
		return time.Time{}, err
	}
	defer s.Release()
	return h.send(h.Context(), s)
}

func (h *harness) must(i int, client string, l pace.Limits) time.Time {
	h.Helper()
	at, err := h.ask(i, client, l)
	if err != nil {
		h.Errorf("request %d: %v", i, err)
	}
	return at
}

// all sends n requests at once.
func (h *harness) all(n int, l pace.Limits) {
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { h.must(i, "", l) })
	}
	wg.Wait()
	slices.SortFunc(h.sent, time.Time.Compare)
}

func (h *harness) spaced(gap time.Duration) {
	h.Helper()
	slices.SortFunc(h.sent, time.Time.Compare)
	for i := 1; i < len(h.sent); i++ {
		if d := h.sent[i].Sub(h.sent[i-1]); d < gap-slack {
			h.Errorf("request %d was sent %v after the one before, want %v", i, d, gap)
		}
	}
}

func keepGap(h *harness) {
	const gap, n = 30 * time.Millisecond, 30
	h.all(n, limits(1000, 10, gap))
	h.spaced(gap)
	if d := h.sent[n-1].Sub(h.sent[0]); h.exact && d > 2*n*gap {
		h.Errorf("%d took %v", n, d)
	}
}

func keepRate(h *harness) {
	const perSecond, burst, n = 50, 5, 30
	began := time.Now()
	h.all(n, limits(perSecond, burst, 0))
	for i, at := range h.sent {
		// The time does not count from the first request, which a busy machine may have delayed.
		d := at.Sub(began)
		if most := burst + perSecond*(d+slack).Seconds(); float64(i+1) > most {
			h.Fatalf("%d in %v", i+1, d)
		}
	}
}

// occupy counts requests in flight and compares them with the limit.
func (h *harness) occupy(n, most int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.underWay += n; h.underWay > most {
		h.Errorf("%d under way, %d permitted", h.underWay, most)
	}
}

func keepConcurrency(h *harness) {
	l := limits(1e4, 100, 0)
	l.MaxConcurrent = 2
	var wg sync.WaitGroup
	for i := range 12 {
		wg.Go(func() {
			s, err := h.ready(h.Context(), i, "", l)
			if err != nil {
				h.Errorf("request %d: %v", i, err)
				return
			}
			h.occupy(1, 2)
			h.send(h.Context(), s)
			pass(20 * time.Millisecond)
			h.occupy(-1, 2)
			s.Release()
		})
	}
	wg.Wait()
	for range 2 {
		s, err := h.ready(h.Context(), 0, "", l)
		if err != nil {
			h.Fatal(err)
		}
		defer s.Release()
		h.send(h.Context(), s)
	}
	l.MaxWait = 50 * time.Millisecond
	_, err := h.ask(1, "", l)
	isBusy(h.T, err, pace.ConcurrencyFull)
}

func pass(d time.Duration) { <-time.After(d) }

func isBusy(t *testing.T, err error, r pace.Reason) {
	t.Helper()
	busy, ok := errors.AsType[*pace.BusyError](err)
	if !ok || busy.Reason != r || busy.RetryAfter < time.Second {
		t.Errorf("%v, want that %v", err, r)
	}
}

// keepAssets tests that assets have a limiter of their own, which all Pacers share.
func keepAssets(h *harness) {
	page := limits(1.0/60, 1, 0)
	h.must(0, "", page)
	asset := page
	asset.AssetBurst, asset.MaxWait = 2, time.Second
	h.must(1, "", asset)
	h.must(2, "", asset)
	for i := range 3 {
		_, err := h.ask(i, "", asset)
		isBusy(h.T, err, pace.WaitTooLong)
	}
}

func keepOwn(h *harness) {
	const gap = 100 * time.Millisecond
	l := limits(1000, 100, 0)
	own := l
	own.Client = pace.Rate{PerSecond: float64(time.Second / gap), Burst: 1}
	var wg sync.WaitGroup
	for i := range 9 {
		wg.Go(func() { h.must(i, "slow", own) })
	}
	wg.Wait()
	h.spaced(gap)
	own.Client.PerSecond = 1.0 / 60
	h.must(0, "slowest", own)
	own.MaxWait = time.Second
	_, err := h.ask(1, "slowest", own)
	isBusy(h.T, err, pace.WaitTooLong)
	own.MaxWait = time.Minute
	h.must(2, "other", own)
}

func keepBackOff(h *harness) {
	const length = 3 * time.Second
	l := limits(100, 10, 0)
	s, err := h.ready(h.Context(), 0, "", l)
	if err != nil {
		h.Fatal(err)
	}
	h.send(h.Context(), s)
	began := time.Now()
	s.BackOff(length, "id")
	s.Release()
	hasty := l
	hasty.MaxWait = 0
	for i := range h.pacers {
		until(h.T, "the back-off at each", func() bool { _, err = h.ask(i, "", hasty); return err != nil })
		isBusy(h.T, err, pace.BackedOff)
	}
	for i := range h.pacers {
		if at := h.must(i, "", l); at.Sub(began) < length-slack {
			h.Errorf("sent %v after the back-off of %v began", at.Sub(began), length)
		}
	}
}

// keepSeparateBackOff tests hosts that share a rate: each Pacer has a back-off for one host
// and for no other.
func keepSeparateBackOff(h *harness) {
	l := limits(100, 10, 0)
	l.MaxWait = 10 * time.Second
	busy, fine := l, l
	busy.BackOffKey, fine.BackOffKey = "busy.test", "fine.test"
	s, err := h.ready(h.Context(), 0, "", busy)
	if err != nil {
		h.Fatal(err)
	}
	h.send(h.Context(), s)
	s.BackOff(time.Minute, "id")
	s.Release()
	for i := range h.pacers {
		until(h.T, "the back-off at each", func() bool { _, err = h.ask(i, "", busy); return err != nil })
		isBusy(h.T, err, pace.BackedOff)
		h.must(i, "", fine)
	}
}

// endBackOff tests that each Pacer learns who caused a back-off, and that it ends for all Pacers
// when an operator ends it at one of them. Requests that wait are sent.
func endBackOff(h *harness) {
	l := limits(100, 10, 0)
	hasty, patient := l, l
	hasty.MaxWait, patient.MaxWait = 0, 2*time.Hour
	for end := range h.pacers {
		s, err := h.ready(h.Context(), 0, "", l)
		if err != nil {
			h.Fatal(err)
		}
		h.send(h.Context(), s)
		// The end differs from that of the one before.
		s.BackOff(time.Hour-time.Duration(end)*time.Minute, "id")
		s.Release()
		for i := range h.pacers {
			until(h.T, "the back-off and its cause at each", func() bool {
				_, err := h.ask(i, "", hasty)
				busy, ok := errors.AsType[*pace.BusyError](err)
				return ok && busy.Reason == pace.BackedOff && busy.BackOffBy == "id"
			})
		}
		var wg sync.WaitGroup
		for i := range h.pacers {
			wg.Go(func() { h.must(i, "", patient) })
		}
		until(h.T, "one waits at each", func() bool {
			return !slices.ContainsFunc(h.pacers, func(p *pace.Pacer) bool { return p.Stats().Waiting == 0 })
		})
		if !h.pacers[end].EndBackOff(l.Key) {
			h.Error("the back-off is not known")
		}
		wg.Wait()
		for i := range h.pacers {
			h.must(i, "", l)
		}
	}
}

func keepMaxWait(h *harness) {
	l := limits(1.0/60, 1, 0)
	h.must(0, "", l)
	l.MaxWait = 10 * time.Second
	for i := range 6 {
		_, err := h.ask(i, "", l)
		isBusy(h.T, err, pace.WaitTooLong)
	}
}

// keepLeft tests that a caller that leaves while it waits costs no other request its
// slot.
func keepLeft(h *harness) {
	// All have left before that time, even on a busy machine.
	const gap = 4 * time.Second
	l := limits(1000, 1, gap)
	began := h.must(0, "", l)
	for i := range h.pacers {
		ctx, leave := context.WithTimeout(h.Context(), gap/20)
		if _, err := h.ready(ctx, i, "", l); !errors.Is(err, context.DeadlineExceeded) {
			h.Errorf("%v, want the deadline", err)
		}
		leave()
		// Its slot is given back only if there is no later one.
		pass(gap / 20)
	}
	at := h.must(1, "", l)
	h.spaced(gap)
	if d := at.Sub(began); h.exact && d > gap+gap/10 {
		h.Errorf("the next was sent after %v", d)
	}
}

func keepReplay(h *harness) {
	const gap = 100 * time.Millisecond
	s, err := h.ready(h.Context(), 0, "", limits(1000, 1, gap))
	if err != nil {
		h.Fatal(err)
	}
	defer s.Release()
	for i := range 3 {
		if _, err := h.send(h.Context(), s); err != nil {
			h.Fatal(err)
		}
		h.must(i, "", limits(1000, 1, gap))
		if err := s.Ready(h.Context()); err != nil {
			h.Fatal(err)
		}
	}
	h.spaced(gap)
}

// keepFetch tests that the first page of a host follows the fetch of its robots.txt without a
// gap, and that the gap to the next page of any Pacer counts from the first.
func keepFetch(h *harness) {
	const gap = 2 * time.Second
	page := limits(1000, 1, gap)
	fetch := page
	fetch.First, fetch.Shared = true, true
	began := h.must(0, "", fetch)
	first := h.must(0, "", page)
	if d := first.Sub(began); h.exact && d > gap/2 {
		h.Errorf("the page was sent %v after the fetch", d)
	}
	h.sent = h.sent[1:]
	for i := range h.pacers {
		h.must(i, "", page)
	}
	h.spaced(gap)
}

// keepAll tests that requests that arrive, leave, fail and are replayed keep the gap and the
// concurrency limit.
func keepAll(h *harness) {
	const gap, most = 10 * time.Millisecond, 3
	l := limits(1000, 10, gap)
	l.MaxConcurrent, l.MaxWait = most, 2*time.Second
	rnd := rand.New(rand.NewSource(1))
	var wg sync.WaitGroup
	for i := range 150 {
		chance, dial, took := rnd.Intn(8), time.Duration(rnd.Intn(20))*time.Millisecond, time.Duration(rnd.Intn(20))*time.Millisecond
		wg.Go(func() { h.request(i, l, chance, dial, took) })
	}
	wg.Wait()
	h.spaced(gap)
	if h.exact && len(h.sent) < 30 {
		h.Errorf("only %d were sent", len(h.sent))
	}
}

func (h *harness) request(i int, l pace.Limits, chance int, dial, took time.Duration) {
	ctx := h.Context()
	if chance == 0 {
		var leave context.CancelFunc
		ctx, leave = context.WithTimeout(ctx, 10*took)
		defer leave()
	}
	s, err := h.pacers[i%len(h.pacers)].Wait(ctx, fmt.Sprint(i%5), l)
	if err != nil {
		h.excuse(err)
		return
	}
	defer s.Release()
	pass(dial)
	if chance == 1 {
		// The origin does not answer.
		return
	}
	if chance == 2 {
		s.Redial()
	}
	if err := s.Ready(ctx); err != nil {
		h.excuse(err)
		return
	}
	h.occupy(1, l.MaxConcurrent)
	defer func() { h.occupy(-1, l.MaxConcurrent) }()
	if chance == 3 {
		// The connection writes late, or never.
		pass(dial)
		if dial > took {
			return
		}
	}
	if _, err := h.send(ctx, s); err != nil {
		h.excuse(err)
		return
	}
	pass(took)
}

// excuse fails on any error except a refusal and the deadline.
func (h *harness) excuse(err error) {
	if !errors.Is(err, pace.ErrTooBusy) && !errors.Is(err, context.DeadlineExceeded) {
		h.Error(err)
	}
}
