package pace

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// askAs sends one request of a client, whose response has the status 200 or 429, with Retry-After if that is not zero.
func askAs(t *testing.T, p *Pacer, client string, l Limits, status int, retryAfter time.Duration) {
	t.Helper()
	s := mustWait(t, p, client, l)
	s.Sent()
	if status == 200 {
		s.Succeeded()
	} else {
		s.BackOff(retryAfter, client+"'s request")
	}
	s.Release()
}

// wantBackOff checks the back-off that a hasty request of the client meets. Zero means that the request is sent.
func wantBackOff(t *testing.T, p *Pacer, client string, l Limits, want time.Duration, by string) {
	t.Helper()
	l.MaxWait = 0
	s, err := p.Wait(t.Context(), client, l)
	if want == 0 {
		if err != nil {
			t.Errorf("%s: %v, want a slot", client, err)
		}
		s.Release()
		return
	}
	isBusy(t, err, BackedOff)
	if e := err.(*BusyError); e.BackOff != want || e.BackOffBy != by {
		t.Errorf("%s: back-off of %v by %q, want %v by %q", client, e.BackOff, e.BackOffBy, want, by)
	}
}

// TestBackOffOfOneClient: whom a 429 concerns depends on what other clients got.
func TestBackOffOfOneClient(t *testing.T) {
	const hour, minute = time.Hour, time.Minute
	for name, c := range map[string]struct {
		happens func(t *testing.T, p *Pacer, l Limits)
		a, b    time.Duration // back-off of each client after that
		by      string        // the cause of a back-off of b
	}{
		"another client is served": {func(t *testing.T, p *Pacer, l Limits) {
			askAs(t, p, "b", l, 200, 0)
			askAs(t, p, "a", l, 429, hour)
		}, hour, 0, ""},
		"another client was served a minute ago": {func(t *testing.T, p *Pacer, l Limits) {
			askAs(t, p, "b", l, 200, 0)
			pass(servedFor)
			askAs(t, p, "a", l, 200, 0)
			askAs(t, p, "a", l, 429, hour)
		}, hour, hour, "a's request"},
		"only the client itself was served": {func(t *testing.T, p *Pacer, l Limits) {
			askAs(t, p, "a", l, 200, 0)
			askAs(t, p, "a", l, 429, hour)
		}, hour, hour, "a's request"},
		"another client was served before this one": {func(t *testing.T, p *Pacer, l Limits) {
			askAs(t, p, "b", l, 200, 0)
			askAs(t, p, "a", l, 200, 0)
			askAs(t, p, "a", l, 200, 0)
			askAs(t, p, "a", l, 429, hour)
		}, hour, 0, ""},
		"another client gets a 429 too": {func(t *testing.T, p *Pacer, l Limits) {
			askAs(t, p, "b", l, 200, 0)
			askAs(t, p, "a", l, 429, hour)
			askAs(t, p, "b", l, 429, minute)
		}, hour, hour, "a's request"},
		"another client gets a longer 429": {func(t *testing.T, p *Pacer, l Limits) {
			askAs(t, p, "b", l, 200, 0)
			askAs(t, p, "a", l, 429, minute)
			askAs(t, p, "b", l, 429, hour)
		}, hour, hour, "b's request"},
		"another client gets a 429 after the end": {func(t *testing.T, p *Pacer, l Limits) {
			askAs(t, p, "c", l, 200, 0)
			askAs(t, p, "a", l, 429, 2*time.Second)
			pass(3 * time.Second)
			askAs(t, p, "b", l, 429, hour)
		}, 0, hour, "b's request"},
		"the same client gets the next one": {func(t *testing.T, p *Pacer, l Limits) {
			askAs(t, p, "b", l, 200, 0)
			askAs(t, p, "a", l, 429, 0)
			pass(minute + 1)
			askAs(t, p, "b", l, 200, 0)
			askAs(t, p, "a", l, 429, 0)
		}, 2 * minute, 2 * minute, "a's request"},
		"the same client gets one 30 minutes later": {func(t *testing.T, p *Pacer, l Limits) {
			askAs(t, p, "b", l, 200, 0)
			askAs(t, p, "a", l, 429, 0)
			pass(minute + BackOffMemory)
			askAs(t, p, "b", l, 200, 0)
			askAs(t, p, "a", l, 429, 0)
		}, minute, 0, ""},
		"a request from before the back-off gets one": {func(t *testing.T, p *Pacer, l Limits) {
			askAs(t, p, "b", l, 200, 0)
			early := mustWait(t, p, "a", l)
			early.Sent()
			askAs(t, p, "a", l, 429, 2*time.Second)
			pass(3 * time.Second)
			early.BackOff(hour, "early")
			early.Release()
		}, hour, 0, ""},
		"the host is in a back-off": {func(t *testing.T, p *Pacer, l Limits) {
			late := mustWait(t, p, "a", l)
			late.Sent()
			askAs(t, p, "c", l, 429, minute)
			late.BackOff(hour, "late")
			late.Release()
		}, hour, hour, "late"},
		"the fetch of a robots.txt gets one": {func(t *testing.T, p *Pacer, l Limits) {
			askAs(t, p, "b", l, 200, 0)
			l.First = true
			askAs(t, p, "a", l, 429, hour)
		}, hour, hour, "a's request"},
		"the fetch of a robots.txt for the client gets one": {func(t *testing.T, p *Pacer, l Limits) {
			askAs(t, p, "b", l, 200, 0)
			askAs(t, p, "a", l, 429, minute)
			l.First = true
			askAs(t, p, "a", l, 429, hour)
		}, hour, hour, "a's request"},
		"only the fetch of a robots.txt is served": {func(t *testing.T, p *Pacer, l Limits) {
			first := l
			first.First = true
			askAs(t, p, "b", first, 200, 0)
			askAs(t, p, "a", l, 429, hour)
		}, hour, hour, "a's request"},
		"the refresh of a robots.txt gets one": {func(t *testing.T, p *Pacer, l Limits) {
			askAs(t, p, "b", l, 200, 0)
			askAs(t, p, "", l, 429, hour)
		}, hour, hour, "'s request"},
	} {
		for _, key := range []string{"", "busy.test"} {
			t.Run(name+" "+key, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					p, l := newExact(), out(rule(1, 1, 0))
					l.BackOffKey = key
					c.happens(t, p, l)
					if c.a > 0 {
						l.MaxWait = 0
						_, err := p.Wait(t.Context(), "a", l)
						isBusy(t, err, BackedOff)
						if got := err.(*BusyError).BackOff; got != c.a {
							t.Errorf("a: back-off of %v, want %v", got, c.a)
						}
					}
					wantBackOff(t, p, "b", l, c.b, c.by)
				})
			})
		}
	}
}

