package audit

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"robotsproxy/policy/audit/trail"
	"robotsproxy/robots/fetch"
)

const (
	batchOctets = 256 << 10              // allowed requests' lines are written when so much has gathered
	batchDelay  = 100 * time.Millisecond // or when so much time has passed
	probeDelay  = time.Second            // between probes while the file cannot be written
	syncDelay   = time.Second            // between two waits for the disk, with SyncInterval
	maxPending  = 4 << 20                // octets that may gather: then who comes waits for the file, and where that cannot be written later lines are lost, and counted
)

// ErrUnwritable is in the chain of every error of a Log that cannot write.
var ErrUnwritable = errors.New("the audit cannot be written")

// ErrNoRoom is in the chain of a Keeper's error if the space for robots.txt files, or the
// client's share of it, is used up. It does not concern files that are kept already.
var ErrNoSpace = errors.New("no space to keep another robots.txt")

// Sync says when the disk is waited for (fsync), so that a loss of power loses
// nothing. The end of the process alone loses nothing that was written, whatever it says.
type Sync uint8

// When it may be.
const (
	SyncInterval Sync = iota // each second
	SyncNone                 // never: the system writes when it likes
	SyncAlways               // before Write returns from a refusal, once for all that wait
)

// A Keeper keeps the robots.txt files that decisions rest on. Any number of
// goroutines may call it.
type SnapshotStore interface {
	// Keep returns when a is kept, at once where it has been before. What has to be
	// written counts against the share of client, whose request rests on the answer.
	Save(a *fetch.Result, client string) error
	// Flush waits for the disk to have what was kept before. It is called each second.
	Flush() error
}

// Options make a Log. Those from MaxSize to Continue may be changed, by [Log.Use].
type Options struct {
	File        string                        // path; "-" for standard output; required
	MaxSize     int64                         // octets that the file may have before it is set aside; zero: 100 MiB
	MaxFiles    int                           // files set aside that are kept; zero: 10
	Sync        Sync                          // when the disk is waited for
	BlockedOnly bool                          // leave allowed requests out
	DropQuery   bool                          // leave the query out of each URL
	Replica     string                        // what this process is called in each record, as one of several; "": it is on its own
	Client      func(string) string           // what stands for a client, such as its Pseudonym; nil: its name
	Continue    bool                          // a failed write is reported by Err but refuses nothing
	Tap         func(seq uint64, line []byte) // is shown each line, in order, under a lock: it neither waits nor keeps it; nil: nobody is
	Snapshots   SnapshotStore                 // keeps the robots.txt that a record rests on; nil: nobody does
	Log         *slog.Logger                  // hears when the file cannot be written, and when it can again; required
}

// A Log writes Records to a file, a JSON object a line, as package trail has it:
// each line is chained to the one before, whatever file that is in. One process at a
// time may write to a file, and a lock beside it sees to that.
type Log struct {
	o       Options                 // as it was opened
	terms   atomic.Pointer[Options] // in force
	failure atomic.Pointer[error]
	trouble atomic.Pointer[error] // the last failure that nobody has been told of
	unkept  unkept
	counts  counts

	mu      sync.Mutex // guards what follows; nothing is read or written under it
	buf     []byte     // whole lines to be written
	since   time.Time  // when the first of them was made
	seq     uint64     // of the last line in buf, or before it
	hash    trail.Hash // of that line
	lost    int64      // records since there was room in buf
	surplus surplus

	io      sync.Mutex // held by who writes, and guards what follows; mu is taken under it, never the reverse
	sheet   sheet
	writing []byte        // was buf
	done    int           // octets of it that are in the file
	until   uint64        // the last line in it; set under mu too
	taken   time.Time     // when its first line was made; likewise
	written atomic.Uint64 // the last line that is in the file
	synced  atomic.Uint64 // the last line that the disk has
	full    chan struct{}
	pruned  uint64 // the last line that an event says is removed; tidy's
}

