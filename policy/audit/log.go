package audit

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"robotsproxy/policy/audit/trail"
	"robotsproxy/policy/osfile"
	"robotsproxy/policy/wake"
	"robotsproxy/robots/fetch"
)

const (
	// batchBytes is how many bytes of lines of allowed requests are written together; fewer are written after batchDelay.
	batchBytes = 256 << 10
	batchDelay = 100 * time.Millisecond
	// probeDelay is the time between attempts while the file cannot be written.
	probeDelay = time.Second
	// syncDelay is the time between two waits for the disk, with SyncInterval.
	syncDelay = time.Second
	// maxPending bounds the lines in memory, in bytes: beyond it Write waits or, if the file cannot be written, loses the
	// record.
	maxPending = 4 << 20
)

// A Log writes Records to the active segment of a trail, a JSON object a line. Each line is
// chained to the one before, which may be in an earlier segment. A lock file prevents that
// two processes write to one trail.
type Log struct {
	// opened are the Options as given to Open, and options as given to the last SetOptions.
	opened  Options
	options atomic.Pointer[Options]
	failure atomic.Pointer[error]

	// unreported is the last failure that was not logged yet.
	unreported atomic.Pointer[error]
	unsaved    unsavedSnapshots
	counts     counts
	retention  retention
	tree       treeWriter
	space      atomic.Pointer[Space]

	// tampered is what Tampered returns.
	tampered string

	// previous is the last line that Open found; zero: there was none, or it cannot be read.
	previous trail.Entry

	// continues reports that the chain continues an earlier one.
	continues bool

	// lastFound is the seq of the last line that Open found, or that Options.Known names.
	lastFound uint64

	// started reports that Start was called, and searched that findUnfinished has ended.
	started, searched atomic.Bool

	// rotated wakes retention: a segment was rotated, the options changed, or writing began or ceased to fail.
	rotated wake.Signal
	disk    osfile.Watch

	// mu guards what follows; no file is read or written under it.
	mu sync.Mutex

	// buf has the complete lines that were not written yet, since bufSince.
	buf      []byte
	bufSince time.Time

	// seq and hash are those of the last line.
	seq  uint64
	hash trail.Hash

	salter trail.Salter

	// leaves has the hashes of the lines that tree has not taken yet.
	leaves leafQueue

	// lost is the number of records that were lost since the last event about lost records.
	lost  int64
	cheap refusalCounter

	// open has the seqs of the lines of requests that are under way, by ID.
	open map[string]uint64

	// marked becomes openBound, which is for End.Open, when the disk has the line marked.at.
	marked    openMark
	openBound uint64

	// io guards what follows, see lock; mu may be locked under it, but not the reverse.
	io osfile.Mutex

	// writer is the operation of the goroutine that has locked io.
	writer  *osfile.Operation
	closed  bool
	segment activeSegment

	// writing has the lines that are being written, which were buf before. Of its bytes, writtenBytes are in the file.
	writing      []byte
	writtenBytes int

	// writingSeq and writingHash are those of the last line in writing, and writingSince is when its first line was added.
	// mu also guards writingSeq and writingSince.
	writingSeq   uint64
	writingHash  trail.Hash
	writingSince time.Time

	// written and writtenHash are seq and hash of the last line that is in the file.
	written     atomic.Uint64
	writtenHash trail.Hash

	// synced is the seq of the last line that the disk has, or that Open found.
	synced atomic.Uint64

	// syncedLink is the last line that the disk has for certain, without its Prev. mu guards it.
	syncedLink trail.Link
}

