package audit

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

const (
	batchOctets = 64 << 10               // allowed requests' lines are written when so much has gathered
	batchDelay  = 100 * time.Millisecond // or when so much time has passed
	probeDelay  = time.Second            // between probes while the file cannot be written
	maxPending  = 4 << 20                // octets kept while the file cannot be written; later lines are lost, and counted
)

// ErrUnwritable is in the chain of every error of a Log that cannot write.
var ErrUnwritable = errors.New("the audit cannot be written")

// Options make a Log.
type Options struct {
	File        string       // path; "-" for standard output; required
	BlockedOnly bool         // leave allowed requests out
	DropQuery   bool         // leave the query out of each URL
	Continue    bool         // a failed write is reported by Err but refuses nothing
	Log         *slog.Logger // hears when the file cannot be written, and when it can again; required
}

// A Log writes Records to a file, a JSON object a line. It appends, and
// creates the file with mode 0600.
type Log struct {
	o       Options
	failure atomic.Pointer[error]
	lost    atomic.Int64

	mu  sync.Mutex
	w   io.WriteCloser
	buf []byte // whole lines, but that the first may have been begun in the file
}

// Open opens the file.
func Open(o Options) (*Log, error) {
	if o.File == "" {
		return nil, errors.New("audit: no file named")
	}
	if o.Log == nil {
		return nil, errors.New("audit: no log to speak to")
	}
	if o.File == "-" {
		return &Log{o: o, w: os.Stdout}, nil
	}
	f, err := os.OpenFile(o.File, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("audit: %w", err)
	}
	l := &Log{o: o, w: f}
	if torn(o.File) {
		o.Log.Warn("the last line of the audit is torn; the next begins on a line of its own", "file", o.File)
		l.buf = append(l.buf, '\n')
	}
	return l, nil
}

// torn says whether a file ends within a line, as after a crash.
func torn(file string) bool {
	info, err := os.Stat(file)
	if err != nil || !info.Mode().IsRegular() || info.Size() == 0 {
		return false
	}
	f, err := os.Open(file)
	if err != nil {
		return false // write-only files are not looked at
	}
	defer f.Close()
	var last [1]byte
	_, err = f.ReadAt(last[:], info.Size()-1)
	return err == nil && last[0] != '\n'
}

// Write adds a record. A refusal is in the file when Write returns without an
// error; an allowed request's record follows within batchDelay.
func (l *Log) Write(r *Record) error {
	if l.o.BlockedOnly && !r.Blocked() {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.buf) > maxPending {
		l.lost.Add(1)
		return l.Refusal()
	}
	l.buf = appendRecord(l.buf, r, l.o.DropQuery)
	if !r.Blocked() && len(l.buf) < batchOctets {
		return nil
	}
	if l.failure.Load() == nil { // else it is kept for the next probe
		l.flush()
	}
	return l.Refusal()
}

// flush writes what has gathered. The caller holds the lock: lines of several
// requests must not run into each other.
func (l *Log) flush() {
	if len(l.buf) == 0 {
		return
	}
	n, err := l.w.Write(l.buf)
	l.buf = l.buf[:copy(l.buf, l.buf[n:])]
	if err != nil {
		err = fmt.Errorf("%w: %w", ErrUnwritable, err)
		l.failure.Store(&err)
		return
	}
	l.failure.Store(nil)
	if cap(l.buf) > 4*batchOctets {
		l.buf = nil // a long failure's memory is given back
	}
}

// Err says why the file cannot be written at present; nil where it can. It is
// what health reports, whatever the configuration says of refusing.
func (l *Log) Err() error {
	if p := l.failure.Load(); p != nil {
		return *p
	}
	return nil
}

// Refusal is Err where a failure refuses requests (on_error: refuse).
func (l *Log) Refusal() error {
	if l.o.Continue {
		return nil
	}
	return l.Err()
}

// Run writes batches, and probes a file that failed, until ctx ends.
func (l *Log) Run(ctx context.Context) error {
	tick := time.NewTicker(batchDelay)
	defer tick.Stop()
	var next time.Time
	failing := false
	for {
		select {
		case <-ctx.Done():
			return nil
		case now := <-tick.C:
			if l.Err() != nil && now.Before(next) {
				continue
			}
			l.mu.Lock()
			l.flush()
			l.mu.Unlock()
			next = now.Add(probeDelay)
			if err := l.Err(); failing != (err != nil) {
				failing = err != nil
				l.tell(err)
			}
		}
	}
}

// tell says that the file cannot be written, or can again.
func (l *Log) tell(err error) {
	if err != nil {
		l.o.Log.Error("the audit cannot be written", "file", l.o.File, "error", err)
		return
	}
	l.o.Log.Info("the audit can be written again", "file", l.o.File, "records_lost", l.lost.Load())
}

// Close writes what is left and closes the file.
func (l *Log) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.flush()
	err := l.Err()
	if l.o.File != "-" {
		err = errors.Join(err, l.w.Close())
	}
	return err
}