// Open takes the file, and goes on with the chain that it ends with. What a crash
// has left behind the last whole line is set aside in a file beside, and a line says so.
func Open(o Options) (*Log, error) {
	if o.File == "" {
		return nil, errors.New("audit: no file named")
	}
	if o.Log == nil {
		return nil, errors.New("audit: no log to speak to")
	}
	l := &Log{o: o, full: make(chan struct{}, 1)}
	l.SetOptions(o)
	last, events, err := l.sheet.begin(o.File)
	if err != nil {
		return nil, fmt.Errorf("audit: %w", err)
	}
	l.seq, l.hash = last.Seq, last.Hash
	l.until = l.seq
	l.written.Store(l.seq)
	l.synced.Store(l.seq)
	for _, e := range events {
		o.Log.Warn("the audit was not whole", "file", o.File, "detail", e.detail, "set_aside", e.file)
		l.tell(e)
	}
	l.commit(l.seq) // now: after a crash nothing else tells what a file set aside was; an error is Err's
	return l, nil
}

// Write adds a record. A refusal is in the file when Write returns without an
// error, unless it is one of those that are only counted (IsCheap); an allowed
// request's record follows within batchDelay.
func (l *Log) Write(r *Record) error {
	if l.terms.Load().BlockedOnly && !r.Blocked() || l.countOnly(r) {
		return nil
	}
	unkept := l.SaveSnapshot(r)
	err := l.write(r, r.Blocked())
	if l.terms.Load().Continue {
		return nil
	}
	return cmp.Or(unkept, err)
}

// write adds a line of any kind. With now it is in the file when write returns without
// an error, else within batchDelay.
func (l *Log) write(what line, now bool) error {
	seq, octets, err := l.add(what)
	switch {
	case err != nil:
		return err
	case now || octets >= maxPending:
		return l.commit(seq)
	case octets >= batchOctets:
		return l.hurry()
	}
	return nil
}

// add chains a line to those to be written, and gives its number and how many bytes
// there are to write now. The error is of a line that is lost: while the file cannot
// be written. Else each waits for its line or for a batch, and what there may be of
// them is for the proxy to bound.
func (l *Log) add(what line) (seq uint64, octets int, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.buf) > maxPending {
		if err := l.failed(); err != nil {
			l.lost++
			l.counts.lost.Add(1)
			return 0, 0, err
		}
	}
	l.chain(what)
	return l.seq, len(l.buf), nil
}

// chain numbers and seals a line. The caller holds l.mu.
func (l *Log) chain(what line) {
	start := len(l.buf)
	if start == 0 {
		l.since = time.Now()
	}
	l.seq++
	l.buf, l.hash = trail.AppendLink(append(what.append(l.buf, l.terms.Load()), trail.VersionMember...), start, l.seq, l.hash)
	if l.o.Tap != nil {
		l.o.Tap(l.seq, l.buf[start:])
	}
}

// tell adds a line about the trail itself, and gives its number.
func (l *Log) tell(e event) (seq uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.chain(e)
	return l.seq
}

// commit has the lines up to seq in the file, by itself or by another's hand: who
// comes while one writes finds his line written, or writes it with all others that
// have come meanwhile. Without an error they are there; after one they wait for the
// next probe.
func (l *Log) commit(seq uint64) error {
	if err := l.failed(); err != nil {
		return err // at once, whatever the probe waits for
	}
	l.io.Lock()
	defer l.io.Unlock()
	err := l.failed()
	if err == nil && l.written.Load() < seq {
		err = l.note(l.flush())
	}
	if err == nil && l.terms.Load().Sync == SyncAlways && l.synced.Load() < seq {
		if err = l.unkept.flush(l.o.Snapshots); err == nil { // first: the lines rest on it
			err = l.note(l.sync())
		}
	}
	return err
}

// hurry writes what has gathered, unless another writes: who comes after him will.
func (l *Log) hurry() error {
	if err := l.failed(); err != nil || !l.io.TryLock() {
		return err
	}
	defer l.io.Unlock()
	if err := l.failed(); err != nil {
		return err
	}
	return l.note(l.flush())
}

