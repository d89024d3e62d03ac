// Package archive writes what was fetched to WARC files (ISO 28500, WARC 1.1). Package warc reads
// them.
//
// Package proxy begins an [Exchange] for each request that it sends, hands it the response, and
// ends it before the client has the whole response. Bodies are copied while they stream, to memory
// and, if they are large, to a file, and their records are written when the response ends: a
// request, a response (or a revisit, if an earlier record has the same payload), and metadata that
// joins them to the audit. The records of one exchange are in one file, one behind the other.
//
// A file has the extension .open while it is written. It is renamed when it is full and when the
// Archive is closed. After a crash, Open cuts off the incomplete record at its end, which it
// keeps in another file.
//
// Exchanges with large bodies are written to other files than the small ones, so that nobody
// waits for them. What strangers can fill has a bound: bodies (Options.MaxBody), the memory of the
// proxy, the space of bodies that are not complete (limitSpools), of which one client never
// holds more than half, and the files (Options.MaxTotal).
//
// If nothing can be written, the exchange fails, and so do all that follow, until a probe
// succeeds.
package archive

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"robotsproxy/policy/audit"
	"robotsproxy/policy/memory"
	"robotsproxy/policy/osfile"
)

// ErrUnwritable is in the chain of every error of an Archive that cannot write.
var ErrUnwritable = errors.New("the archive cannot be written")

// An exchangeError says why one exchange cannot be archived. Others can.
type exchangeError struct{ text string }

func (e *exchangeError) Error() string { return ErrUnwritable.Error() + ": " + e.text }

func (e *exchangeError) Unwrap() error { return ErrUnwritable }

// Options make an Archive. [Archive.SetOptions] can change those from Prefix on.
type Options struct {
	Dir      string // directory of the files; required
	Index    Index  // payloads that the files have; required. It must let no other process use Dir
	Software string // name and version of this program, for the files

	Prefix      string              // begins the names of files
	MaxFile     int64               // bytes after which another file is begun
	MaxBody     int64               // bytes of a body that are archived; the rest is left out
	Only2xx     bool                // leave out responses with another status than 2xx
	Compress    bool                // one member of gzip for each record
	Dedup       bool                // write a revisit record if an earlier record has the same payload
	MaxAge      time.Duration       // files are removed when their last record is older; zero: never
	MaxTotal    int64               // bytes of all files; beyond it the oldest are removed; zero: no limit
	Sync        audit.Sync          // when the Archive waits for the disk
	Continue    bool                // a failed write is reported by Err, but breaks off no response
	KeepSecrets bool                // keep the fields that isSecret names
	DropQuery   bool                // leave the query out of URLs
	Client      func(string) string // replaces a client's name; nil: leave it
	Log         *slog.Logger        // reports when nothing can be written, and when it can again; required
}

const (
	// spoolBodies is how many bodies of Options.MaxBody the files of bodies that are not complete may take. They
	// may take leastSpool bytes if that is more, but not more than half of what the disk has left.
	spoolBodies = 8
	leastSpool  = 256 << 20
	// maxLarge is how many exchanges with large bodies are written at once.
	maxLarge = 4
	// runInterval is the time between two calls of fsync, and between two commits of the index.
	runInterval = time.Second
	// retentionInterval is the time between two looks at the directory.
	retentionInterval = time.Minute
)

// An Archive writes WARC files to one directory. Any number of goroutines may share it.
type Archive struct {
	dir      string
	index    payloads
	software string
	options  atomic.Pointer[Options]
	failure  atomic.Pointer[error]
	spools   *memory.Budget // of bytes in the files of bodies, not of memory
	small    writer
	large    chan *writer // those that no exchange uses
	all      []*writer
	turns    turns
	counts   counts
	space    atomic.Pointer[Space]
	serial   atomic.Uint64
	full     chan struct{} // holds one token: a file was completed, or the options changed
}

type counts struct {
	records, revisits, failures, left, truncated atomic.Uint64
}

// Open makes an Archive of a directory, which it creates. It completes the files that a crash has left.
func Open(o Options) (*Archive, error) {
	if o.Dir == "" || o.Index == nil || o.Log == nil {
		return nil, errors.New("archive: Options.Dir, Index and Log are required")
	}
	a := &Archive{
		dir: o.Dir, index: payloads{stored: o.Index}, software: o.Software, large: make(chan *writer, maxLarge), full: make(chan struct{}, 1),
		spools: memory.New(memory.Options{InUse: func() int64 { return 0 }}),
	}
	a.SetOptions(o)
	a.all = []*writer{&a.small}
	for range maxLarge {
		w := new(writer)
		a.all = append(a.all, w)
		a.large <- w
	}
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("archive: %w", err)
	}
	if err := a.recover(); err != nil {
		return nil, fmt.Errorf("archive: %w", err)
	}
	return a, nil
}

// SetOptions replaces the Options from Prefix on, for exchanges that begin from now on.
func (a *Archive) SetOptions(o Options) {
	a.options.Store(&o)
	a.limitSpools()
	a.wake()
}

// limitSpools bounds the files of bodies that are not complete.
func (a *Archive) limitSpools() {
	limit := max(spoolBodies*a.options.Load().MaxBody, leastSpool)
	if free, err := osfile.Free(a.dir); err == nil {
		limit = min(limit, (free+a.spools.Stats().Held)/2)
	}
	a.spools.SetLimit(max(1, limit))
}

func (a *Archive) wake() {
	select {
	case a.full <- struct{}{}:
	default:
	}
}