// Open locks the file and continues the chain at its end. If the file does not end with a
// complete line, as after a crash, Open moves the rest to another file, and adds an event
// that says so. It adds one too if the end is not as Options.Known says.
func Open(o Options) (*Log, error) {
	if o.File == "" {
		return nil, errors.New("audit: no file")
	}
	if o.Log == nil {
		return nil, errors.New("audit: no log")
	}
	l := &Log{opened: o, rotated: wake.New(), io: make(osfile.Mutex, 1)}
	l.retention.log, l.tree.log, l.tree.mu = l, l, make(osfile.Mutex, 1)
	l.SetOptions(o)
	last, events, err := l.segment.open(o.File, o.FIFO)
	if err != nil {
		return nil, fmt.Errorf("audit: %w", err)
	}
	if l.segment.regular {
		treeEnd, byTree := l.tree.open(last)
		var byEnd *event
		last, byEnd = compareEnd(o.File, last, o.Known.Link)
		// The numbers of lines that are missing are not used again.
		last.Seq = max(last.Seq, treeEnd)
		events = append(differences(byEnd, byTree), events...)
		if l.segment.size == 0 {
			l.segment.firstSeq = last.Seq + 1
		}
	}
	if l.segment.regular {
		// After an error the previous line is unknown.
		l.previous, _ = trail.LastEntry(o.File)
		l.continues, l.lastFound = last.Seq > 0, last.Seq
	}
	l.seq, l.hash = last.Seq, last.Hash
	l.open, l.marked = map[string]uint64{}, openMark{at: l.seq, oldest: l.seq + 1}
	l.writingSeq, l.writingHash, l.writtenHash = l.seq, l.hash, l.hash
	l.written.Store(l.seq)
	l.synced.Store(l.seq)
	for _, e := range events {
		l.report(e)
		l.addEvent(e)
	}
	// This is written at once, since after another crash nothing else would explain the file. Err has the error.
	l.commit(l.seq)
	if l.tree.torn {
		// It logs an error, and is called again.
		l.tree.grow()
	}
	return l, nil
}

// report logs an event about the state in which Open found the file.
func (l *Log) report(e *event) {
	if e.Event != trail.EventCut && e.Event != trail.EventChanged {
		l.opened.Log.Warn("audit incomplete at start", "file", l.opened.File, "detail", e.Detail, "set_aside", e.File)
		return
	}
	l.opened.Log.Error("audit differs from what the proxy wrote", "file", l.opened.File, "detail", e.Detail)
	l.tampered = cmp.Or(l.tampered, e.Detail)
}

// Tampered says what Open found that the previous writer of the trail did not leave so; "": nothing.
func (l *Log) Tampered() string { return l.tampered }

// SetOptions replaces the Options from MaxSize to Continue for the records that are written
// from now on. The others stay as given to Open. The chain continues, and has no line about
// the change.
func (l *Log) SetOptions(o Options) {
	if o.MaxSize <= 0 {
		o.MaxSize = 100 << 20
	}
	l.options.Store(&o)
	l.rotated.Set()
}

// Write adds a record. A refusal is in the file when Write returns without an error, unless it
// is only counted (IsCheap). An allowed request's record is in the file within batchDelay. With
// SyncAlways, the disk has each record when Write returns without an error.
func (l *Log) Write(r *Record) error {
	if l.options.Load().BlockedOnly && !r.Blocked() && !l.hasBegun(r.ID) || l.isOnlyCounted(r) {
		return nil
	}
	unsaved := l.SaveSnapshot(r)
	return cmp.Or(unsaved, l.write(r, r.Blocked() || l.options.Load().Sync == SyncAlways))
}

// WriteFetch adds the record of a fetch, also with Options.BlockedOnly. kind is
// trail.KindRobots or trail.KindTDMRep. The line is in the file within batchDelay.
func (l *Log) WriteFetch(kind string, r fetch.Report) error {
	return l.write(&fetchLine{kind, r}, false)
}

// isOnlyCounted reports whether r is a refusal that is counted instead of recorded, and
// counts it.
func (l *Log) isOnlyCounted(r *Record) bool {
	if !r.Refused() || !IsCheap(r.Decision.Reason) {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.addCounted(cheapInterval)
	counted := l.cheap.add(r)
	if counted {
		l.counts.counted.Add(1)
	}
	return counted
}

// addCounted adds the event about the refusals that were only counted, and begins a new
// interval, if the current one has lasted at least as long as given. While the file cannot be
// written and memory is full, the interval continues. The caller holds l.mu.
func (l *Log) addCounted(least time.Duration) {
	now := time.Now()
	if now.Sub(l.cheap.start) < least || least > 0 && len(l.buf) > maxPending {
		return
	}
	if e, counted := l.cheap.take(now, l.options.Load()); counted {
		l.chain(e)
	}
}

// write adds a line. If now is true, the line is in the file when write returns without an
// error; else it is there within batchDelay. The error is nil with Options.Continue.
func (l *Log) write(what line, now bool) error {
	seq, pending, err := l.add(what)
	switch {
	case err != nil:
	case now || pending >= maxPending:
		err = l.commit(seq)
	case pending >= batchBytes:
		err = l.tryFlush()
	}
	if l.options.Load().Continue {
		return nil
	}
	return err
}

// add adds a line to buf. It returns the line's seq and the bytes in buf. While the file
// cannot be written and buf is full, the line is lost, and add returns the error. Otherwise
// callers wait in commit, so that the proxy's limits bound what buf has beyond maxPending.
func (l *Log) add(what line) (seq uint64, pending int, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.buf) > maxPending {
		if err := l.writeError(); err != nil {
			l.lost++
			l.counts.lost.Add(1)
			return 0, 0, err
		}
	}
	if r, ok := what.(*Record); ok {
		delete(l.open, r.ID)
	}
	l.chain(what)
	return l.seq, len(l.buf), nil
}

