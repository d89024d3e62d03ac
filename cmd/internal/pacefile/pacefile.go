// Package pacefile keeps the pace of each host for all processes of one machine that share a state directory, in one
// file of that directory. A [Table] is the pace.Store of one process.
//
// The file has a fixed size. A request locks it, reads the page of its host, writes the page and unlocks the file. It
// is never synced: it must outlive a process, and the system keeps what a killed process has written. All space is
// taken when the file is made, so that a full disk later prevents no write on most file systems.
//
// How it fails: if the file cannot be locked, read or written, Reserve returns an error and no slot, so that requests
// wait and are refused in the end. It never says that its process is alone, since another process may have the same
// trouble. If the file is removed, replaced or truncated, all processes use a new one from their next request on; one
// request to each host may be early. A damaged page is empty. A page with more live rows than it has space for forgets
// back-offs that have ended, and then the rows that would delay requests longest; one request of another process may then
// be early. Concurrency slots of a process that was killed are free after leaseTime. If the wall clock is set back, what
// is in the file is set back with it; if it is set forward, requests may be early by as much, as may be the ends of
// back-offs of other processes.
package pacefile

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"robotsproxy/policy/osfile"
	"robotsproxy/policy/pace"
	"robotsproxy/policy/pace/ledger"
)

// leaseTime is how long a concurrency slot stays in use if its process does not renew it.
const leaseTime = 10 * time.Second

// fullRetry is the time until a request asks again whose host finds no space in its page.
const fullRetry = time.Second

// A slot may be used for a windowPart of what the Pacer asks for, but not for less than minWindow if it asks for more:
// no reply from another machine is waited for.
const (
	windowPart = 3
	minWindow  = time.Millisecond
)

var errLimiters = errors.New("pace file: a slot request must have one or two limiters")

// A Table is one process's use of the file. Create it with Open. Any number of goroutines may share it.
type Table struct {
	path string
	log  *slog.Logger

	// process is the random number of this process in the file.
	process uint64

	// slots is the number of the last slot of this process. The first one is random, so that they differ from those of other
	// processes.
	slots atomic.Uint64
	watch osfile.Watch

	// fileMu guards the fields below, and is held while the file is locked.
	fileMu osfile.Mutex
	file   *os.File

	// head is the header as of the last use of the file.
	head header

	// endsRead is the number of the last ended back-off that this process has read.
	endsRead uint64

	// pages are the buffers of load.
	pages [2]page

	// pacer is nil until Run begins.
	pacer atomic.Pointer[pace.Pacer]

	// flushMu is held while reports are written, so that they are written in their order.
	flushMu sync.Mutex

	// wake contains a value if there is something to write.
	wake chan struct{}

	// failing is the error of the last use of the file; nil if it succeeded.
	failing atomic.Pointer[error]

	// mu guards the fields below.
	mu sync.Mutex

	// inUse has the number of concurrency slots of this process by key.
	inUse   map[string]int
	credits map[string]*credit

	// changed has the keys whose inUse and credit are not in the file yet.
	changed map[string]bool

	// unused are the slots to be given back, and backOffs are the back-offs to be written.
	unused   []*lease
	backOffs []pace.Report
}

// maxReports bounds what waits to be written. Further reports are dropped, see pace.Store.
const maxReports = 1 << 14

// A lease is the Lease of a pace.Reservation.
type lease struct {
	key  string
	slot uint64

	// limiters are the rows of its limiters, and before are these limiters without the slot.
	limiters []name
	before   []ledger.Limiter

	concurrency *concurrencySlot
}

// A concurrencySlot is the concurrency slot of a request, which all its leases share. Table.mu guards it.
type concurrencySlot struct{ returned bool }

// Open opens the file, or makes it. An error means that it can be neither read nor made.
func Open(path string, log *slog.Logger) (*Table, error) {
	var random [16]byte
	rand.Read(random[:])
	t := &Table{
		path: path, log: log, process: binary.LittleEndian.Uint64(random[:8]), fileMu: make(osfile.Mutex, 1),
		wake: make(chan struct{}, 1), inUse: make(map[string]int), credits: make(map[string]*credit), changed: make(map[string]bool),
	}
	t.slots.Store(binary.LittleEndian.Uint64(random[8:]))
	var err error
	if t.file, err = openFile(path); err == nil {
		var unlock func()
		if unlock, err = t.lock(); err == nil {
			unlock()
			return t, nil
		}
		t.file.Close()
	}
	return nil, fmt.Errorf("pace of this machine: %w", err)
}

