package pacefile

import (
	"context"
	"time"

	"robotsproxy/policy/osfile"
	"robotsproxy/policy/pace"
	"robotsproxy/policy/pace/ledger"
)

const (
	// gather is how long a report waits for others, so that many reports of one host are written once. Those of
	// back-offs do not wait.
	gather = 5 * time.Millisecond

	readEvery  = time.Second // how often the back-offs are read that operators have ended
	renewEvery = leaseTime / 4
)

// Run writes reports, renews concurrency slots, and tells p of the back-offs that an operator has ended in any process,
// until ctx ends. It must be called once.
func (t *Table) Run(ctx context.Context, p *pace.Pacer) error {
	read, renew := time.NewTicker(readEvery), time.NewTicker(renewEvery)
	defer read.Stop()
	defer renew.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-read.C:
			t.read(p)
		case <-renew.C:
			t.renew()
		case <-t.wake:
			if !t.urgent() {
				select {
				case <-ctx.Done():
				case <-time.After(gather):
				}
			}
			_ = t.flush(p) // use has logged any error
		}
	}
}

// urgent reports whether a back-off waits to be written.
func (t *Table) urgent() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.backOffs) > 0
}

// read tells p of the back-offs that have ended. If the file was removed or replaced, read opens the new one.
func (t *Table) read(p *pace.Pacer) {
	var ended []string
	err := t.use(func(clock) error {
		var head header
		if _, err := t.file.ReadAt(head[:], 0); err != nil {
			return t.note(err)
		}
		ended, t.news = head.since(t.news), head.last()
		return nil
	})
	for _, key := range ended {
		p.MergeBackOff(key, pace.BackOff{Ended: true})
	}
	if err == nil {
		t.reopen()
	}
}

// reopen opens the file again if it was removed or replaced.
func (t *Table) reopen() {
	if t.turn.Lock(&t.watch) != nil {
		return
	}
	defer t.turn.Unlock()
	if _, same := osfile.Named(t.file, t.path); !same {
		_ = t.note(t.open())
	}
}

// renew renews the concurrency slots of this process.
func (t *Table) renew() {
	t.mu.Lock()
	for key := range t.inUse {
		t.changed[key] = true
	}
	t.mu.Unlock()
	_ = t.flush(nil) // use has logged any error
}

// flush writes all reports. It tells p of the back-offs that it has ended; p may be nil.
func (t *Table) flush(p *pace.Pacer) error {
	t.mu.Lock()
	unused, reports := t.unused, t.backOffs
	changed := t.changed
	t.unused, t.backOffs, t.changed = nil, nil, make(map[string]bool)
	t.mu.Unlock()
	if len(unused)+len(reports)+len(changed) == 0 {
		return nil
	}
	err := t.use(func(now clock) error {
		for _, l := range unused {
			err := t.change(l.key, now, func(p *page, _ name) { p.undo(l, now) })
			if err != nil {
				return err
			}
		}
		for _, r := range reports {
			err := t.change(r.Key, now, func(p *page, key name) {
				b := pace.BackOff{}
				if !r.BackOff.Ended {
					b = ledger.Merge(p.backOff(key, now), r.BackOff)
				}
				p.setBackOff(key, b, now) // without space, others learn of it from the origin
			})
			if err != nil {
				return err
			}
		}
		for key := range changed {
			if err := t.change(key, now, func(p *page, n name) { p.setInUse(n, t.process, t.count(key), now) }); err != nil {
				return err
			}
		}
		return t.announce(reports)
	})
	for _, r := range reports {
		if r.BackOff.Ended && p != nil {
			p.MergeBackOff(r.Key, r.BackOff)
		}
	}
	return err
}

// count returns how many concurrency slots of the key this process has, in use or in advance.
func (t *Table) count(key string) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := t.spare(key, time.Now())
	if n > 0 {
		t.changed[key] = true // until they are given back
		t.wakeUp()
	}
	return t.inUse[key] + n
}

// change changes the page of a key.
func (t *Table) change(key string, now clock, f func(*page, name)) error {
	p, n := &t.pages[0], t.nameOf(key, nil)
	if err := t.load(p, n, now); err != nil {
		return err
	}
	f(p, n)
	return t.store(p, now)
}

// announce writes which back-offs have ended, for the other processes.
func (t *Table) announce(reports []pace.Report) error {
	var head header
	read := false
	for _, r := range reports {
		if !r.BackOff.Ended {
			continue
		}
		if !read {
			if _, err := t.file.ReadAt(head[:], 0); err != nil {
				return t.note(err)
			}
			read = true
		}
		if n := head.last(); t.news == n {
			t.news++ // flush tells this process
		}
		head.end(r.Key)
	}
	if !read {
		return nil
	}
	_, err := t.file.WriteAt(head[:], 0)
	return t.note(err)
}