// chain numbers a line and chains it to the last one. The caller holds l.mu.
func (l *Log) chain(what line) {
	start := len(l.buf)
	if start == 0 {
		l.bufSince = time.Now()
	}
	l.seq++
	if r, ok := what.(*Begun); ok && !r.Unused {
		l.open[r.ID] = l.seq
	}
	line := append(appendLine(l.buf, what, l.options.Load()), trail.VersionMember...)
	l.buf, l.hash = l.salter.AppendSalted(line, start, l.seq, l.hash)
	if l.tree.path != "" {
		l.leaves.add(l.seq, l.hash)
	}
	if l.opened.Tap != nil {
		l.opened.Tap(l.seq, l.buf[start:])
	}
}

// addEvent adds an event to buf, and returns its seq.
func (l *Log) addEvent(e *event) (seq uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.chain(e)
	return l.seq
}

// writeEvent writes an event and waits until it is on the disk.
func (l *Log) writeEvent(e *event) error {
	if err := l.writeError(); err != nil {
		return err
	}
	if err := l.commit(l.addEvent(e)); err != nil || l.options.Load().Sync == SyncNone {
		return err
	}
	return l.syncAside()
}

// commit returns when the lines up to seq are in the file. Callers that come during a write
// find their lines written, or write them together with all others that have been added. After
// an error the lines wait for the next probe.
func (l *Log) commit(seq uint64) error {
	if err := l.writeError(); err != nil {
		// The probe may hold l.io for long.
		return err
	}
	if err := l.lock(); err != nil {
		return err
	}
	defer l.unlock()
	err := l.lastFailure()
	if err == nil && l.written.Load() < seq {
		err = l.setFailure(l.flush())
	}
	if err == nil && l.options.Load().Sync == SyncAlways && l.synced.Load() < seq {
		// The snapshots come first, since the lines rest on them.
		if err = l.unsaved.flush(l.opened.Snapshots); err == nil {
			err = l.setFailure(l.sync())
		}
	}
	return err
}

// tryFlush writes all lines, unless another goroutine writes.
func (l *Log) tryFlush() error {
	if err := l.writeError(); err != nil || !l.tryLock() {
		return err
	}
	defer l.unlock()
	if err := l.lastFailure(); err != nil {
		return err
	}
	return l.setFailure(l.flush())
}

// flush writes all lines, first those that a failure has left in l.writing. The caller holds
// l.io.
func (l *Log) flush() error {
	replaced, err := l.segment.checkInPlace()
	if replaced != nil {
		l.opened.Log.Warn("audit file changed by another process",
			"file", l.opened.File, "detail", replaced.Detail, "set_aside", replaced.File)
		// The lost file may end with a part of a line.
		l.writtenBytes = bytes.LastIndexByte(l.writing[:l.writtenBytes], '\n') + 1
		l.segment.firstSeq = l.written.Load() + 1 + uint64(bytes.Count(l.writing[:l.writtenBytes], []byte{'\n'}))
		l.addEvent(replaced)
	}
	for range 2 {
		if err == nil && len(l.writing) == 0 {
			l.swapBuffers()
		}
		if err == nil && len(l.writing) > 0 {
			err = l.writeBuffer()
		}
	}
	return err
}

// swapBuffers moves the lines from l.buf to l.writing.
func (l *Log) swapBuffers() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lost > 0 {
		e := &event{Event: "lost", Detail: "records that could be neither written nor kept in memory", Count: l.lost}
		l.lost = 0
		l.chain(e)
	}
	if cap(l.writing) > 4*batchBytes {
		// Free the memory of a long failure.
		l.writing = nil
	}
	l.writing, l.buf = l.buf, l.writing[:0]
	l.writingSeq, l.writingHash, l.writingSince = l.seq, l.hash, l.bufSince
}

