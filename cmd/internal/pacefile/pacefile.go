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
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"robotsproxy/policy/osfile"
	"robotsproxy/policy/pace"
	"robotsproxy/policy/pace/ledger"
	"robotsproxy/policy/wake"
)

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
	wake wake.Signal

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

// A lease is the Lease of a pace.Reservation.
type lease struct {
	key string

	// The limiters of the slot are rows.
	ledger.Slot[name]
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
		wake: wake.New(), inUse: make(map[string]int), credits: make(map[string]*credit), changed: make(map[string]bool),
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

// Err returns the error of the last use of the file; nil: it succeeded.
func (t *Table) Err() error {
	if err := t.failing.Load(); err != nil {
		return *err
	}
	return nil
}

// Standing implements [pace.Store]: a process never paces alone.
func (t *Table) Standing() pace.Standing { return pace.Standing{} }

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

// nameOf returns the name of a key, or of a limiter of the key. Nobody can choose keys whose rows are in the same page:
// the seed is secret.
func (t *Table) nameOf(key string, of *string) (n name) {
	b := append(make([]byte, 0, 512), t.head[seedAt:seedAt+seedSize]...)
	b = binary.LittleEndian.AppendUint64(b, uint64(len(key)))
	b = append(b, key...)
	if of != nil {
		b = append(append(b, 1), *of...)
	}
	sum := sha256.Sum256(b)
	copy(n[:], sum[:])
	return n
}

// load reads the page of a key. A page that is damaged, as after a loss of power, is empty.
func (t *Table) load(p *page, key name, now clock) error {
	p.number, p.changed, p.found = pageOf(key), false, [rows]bool{}
	if _, err := t.file.ReadAt(p.data[:], (1+p.number)*pageSize); err != nil {
		return t.note(err)
	}
	if binary.LittleEndian.Uint32(p.data[:]) != p.sum() {
		clear(p.data[:])
	}
	if ahead := p.get(writtenAt) - now.wall; ahead > 0 {
		p.setBack(ahead)
	}
	return nil
}

// loadBoth loads the page of key, and that of backOffKey, which may be the same.
func (t *Table) loadBoth(key, backOffKey name, now clock) (p, backOffPage *page, err error) {
	p, backOffPage = &t.pages[0], &t.pages[0]
	if err := t.load(p, key, now); err != nil || pageOf(backOffKey) == pageOf(key) {
		return p, backOffPage, err
	}
	backOffPage = &t.pages[1]
	return p, backOffPage, t.load(backOffPage, backOffKey, now)
}

// storeBoth stores two pages, which may be the same.
func (t *Table) storeBoth(p, backOffPage *page, now clock) error {
	if err := t.store(backOffPage, now); err != nil || p == backOffPage {
		return err
	}
	return t.store(p, now)
}

// store writes the page if it has changed.
func (t *Table) store(p *page, now clock) error {
	if !p.changed {
		return t.note(nil)
	}
	p.set(writtenAt, now.wall)
	binary.LittleEndian.PutUint32(p.data[:], p.sum())
	_, err := t.file.WriteAt(p.data[:], (1+p.number)*pageSize)
	return t.note(err)
}

// undo gives the slot of l back.
func (p *page) undo(l *lease, now clock) {
	l.Undo(func(row name) ledger.Limiter { return p.limiter(row, now) },
		func(row name, was ledger.Limiter) { p.setLimiter(row, was, now) })
}

// spare returns how many concurrency slots of a key are taken in advance. The caller holds t.mu.
func (t *Table) spare(key string, now time.Time) int {
	c := t.credits[key]
	if c == nil {
		return 0
	}
	if !now.Before(c.until) {
		delete(t.credits, key)
		return 0
	}
	return c.concurrent
}

// rewrite lets the concurrency slots of this process be written again, which renews them.
func (t *Table) rewrite() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for key := range t.inUse {
		t.changed[key] = true
		t.wake.Set()
	}
}
