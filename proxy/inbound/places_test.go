package inbound

import (
	"log/slog"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestRaisedLimitWakesEachListener checks that the listeners of the proxy's port and of redirected connections both go on
// when limits.connections is raised while they wait.
func TestRaisedLimitWakesEachListener(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var most atomic.Int64
		most.Store(1)
		s := New(Options{Log: slog.New(slog.DiscardHandler), Rules: func() Rules { return Rules{MaxConns: int(most.Load())} }})
		s.conns.take(1)
		var accepting atomic.Int64
		for range 2 {
			l := s.newListener(nil)
			defer close(l.ended)
			go func() {
				if l.waitForPlace("lab") == nil {
					accepting.Add(1)
				}
			}()
		}
		synctest.Wait()
		most.Store(4)
		s.LimitsChanged()
		synctest.Wait()
		if n := accepting.Load(); n != 2 {
			t.Errorf("%d of 2 listeners accept connections", n)
		}
	})
}

// TestMakeRoom checks whose connections are closed for another one of the client "new" at limits.connections. A connection of
// the table is its client and for how many seconds it has been idle; 0: it carries a request.
func TestMakeRoom(t *testing.T) {
	const busy = 0
	type conn struct {
		share string
		idle  float64
	}
	for _, c := range []struct {
		name   string
		conns  []conn
		most   int
		closed []conn
		fair   bool
	}{
		{"the longest idle of the client with the most", []conn{{"a", 2}, {"a", 9}, {"a", 5}, {"b", 99}, {"b", 99}}, 5, []conn{{"a", 9}}, true},
		{"of the next client if it has none", []conn{{"a", busy}, {"a", busy}, {"a", 0.5}, {"b", 2}, {"b", busy}}, 5, []conn{{"b", 2}}, true},
		{"of the client itself", []conn{{"new", 2}, {"new", 3}, {"a", 9}}, 3, []conn{{"new", 3}}, false},
		{"not of a client with as many", []conn{{"new", busy}, {"new", busy}, {"a", 9}, {"a", 9}}, 4, nil, true},
		{"not of one with fewer, and the client has more than its part", []conn{{"new", busy}, {"new", busy}, {"a", 9}}, 3, nil, false},
		{"a lone client waits", []conn{{"new", busy}, {"new", busy}}, 2, nil, true},
		{"nobody is idle", []conn{{"a", busy}, {"a", 0.9}}, 2, nil, true},
		{"some at once with a high limit", []conn{{"a", 2}, {"a", 9}, {"a", 5}, {"a", 7}}, 512, []conn{{"a", 9}, {"a", 7}, {"a", 5}}, true},
		{"but the client keeps as many", []conn{{"a", 2}, {"a", 9}, {"a", 5}, {"new", busy}}, 512, []conn{{"a", 9}, {"a", 5}}, true},
	} {
		var all clientConns
		known := map[*place]conn{}
		for _, from := range c.conns {
			cc := &place{share: from.share}
			known[cc] = from
			all.open(cc)
			if from.idle == busy {
				cc.begin()
			}
			cc.idleSince.Add(-int64(from.idle * float64(time.Second)))
		}
		idle, fair := all.makeRoom("new", c.most)
		var closed []conn
		for _, cc := range idle {
			closed = append(closed, known[cc])
		}
		if !slices.Equal(closed, c.closed) || len(idle) == 0 && fair != c.fair {
			t.Errorf("%s: closes %v, fair %v", c.name, closed, fair)
		}
	}
}
