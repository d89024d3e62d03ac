package redis

import (
	"context"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"robotsproxy/policy/pace"
)

const (
	renewEvery = 3 * time.Second // less than a third of leaseTime
	maxReports = 1 << 14         // that wait; more are dropped, and counted
	batch      = 256             // calls of one pipeline, and keys of one script
)

// A queue holds the reports that are not sent yet.
type queue struct {
	wake chan struct{} // holds a token: there is something to do

	mu      sync.Mutex // guards what follows
	waiting []pace.Report
	due     bool // all leases are to be renewed at once
}

func (q *queue) add(r pace.Report) bool {
	q.mu.Lock()
	full := len(q.waiting) >= maxReports
	if !full {
		q.waiting = append(q.waiting, r)
	}
	q.mu.Unlock()
	q.poke()
	return !full
}

// renew has all leases renewed soon.
func (q *queue) renew() {
	q.mu.Lock()
	q.due = true
	q.mu.Unlock()
	q.poke()
}

func (q *queue) poke() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// take gives those that wait, and says whether the leases are to be renewed. empty is
// used for the next.
func (q *queue) take(empty []pace.Report) ([]pace.Report, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	all, due := q.waiting, q.due
	q.waiting, q.due = empty, false
	return all, due
}

// leases are the places that this replica has taken. It may be shared.
type leases struct {
	last atomic.Uint64

	mu  sync.Mutex        // guards what follows
	all map[string]string // keys by the lease's name
}

func (l *leases) name(id string) string {
	return id + "." + strconv.FormatUint(l.last.Add(1), 36)
}

func (l *leases) add(t *turn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.all == nil {
		l.all = make(map[string]string)
	}
	l.all[t.place] = t.key
}

func (l *leases) remove(t *turn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.all, t.place)
}

// list gives the names of all, and the keys of the server's that they are in.
func (l *leases) list() (keys []string, names []any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for name, key := range l.all {
		keys = append(keys, placesKey(key))
		names = append(names, name)
	}
	return keys, names
}

func (l *leases) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.all)
}

// Report is [pace.Store]'s.
func (f *Fleet) Report(r pace.Report) {
	if t, ok := r.Lease.(*turn); ok {
		f.held.remove(t)
	} else if r.BackOff.Until.IsZero() {
		return
	}
	if !f.reports.add(r) {
		f.counts.dropped.Add(1)
	}
}

// report is the part of Run that sends the reports and renews the leases. That it alone
// does both keeps a place that was given back from being taken again.
func (f *Fleet) report(ctx context.Context, _ Hooks) error {
	ticks := time.NewTicker(renewEvery)
	defer ticks.Stop()
	var spare []pace.Report
	for {
		due, over := false, false
		select {
		case <-ctx.Done():
			over = true
		case <-ticks.C:
			due = true
		case <-f.reports.wake:
		}
		if f.away() {
			if over {
				return nil
			}
			continue // they are sent when it is back, and renewed
		}
		all, asked := f.reports.take(spare[:0])
		short := context.WithoutCancel(ctx)
		f.send(short, all)
		if over {
			return nil
		}
		if due || asked {
			f.renewAll(short)
		}
		clear(all)
		spare = all
	}
}

// send sends the reports, in pipelines. From where that fails on they are lost.
func (f *Fleet) send(ctx context.Context, all []pace.Report) {
	for len(all) > 0 {
		some := all[:min(batch, len(all))]
		err := f.do(ctx, func(ctx context.Context, c *redis.Client) error {
			err := f.pipe(ctx, c, some)
			if redis.HasErrorPrefix(err, "NOSCRIPT") { // somebody has had the server forget them
				if err = loadScripts(ctx, c); err == nil {
					err = f.pipe(ctx, c, some)
				}
			}
			return err
		})
		if err != nil {
			f.counts.dropped.Add(uint64(len(all)))
			return
		}
		all = all[len(some):]
	}
}

// pipe sends the reports in one pipeline. To do it again is no harm.
func (f *Fleet) pipe(ctx context.Context, c *redis.Client, some []pace.Report) error {
	now := time.Now()
	pipe := c.Pipeline()
	for i := range some {
		f.queueReport(ctx, pipe, &some[i], now)
	}
	_, err := pipe.Exec(ctx)
	return err
}

func (f *Fleet) queueReport(ctx context.Context, pipe redis.Pipeliner, r *pace.Report, now time.Time) {
	if t, ok := r.Lease.(*turn); ok {
		pipe.ZRem(ctx, placesKey(t.key), t.place)
		if r.Unused {
			undoScript.EvalSha(ctx, pipe, t.undoKeys(), t.names[0], t.was[0], t.is[0], t.was[1], t.is[1])
		}
	}
	if !r.BackOff.Until.IsZero() {
		f.queuePause(ctx, pipe, r, now)
	}
}

func (t *turn) undoKeys() []string {
	keys := []string{paceKey(t.key)}
	if t.is[1] != "" {
		keys = append(keys, clockKey(t.key, t.names[1]))
	}
	return keys
}

// renewAll renews the lease of each place that is held.
func (f *Fleet) renewAll(ctx context.Context) {
	keys, names := f.held.list()
	for len(keys) > 0 {
		n := min(batch, len(keys))
		err := f.do(ctx, func(ctx context.Context, c *redis.Client) error {
			return renewScript.Run(ctx, c, keys[:n], append([]any{micros(leaseTime)}, names[:n]...)...).Err()
		})
		if err != nil {
			return
		}
		keys, names = keys[n:], names[n:]
	}
}