// writeBuffer writes l.writing. It rotates the segment before if it would become too large.
func (l *Log) writeBuffer() error {
	if l.writtenBytes == 0 && l.segment.regular && l.segment.size > 0 && l.segment.size+int64(len(l.writing)) > l.options.Load().MaxSize {
		if err := l.rotate(); err != nil {
			return err
		}
	}
	n, err := l.segment.write(l.writing[l.writtenBytes:])
	l.writtenBytes += n
	l.counts.bytes.Add(uint64(n))
	if err != nil {
		return err
	}
	l.counts.lines.Add(l.writingSeq - l.written.Load())
	l.writing, l.writtenBytes = l.writing[:0], 0
	l.written.Store(l.writingSeq)
	l.writtenHash = l.writingHash
	return nil
}

// rotate begins a new segment.
func (l *Log) rotate() error {
	if l.options.Load().Sync != SyncNone {
		if err := l.sync(); err != nil {
			return err
		}
	}
	if err := l.segment.rotate(l.written.Load() + 1); err != nil {
		return err
	}
	l.counts.rotations.Add(1)
	l.rotated.Set()
	return nil
}

// sync waits until the disk has all lines that are in the file. The caller holds l.io.
func (l *Log) sync() error {
	l.writer.End()
	l.writer = l.disk.Begin(osfile.MaxSync)
	err := l.segment.sync()
	l.writer.End()
	l.writer = l.disk.Begin(osfile.MaxWrite)
	if err != nil {
		return err
	}
	l.setSynced(trail.Link{Seq: l.written.Load(), Hash: l.writtenHash})
	return nil
}

// Run writes batches, tries again after failures, waits for the disk when it is time, and
// compresses and removes old segments, until ctx ends.
func (l *Log) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return l.writeBatches(ctx) })
	// The states are logged by a goroutine of their own, since writeBatches may hang.
	g.Go(func() error { return l.logStates(ctx) })
	g.Go(func() error { return l.retention.run(ctx) })
	g.Go(func() error { return l.tree.run(ctx) })
	g.Go(func() error { return l.findUnfinished(ctx) })
	return g.Wait()
}

func (l *Log) writeBatches(ctx context.Context) error {
	tick := time.NewTicker(batchDelay)
	defer tick.Stop()
	var probed, synced time.Time
	for {
		select {
		case <-ctx.Done():
			return nil
		case now := <-tick.C:
			l.mu.Lock()
			l.addCounted(cheapInterval)
			l.mu.Unlock()
			if l.Err() != nil && now.Sub(probed) < probeDelay {
				continue
			}
			probed = now
			due := now.Sub(synced) >= syncDelay
			if due {
				synced = now
			}
			l.probe(due)
		}
	}
}

// probe writes all lines. If the time has come (due), it also waits for the disk.
func (l *Log) probe(due bool) {
	if l.lock() != nil {
		return
	}
	err := l.flush()
	if err != nil {
		l.setFailure(err)
	}
	written := trail.Link{Seq: l.written.Load(), Hash: l.writtenHash}
	how := l.options.Load().Sync
	sync := (how == SyncAlways || how == SyncInterval && due) && l.synced.Load() < written.Seq
	failures := l.counts.failures.Load()
	l.unlock()
	if due || sync {
		// The snapshots come first, since the lines rest on them.
		l.unsaved.retry(l.opened.Snapshots)
	}
	if err != nil {
		return
	}
	if sync {
		err = l.syncAside()
	}
	if l.lock() != nil {
		return
	}
	defer l.unlock()
	if sync && err == nil {
		l.setSynced(written)
	}
	// If another write has failed meanwhile, its error remains.
	if err != nil || l.counts.failures.Load() == failures {
		l.setFailure(err)
	}
}

// Close writes all lines and closes the file. Nothing can be written after that. If the disk hangs, Close leaves the file
// open and returns the error.
func (l *Log) Close() error {
	if err := l.lock(); err != nil {
		return err
	}
	defer l.unlock()
	l.mu.Lock()
	l.addCounted(0)
	l.chainStop()
	l.mu.Unlock()
	err := l.writeLast()
	l.unsaved.retry(l.opened.Snapshots)
	// If it cannot be written, tree.close has the error.
	l.tree.grow()
	l.mu.Lock()
	added := len(l.buf) > 0
	l.mu.Unlock()
	if err == nil && added {
		// The tree has added an event.
		err = l.writeLast()
	}
	l.closed = true
	return errors.Join(err, l.unsaved.err(), l.segment.close(), l.tree.close())
}

// writeLast writes all lines and waits until the disk has them, also with SyncNone, since the last checkpoint rests on them.
// The caller holds l.io.
func (l *Log) writeLast() error {
	if err := l.setFailure(l.flush()); err != nil {
		return err
	}
	if l.options.Load().Sync == SyncNone {
		return l.segment.sync()
	}
	return l.sync()
}