func openFile(path string) (*os.File, error) {
	return osfile.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
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

// Err returns the error of the last use of the file; nil: it succeeded.
func (t *Table) Err() error {
	if err := t.failing.Load(); err != nil {
		return *err
	}
	return nil
}

// Standing implements [pace.Store]: a process never paces alone.
func (t *Table) Standing() pace.Standing { return pace.Standing{} }

// Reserve implements [pace.Store].
func (t *Table) Reserve(ctx context.Context, a pace.SlotRequest) (r pace.Reservation, err error) {
	if len(a.Limiters) < 1 || len(a.Limiters) > maxLimiters {
		return r, errLimiters
	}
	if ctx.Err() != nil {
		return r, context.Cause(ctx)
	}
	if r, ok := t.ReserveAhead(&a); ok {
		return r, nil
	}
	a.Window = max(min(a.Window, minWindow), a.Window/windowPart)
	err = t.use(func(now clock) error {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		// Another request may have taken slots in advance meanwhile.
		var ok bool
		if r, ok = t.ReserveAhead(&a); ok {
			return nil
		}
		r, err = t.reserve(&a, now)
		return err
	})
	if err != nil {
		return pace.Reservation{}, err
	}
	return r, nil
}

// use calls f with the file locked.
func (t *Table) use(f func(now clock) error) error {
	unlock, err := t.lock()
	if err != nil {
		return t.note(err)
	}
	defer unlock()
	return f(clockNow())
}

// lock locks the file that has the path now, which it makes if there is none, and reads its header.
func (t *Table) lock() (unlock func(), err error) {
	if err := t.fileMu.Lock(&t.watch); err != nil {
		return nil, err
	}
	using := t.watch.Begin(osfile.MaxWrite)
	unlock = func() {
		// Unlock fails only if the file does, whose error the next lock returns.
		_ = osfile.Unlock(t.file)
		using.End()
		t.fileMu.Unlock()
	}
	for {
		if err := t.lockFile(unlock); err != nil {
			return nil, err
		}
		size, same := osfile.Named(t.file, t.path)
		if same {
			err = t.readHeader(size)
			break
		}
		var f *os.File
		if f, err = openFile(t.path); err != nil {
			break
		}
		t.file.Close()
		t.file = f
	}
	if err != nil {
		unlock()
		return nil, err
	}
	return unlock, nil
}

// lockFile locks the open file, or returns an error and calls unlock. Another process may have been stopped while it had
// the lock. After osfile.MaxWrite, lockFile therefore leaves it to a goroutine to wait for the lock and call unlock.
func (t *Table) lockFile(unlock func()) error {
	err := osfile.TryLock(t.file)
	if errors.Is(err, osfile.ErrLocked) {
		f, locked, left := t.file, make(chan error), make(chan struct{})
		go func() {
			err := osfile.Lock(f)
			select {
			case locked <- err:
			case <-left:
				unlock()
			}
		}()
		timer := time.NewTimer(osfile.MaxWrite)
		defer timer.Stop()
		select {
		case err = <-locked:
		case <-timer.C:
			close(left)
			return cmp.Or(t.watch.Err(), osfile.ErrHangs)
		}
	}
	if err != nil {
		unlock()
	}
	return err
}

// readHeader reads the header of the locked file, which has the given size. In a new file, the concurrency slots of this
// process must be written again.
func (t *Table) readHeader(size int64) (err error) {
	seed := t.head.seed()
	if err = t.head.readOrMake(t.file, size); err == nil && t.head.seed() != seed {
		t.endsRead = t.head.last()
		t.rewrite()
	}
	return err
}

// note logs the first error of the file, and that it can be used again.
func (t *Table) note(err error) error {
	switch failing := t.failing.Load(); {
	case err == nil && failing != nil:
		t.failing.Store(nil)
		t.log.Info("pace file in use again", "file", t.path)
	case err != nil:
		// With a variable of its own, err is not allocated while the file works.
		failed := err
		if t.failing.Swap(&failed) == nil {
			t.log.Warn("pace file failed, requests wait", "file", t.path, "error", err)
		}
	}
	return err
}

// reserve reserves a slot. The caller has locked the file.
func (t *Table) reserve(a *pace.SlotRequest, now clock) (pace.Reservation, error) {
	key := t.nameOf(a.Key, nil)
	siteKey := key
	if a.BackOffKey != "" && a.BackOffKey != a.Key {
		siteKey = t.nameOf(a.BackOffKey, nil)
	}
	p, site, err := t.loadBoth(key, siteKey, now)
	if err != nil {
		return pace.Reservation{}, err
	}
	held, _ := a.Lease.(*lease)
	if held != nil && a.Unused {
		p.undo(held, now)
	}
	next := &lease{key: a.Key, slot: t.slots.Add(1)}
	known := ledger.Key{BackOff: site.backOff(siteKey, now), InUse: p.inUse(key, t.process, now)}
	known.Limiters = t.limiters(p, a, next, now)
	own, kept := t.ownInUse(a.Key, held)
	known.InUse += own
	if kept {
		known.InUse--
		next.concurrency = held.concurrency
	} else {
		// If those that wait did not count, the process that has the slots would always be faster.
		known.InUse += p.waitingBefore(key, t.process, now)
	}
	r := known.Reserve(a, next.slot, now.Time)
	p.setWaiting(key, t.process, r.Full, now)
	space := site.setBackOff(siteKey, known.BackOff, now)
	var ahead *credit
	if !r.At.IsZero() {
		if fits(a) && r.BackOff == (pace.BackOff{}) && !r.At.After(now.Time) {
			ahead = takeCredit(a, &known.Limiters[0], a.MaxConcurrent-known.InUse-1, now)
		}
		for i, row := range next.limiters {
			space = p.setLimiter(row, known.Limiters[i], now) && space
		}
		if !kept {
			own++
		}
		if ahead != nil {
			own += ahead.concurrent
		}
		space = p.setInUse(key, t.process, own, now) && space
	}
	if !space {
		// Neither page is stored, so nothing is reserved.
		return pace.Reservation{Wait: fullRetry, BackOff: r.BackOff}, nil
	}
	if err := t.storeBoth(p, site, now); err != nil {
		return pace.Reservation{}, err
	}
	if !r.At.IsZero() {
		r.Lease = t.took(next, ahead)
	}
	return r, nil
}

// limiters returns the limiters of a request in its page, and notes them in its next lease. If the request shares the slot
// of a fetch and no later slot was reserved, the first limiter is without that slot.
func (t *Table) limiters(p *page, a *pace.SlotRequest, next *lease, now clock) (all []ledger.Limiter) {
	fetch, _ := a.Follows.(*lease)
	for i, l := range a.Limiters {
		row := t.nameOf(a.Key, &l.Name)
		state := p.limiter(row, now)
		next.limiters, next.before = append(next.limiters, row), append(next.before, state)
		if fetch != nil && i == 0 && len(fetch.limiters) > 0 && fetch.limiters[0] == row && state.Slot == fetch.slot {
			state = fetch.before[0]
		}
		all = append(all, state)
	}
	return all
}

// ownInUse returns how many concurrency slots of the key this process has, and whether held still is one of them. What was
// taken in advance is given up.
func (t *Table) ownInUse(key string, held *lease) (n int, kept bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.credits[key] != nil {
		delete(t.credits, key)
		t.changed[key] = true
		t.wakeUp()
	}
	return t.inUse[key], held != nil && !held.concurrency.returned
}

// took counts the concurrency slot of a lease and what was taken in advance, which are in the file.
func (t *Table) took(l *lease, ahead *credit) *lease {
	t.mu.Lock()
	defer t.mu.Unlock()
	if ahead != nil {
		t.credits[l.key] = ahead
		// The credit ends soon, after which the file must have less again.
		t.changed[l.key] = true
		t.wakeUp()
		// This slot cannot be given back without the later ones.
		l.limiters = nil
	}
	if l.concurrency == nil {
		l.concurrency = new(concurrencySlot)
		t.inUse[l.key]++
	}
	return l
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
		if r.Unused && l.limiters != nil && len(t.unused) < maxReports {
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
	t.wakeUp()
}

func (t *Table) wakeUp() {
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

// readOrMake reads the header of a file, which it makes anew if it is not complete. The caller has locked it. The header is
// not a result: it would make the stack of each request twice as large.
func (h *header) readOrMake(f *os.File, size int64) error {
	if size == fileSize {
		if _, err := f.ReadAt(h[:], 0); err != nil || h.valid() {
			return err
		}
	}
	if err := osfile.Truncate(f, 0); err != nil {
		return err
	}
	// The file has no holes, so that a full disk prevents no later write.
	if _, err := io.Copy(io.NewOffsetWriter(f, 0), io.LimitReader(zeros{}, fileSize)); err != nil {
		return err
	}
	h.make()
	_, err := f.WriteAt(h[:], 0)
	return err
}

// zeros is a reader of zeros without end.
type zeros struct{}

// Read implements io.Reader.
func (zeros) Read(b []byte) (int, error) {
	clear(b)
	return len(b), nil
}