// flush writes what has gathered, what a failure has left first. Without an error all
// of it is in the file. The caller holds l.io.
func (l *Log) flush() error {
	replaced, err := l.sheet.inPlace()
	if replaced != nil {
		l.o.Log.Warn("the audit was not left alone", "file", l.o.File, "detail", replaced.detail, "set_aside", replaced.file)
		l.done = wholeLines(l.writing, l.done) // the rest is in the file that is gone
		l.sheet.first = l.written.Load() + 1 + uint64(bytes.Count(l.writing[:l.done], []byte{'\n'}))
		l.tell(*replaced)
	}
	for range 2 {
		if err == nil && len(l.writing) == 0 {
			l.take()
		}
		if err == nil && len(l.writing) > 0 {
			err = l.put()
		}
	}
	return err
}

// wholeLines is how many of the first n octets of lines are whole ones.
func wholeLines(lines []byte, n int) int {
	for n > 0 && lines[n-1] != '\n' {
		n--
	}
	return n
}

// take has what has gathered be written next.
func (l *Log) take() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lost > 0 {
		e := event{name: "lost", detail: "records that could not be written, nor kept until they could", count: l.lost}
		l.lost = 0
		l.chain(e)
	}
	if cap(l.writing) > 4*batchOctets {
		l.writing = nil // a long failure's memory is given back
	}
	l.writing, l.buf = l.buf, l.writing[:0]
	l.until, l.taken = l.seq, l.since
}

// put writes l.writing.
func (l *Log) put() error {
	if l.done == 0 && l.sheet.regular && l.sheet.size > 0 && l.sheet.size+int64(len(l.writing)) > l.terms.Load().MaxSize {
		if err := l.turn(); err != nil {
			return err
		}
	}
	n, err := l.sheet.write(l.writing[l.done:])
	l.done += n
	l.counts.octets.Add(uint64(n))
	if err != nil {
		return err
	}
	l.counts.lines.Add(l.until - l.written.Load())
	l.writing, l.done = l.writing[:0], 0
	l.written.Store(l.until)
	return nil
}

// turn begins a new file.
func (l *Log) turn() error {
	if l.terms.Load().Sync != SyncNone {
		if err := l.sync(); err != nil {
			return err
		}
	}
	if err := l.sheet.turn(l.written.Load() + 1); err != nil {
		return err
	}
	l.counts.turns.Add(1)
	select {
	case l.full <- struct{}{}:
	default:
	}
	return nil
}

// sync waits for the disk. The caller holds l.io.
func (l *Log) sync() error {
	if err := l.sheet.sync(); err != nil {
		return err
	}
	l.synced.Store(l.written.Load())
	return nil
}

// note keeps whether the file could be written, and gives that as an error of the Log.
// The caller holds l.io.
func (l *Log) note(err error) error {
	if err == nil {
		l.failure.Store(nil)
		return nil
	}
	err = fmt.Errorf("%w: %w", ErrUnwritable, err)
	l.failure.Store(&err)
	l.trouble.Store(&err)
	l.counts.failures.Add(1)
	return err
}

// failed is what note has kept.
func (l *Log) failed() error {
	if p := l.failure.Load(); p != nil {
		return *p
	}
	return nil
}

// Err says why the audit cannot be written at present; nil where it can. It is
// what health reports, whatever the configuration says of refusing.
func (l *Log) Err() error { return cmp.Or(l.failed(), l.unkept.err()) }

// Close writes what is left and closes the file.
func (l *Log) Close() error {
	l.io.Lock()
	defer l.io.Unlock()
	l.mu.Lock()
	l.tellSurplus(0)
	l.mu.Unlock()
	err := l.note(l.flush())
	l.unkept.settle(l.o.Snapshots)
	if err == nil && l.terms.Load().Sync != SyncNone {
		err = l.sync()
	}
	return errors.Join(err, l.unkept.err(), l.sheet.close())
}