// TestTooManyClientsBackOff: the number of clients with back-offs of their own is bounded. After that, the host is meant.
func TestTooManyClientsBackOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, l := newExact(), out(rule(1, 1, 0))
		for i := range maxApart + 1 {
			wantBackOff(t, p, "served", l, 0, "")
			askAs(t, p, "served", l, 200, 0)
			askAs(t, p, fmt.Sprint("client ", i), l, 429, time.Second)
			if i < maxApart {
				pass(time.Second + 1)
			}
		}
		wantBackOff(t, p, "served", l, time.Second, fmt.Sprintf("client %d's request", maxApart))
		if n := len(p.hosts.lockKnown(l.Key).backOff.get().clients); n != 0 {
			t.Errorf("%d clients remembered", n)
		}
	})
}

// TestOneClientWaitsAlone: a client's requests wait for the end of its back-off and delay nobody. Those that would wait too
// long are refused when it begins.
func TestOneClientWaitsAlone(t *testing.T) {
	for _, key := range []string{"", "busy.test"} {
		synctest.Test(t, func(t *testing.T) {
			p, l := newExact(), every(time.Second)
			l.BackOffKey = key
			askAs(t, p, "b", l, 200, 0)
			cause := mustWait(t, p, "a", l)
			cause.Sent()
			began, g := time.Now(), newLog()
			var all sync.WaitGroup
			all.Go(func() {
				l := l
				l.MaxWait = 5 * time.Second
				_, err := p.Wait(t.Context(), "a", l)
				isBusy(t, err, BackedOff)
				if d := time.Since(began); d != time.Millisecond {
					t.Errorf("refused after %v, want when the back-off begins", d)
				}
			})
			synctest.Wait()
			all.Go(func() {
				mustWait(t, p, "a", l).send()
				if d := time.Since(began); d < 10*time.Second || d > 11*time.Second+2 {
					t.Errorf("the client's request went after %v, want after its back-off", d)
				}
			})
			pass(time.Millisecond)
			cause.BackOff(10*time.Second, "id")
			cause.Release()
			for range 8 {
				all.Go(func() { s := mustWait(t, p, "b", l); g.send(s); s.Release() })
				synctest.Wait()
			}
			all.Wait()
			if at := g.sent(); len(at) != 8 || at[7] > 8*time.Second+10 {
				t.Errorf("the other client's requests went at %v", at)
			}
		})
	}
}

