package proxy

import (
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
)

// TestRaisedLimitWakesEachListener checks that the listeners of the proxy's port and of redirected connections both go on
// when limits.connections is raised while they wait.
func TestRaisedLimitWakesEachListener(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &Handler{o: Options{Log: slog.New(slog.DiscardHandler)}, connLimit: &connLimit{free: make(chan struct{}, 1)}}
		h.rules.install(Rules{MaxConns: 1}, 1)
		h.connLimit.take(1)
		var accepting atomic.Int64
		for range 2 {
			l := h.newListener(nil)
			defer close(l.ended)
			go func() {
				if l.waitForPlace() {
					accepting.Add(1)
				}
			}()
		}
		synctest.Wait()
		h.rules.install(Rules{MaxConns: 4}, 2) // as Use does
		h.connLimit.notify()
		synctest.Wait()
		if n := accepting.Load(); n != 2 {
			t.Errorf("%d of 2 listeners accept connections", n)
		}
	})
}