// recover completes the files that a crash has left, and removes the bodies that were not complete.
func (a *Archive) recover() error {
	entries, err := os.ReadDir(a.dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		path := filepath.Join(a.dir, e.Name())
		switch {
		case !e.Type().IsRegular(): // it belongs to somebody else
		case strings.HasPrefix(e.Name(), spoolPrefix):
			err = errors.Join(err, os.Remove(path))
		case strings.HasSuffix(e.Name(), openExt) && isFileName(e.Name()):
			torn, failed := complete(path)
			if err = errors.Join(err, failed); torn != "" {
				a.options.Load().Log.Warn("archive incomplete at start", "file", path, "detail", "the incomplete record at the end was moved to another file", "set_aside", torn)
			}
		}
	}
	return err
}

// Err returns why nothing can be written; nil: it can. The error wraps ErrUnwritable.
func (a *Archive) Err() error {
	if err := a.failure.Load(); err != nil {
		return *err
	}
	return nil
}

// Refusal returns why requests must be refused now: Err, unless Options.Continue is set.
func (a *Archive) Refusal() error {
	if a.options.Load().Continue {
		return nil
	}
	return a.Err()
}

// setFailure stores whether the files could be written, and returns the error wrapped in ErrUnwritable. It does
// not store an error that concerns one exchange only.
func (a *Archive) setFailure(err error) error {
	if _, ok := errors.AsType[*exchangeError](err); ok {
		return err
	}
	log := a.options.Load().Log
	if err == nil {
		if a.failure.Swap(nil) != nil {
			log.Info("archive written again", "dir", a.dir)
		}
		return nil
	}
	a.counts.failures.Add(1)
	err = fmt.Errorf("%w: %w", ErrUnwritable, err)
	if a.failure.Swap(&err) == nil {
		log.Error("archive write failed", "dir", a.dir, "error", err)
	}
	return err
}

// Run waits for the disk, writes the index, removes old files, and finds out when a failure has ended,
// until ctx ends.
func (a *Archive) Run(ctx context.Context) error {
	tick := time.NewTicker(runInterval)
	defer tick.Stop()
	var clock audit.SettledClock
	var cleaned time.Time
	for {
		full := false
		select {
		case <-ctx.Done():
			return nil
		case <-a.full:
			full = true
		case <-tick.C:
		}
		if err := a.sync(); err != nil {
			a.setFailure(err)
		} else if a.Err() != nil {
			a.setFailure(a.probe())
		}
		if now := time.Now(); full || now.Sub(cleaned) >= retentionInterval {
			cleaned = now
			a.clean(clock.Now())
		}
	}
}

// probe returns why a file in the directory cannot be written; nil: it can.
func (a *Archive) probe() error {
	f, err := os.CreateTemp(a.dir, spoolPrefix+"*")
	if err != nil {
		return err
	}
	_, err = f.Write(make([]byte, maxInMemory))
	return errors.Join(err, f.Close(), os.Remove(f.Name()))
}

// sync waits until the disk has the files, and then writes the index, whose entries rely on them.
func (a *Archive) sync() error {
	var err error
	pending := a.index.take()
	if a.options.Load().Sync != audit.SyncNone {
		for _, w := range a.all {
			err = errors.Join(err, w.sync())
		}
	}
	if err != nil {
		_ = a.index.store(nil) // payloads of the pending entries are archived once more
		return err
	}
	if err := a.index.store(pending); err != nil {
		a.options.Load().Log.Warn("payloads of the archive not stored, so that equal ones are archived again", "error", err)
	}
	return nil
}

// Close completes the files. The caller has ended all exchanges.
func (a *Archive) Close() error {
	err := a.sync()
	for _, w := range a.all {
		w.mu.Lock()
		err = errors.Join(err, w.complete(a.options.Load().Sync))
		w.mu.Unlock()
	}
	return err
}

// Stats is the state of an Archive.
type Stats struct {
	Err       error  // why nothing can be written at present; nil: it can
	Records   uint64 // records written so far
	Revisits  uint64 // of the records, those of payloads that an earlier record has
	Truncated uint64 // of the records, those without the end of their body
	Failures  uint64 // failed writes so far
	Left      uint64 // exchanges so far that could not be archived
	Spooled   int64  // bytes in the files of bodies that are not complete
	Space     Space  // as last measured
}

// Stats returns the present Stats. It waits for no disk.
func (a *Archive) Stats() Stats {
	c := &a.counts
	s := Stats{
		Err: a.Err(), Records: c.records.Load(), Revisits: c.revisits.Load(), Truncated: c.truncated.Load(),
		Failures: c.failures.Load(), Left: c.left.Load(), Spooled: a.spools.Stats().Held,
	}
	if space := a.space.Load(); space != nil {
		s.Space = *space
	}
	return s
}

// turns lets one exchange of a client at a time write a large body, so that one client cannot take all
// writers.
type turns struct {
	mu      sync.Mutex
	clients map[string]*turn
}

type turn struct {
	mu    sync.Mutex
	users int
}

// take waits for the turn of a client, and returns a function that ends it.
func (t *turns) take(client string) (end func()) {
	t.mu.Lock()
	if t.clients == nil {
		t.clients = make(map[string]*turn)
	}
	of := t.clients[client]
	if of == nil {
		of = new(turn)
		t.clients[client] = of
	}
	of.users++
	t.mu.Unlock()
	of.mu.Lock()
	return func() {
		of.mu.Unlock()
		t.mu.Lock()
		defer t.mu.Unlock()
		if of.users--; of.users == 0 {
			delete(t.clients, client)
		}
	}
}

// ClientName returns the name of a client in the records.
func (a *Archive) ClientName(client string) string {
	if name := a.options.Load().Client; name != nil {
		return name(client)
	}
	return client
}