// TestFetchDuringTheBackOffOfOneClient: the robots.txt is for all clients.
func TestFetchDuringTheBackOffOfOneClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, l := newExact(), out(rule(1, 1, 0))
		askAs(t, p, "b", l, 200, 0)
		askAs(t, p, "a", l, 429, time.Hour)
		l.First = true
		wantBackOff(t, p, "a", l, 0, "")
	})
}

// TestRestartKeepsTheBackOffOfOneClient: after a restart, it is still that client's alone.
func TestRestartKeepsTheBackOffOfOneClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, l := newExact(), out(rule(1, 1, 0))
		askAs(t, p, "b", l, 200, 0)
		askAs(t, p, "a", l, 429, 0)
		for range 2 {
			pass(10 * time.Second)
			p = restart(t, p, Options{})
		}
		wantBackOff(t, p, "a", l, 40*time.Second, "a's request")
		wantBackOff(t, p, "b", l, 0, "")
		pass(40*time.Second + 1)
		askAs(t, p, "b", l, 200, 0)
		askAs(t, p, "a", l, 429, 0)
		wantBackOff(t, p, "b", l, 2*time.Minute, "a's request")
		pass(2*time.Minute + BackOffMemory)
		if clocks := p.Clocks(time.Now(), time.Time{}); len(clocks) != 0 {
			t.Errorf("clocks after all is forgiven: %+v", clocks)
		}
	})
}

// TestHostOfOneClientsBackOffIsKept: the table does not forget the host before the back-off is forgiven.
func TestHostOfOneClientsBackOffIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, l := newExact(), out(rule(1, 1, 0))
		askAs(t, p, "b", l, 200, 0)
		askAs(t, p, "a", l, 429, time.Minute)
		pass(30 * time.Minute)
		if p.hosts.sweepAll(); p.hosts.size() != 1 {
			t.Error("the host is forgotten")
		}
		pass(2 * time.Minute)
		if p.hosts.sweepAll(); p.hosts.size() != 0 {
			t.Error("the host is not forgotten")
		}
	})
}

// TestEndBackOff: an operator ends the back-offs of a host and of its clients. Waiting requests go, also those that wait for the
// shared rate of several hosts. What happened before is remembered.
func TestEndBackOff(t *testing.T) {
	for _, key := range []string{"", "busy.test"} {
		synctest.Test(t, func(t *testing.T) {
			p, l := newExact(), out(rule(1, 1, 0))
			l.BackOffKey = key
			l.MaxWait = 2 * time.Hour
			if p.EndBackOff(l.backOffKey()) {
				t.Error("there was a back-off of an unknown host")
			}
			askAs(t, p, "b", l, 200, 0)
			late := mustWait(t, p, "a", l)
			late.Sent()
			askAs(t, p, "a", l, 429, time.Hour)
			if got := p.ClientBackOffs(l.backOffKey()); len(got) != 1 || got[0] != (ClientBackOff{"a", time.Now().Add(time.Hour).UTC(), "a's request"}) {
				t.Errorf("%+v", got)
			}
			waitsUntilEnd := func(client string) {
				t.Helper()
				began := time.Now()
				var all sync.WaitGroup
				all.Go(func() {
					mustWait(t, p, client, l).send()
					if d := time.Since(began); d != time.Minute {
						t.Errorf("%s went after %v", client, d)
					}
				})
				pass(time.Minute)
				if !p.EndBackOff(l.backOffKey()) || p.EndBackOff(l.backOffKey()) {
					t.Error("not ended once")
				}
				all.Wait()
			}
			waitsUntilEnd("a")
			if late.BackOff(0, "late"); p.EndBackOff(l.backOffKey()) {
				t.Error("the response to an earlier request begins a back-off")
			}
			late.Release()
			pass(time.Millisecond)
			askAs(t, p, "b", l, 200, 0)
			askAs(t, p, "a", l, 429, time.Hour)
			waitsUntilEnd("b") // the second one of a client is for all
		})
	}
}

// TestEndedBackOffStaysEnded: not after a restart either.
func TestEndedBackOffStaysEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, l := newExact(), out(rule(1, 1, 0))
		askAs(t, p, "a", l, 429, time.Hour)
		pass(time.Hour / 2)
		since := time.Now()
		p.EndBackOff(l.Key)
		clocks := p.Clocks(time.Now(), since)
		if len(clocks) != 1 || !clocks[0].BackOffUntil.Equal(since) {
			t.Errorf("%+v", clocks)
		}
		wantBackOff(t, restart(t, p, Options{}), "a", l, 0, "")
	})
}
