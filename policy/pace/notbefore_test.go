package pace

import (
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// TestNotBefore: requests wait for Limits.NotBefore, in their order and at the host's pace, and delay no other request.
func TestNotBefore(t *testing.T) {
	for _, shared := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			p, began := New(Options{}), time.Now()
			l := every(2 * time.Second)
			l.MaxWait = 2 * time.Hour
			if shared {
				l.BackOffKey = "www.a.test"
			}
			later := l
			later.NotBefore = began.Add(time.Hour)
			forecast, err := p.Forecast("a", later)
			if err != nil || forecast != time.Hour {
				t.Errorf("forecast %v, %v", forecast, err)
			}
			var wg sync.WaitGroup
			var mu sync.Mutex
			var sent []time.Duration
			send := func(client string, l Limits) {
				wg.Go(func() {
					s := mustWait(t, p, client, l)
					mu.Lock()
					sent = append(sent, time.Since(began))
					mu.Unlock()
					s.Sent()
					s.Release()
				})
				synctest.Wait()
			}
			send("a", later)
			send("b", later)
			send("a", later)
			send("a", l)
			send("b", l)
			hasty := later
			hasty.MaxWait = 59 * time.Minute
			if _, err := p.Wait(t.Context(), "a", hasty); isBusy(t, err, WaitTooLong) < time.Hour {
				t.Errorf("%v", err)
			}
			wg.Wait()
			for i, want := range []time.Duration{0, 2 * time.Second, time.Hour, time.Hour + 2*time.Second, time.Hour + 4*time.Second} {
				if at := sent[i] - want; at < 0 || at > time.Millisecond || !slices.IsSorted(sent) {
					t.Errorf("shared %v: sent at %v", shared, sent)
					break
				}
			}
		})
	}
}
