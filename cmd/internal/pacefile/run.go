package pacefile

import (
	"context"
	"errors"
	"slices"
	"time"

	"robotsproxy/policy/pace"
	"robotsproxy/policy/pace/ledger"
)

const (
	// gather is how long a report waits for others, so that many reports of one host are written once. Those of
	// back-offs do not wait.
	gather = 5 * time.Millisecond

	// readEvery is how often the back-offs are read that operators have ended.
	readEvery = time.Second

	// renewEvery is how often the concurrency slots of this process are renewed.
	renewEvery = leaseTime / 4
)

// maxReports bounds what waits to be written. Further reports are dropped, see pace.Store.
const maxReports = 1 << 14

// Run writes reports, renews concurrency slots, and tells p of the back-offs that an operator has ended in any process,
// until ctx ends. It must be called once.
func (t *Table) Run(ctx context.Context, p *pace.Pacer) error {
	t.pacer.Store(p)
	read, renew := time.NewTicker(readEvery), time.NewTicker(renewEvery)
	defer read.Stop()
	defer renew.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-read.C:
			t.read()
		case <-renew.C:
			t.rewrite()
		case <-t.wake:
			if !t.urgent() {
				select {
				case <-ctx.Done():
				case <-time.After(gather):
				}
			}
			// use has logged any error.
			_ = t.flush()
		}
	}
}

// urgent reports whether a back-off waits to be written.
func (t *Table) urgent() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.backOffs) > 0
}

// read tells the Pacer of the back-offs that have ended.
func (t *Table) read() {
	var ended []string
	// use has logged any error.
	_ = t.use(func(clock) error {
		ended, t.endsRead = t.head.since(t.endsRead), t.head.last()
		return nil
	})
	t.tell(ended)
}

// A change is a change of the rows of a key.
type change struct {
	key string
	do  func(p *page, key name, now clock)
}

// maxChanges is how many changes are made while the file is locked, which other requests wait for.
const maxChanges = 64

// flush writes all reports, in their order. It tells the Pacer of the back-offs that it has ended.
func (t *Table) flush() error {
	t.flushMu.Lock()
	defer t.flushMu.Unlock()
	all, ended := t.waiting()
	for some := range slices.Chunk(all, maxChanges) {
		err := t.use(func(now clock) error {
			for _, c := range some {
				p, key := &t.pages[0], t.nameOf(c.key, nil)
				if err := t.load(p, key, now); err != nil {
					return err
				}
				c.do(p, key, now)
				if err := t.store(p, now); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	if len(ended) == 0 {
		return nil
	}
	err := t.announce(ended)
	t.tell(ended)
	return err
}

// tell tells the Pacer of back-offs that have ended.
func (t *Table) tell(ended []string) {
	p := t.pacer.Load()
	if p == nil {
		return
	}
	for _, key := range ended {
		p.MergeBackOff(key, pace.BackOff{Ended: true})
	}
}

// waiting takes what waits to be written, and returns the keys of back-offs that have ended.
func (t *Table) waiting() (all []change, ended []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, l := range t.unused {
		all = append(all, change{l.key, func(p *page, _ name, now clock) { p.undo(l, now) }})
	}
	for _, r := range t.backOffs {
		if r.BackOff.Ended {
			ended = append(ended, r.Key)
		}
		all = append(all, change{r.Key, func(p *page, key name, now clock) {
			// If there is no space, the other processes learn of the back-off from the origin.
			p.setBackOff(key, ledger.Merge(p.backOff(key, now), r.BackOff), now)
		}})
	}
	for key := range t.changed {
		all = append(all, change{key, func(p *page, n name, now clock) { p.setInUse(n, t.process, t.count(key), now) }})
	}
	t.unused, t.backOffs = nil, nil
	clear(t.changed)
	return all, ended
}

// count returns how many concurrency slots of the key this process has, in use or in advance.
func (t *Table) count(key string) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := t.spare(key, time.Now())
	// What is not used of the credit must be given back later.
	if n > 0 {
		t.changed[key] = true
		t.wake.Set()
	}
	return t.inUse[key] + n
}

// announce writes which back-offs have ended, for the other processes.
func (t *Table) announce(ended []string) error {
	return t.use(func(clock) error {
		read := t.endsRead == t.head.last()
		for _, key := range ended {
			t.head.end(key)
		}
		// flush tells this process of these itself.
		if read {
			t.endsRead = t.head.last()
		}
		_, err := t.file.WriteAt(t.head[:], 0)
		return t.note(err)
	})
}

// Close writes what waits to be written and closes the file. It must be called once, after Run has returned.
func (t *Table) Close() error {
	err := t.flush()
	// The file is left open if an operation on it hangs.
	if t.fileMu.Lock(&t.watch) != nil {
		return err
	}
	defer t.fileMu.Unlock()
	return errors.Join(err, t.file.Close())
}

// Report implements [pace.Store].
func (t *Table) Report(r pace.Report) {
	t.mu.Lock()
	if l, ok := r.Lease.(*lease); ok && !l.concurrency.returned {
		l.concurrency.returned = true
		t.changed[l.key] = true
		if t.inUse[l.key]--; t.inUse[l.key] == 0 {
			delete(t.inUse, l.key)
		}
		if r.Unused && l.Limiters != nil && len(t.unused) < maxReports {
			t.unused = append(t.unused, l)
		}
	}
	if r.BackOff != (pace.BackOff{}) && len(t.backOffs) < maxReports {
		t.backOffs = append(t.backOffs, r)
	}
	t.mu.Unlock()
	if r.BackOff.Ended {
		// The end is written at once, so that a later back-off does not end with it. use has logged any error.
		_ = t.flush()
		return
	}
	t.wake.Set()
}
