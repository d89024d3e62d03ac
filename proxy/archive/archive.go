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
// proxy, the space of bodies that are not complete (spoolBodies), of which one client never
// holds more than half, and the files (Options.MaxTotal).
//
// If nothing can be written, the exchange fails, and so do all that follow, until a probe
// succeeds.
package archive

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"robotsproxy/policy/audit"
	"robotsproxy/policy/memory"
	"robotsproxy/policy/osfile"
)

const (
	// runInterval is the time between two calls of fsync, and between two commits of the index.
	runInterval = time.Second
	// retentionInterval is the time between two looks at the directory.
	retentionInterval = time.Minute
)

// An Archive writes WARC files to one directory. Any number of goroutines may share it.
type Archive struct {
	files   *files
	index   payloads
	spools  *spools
	failure atomic.Pointer[error]
	disk    osfile.Watch
	counts  counts
	space   atomic.Pointer[audit.Space]
}

type counts struct {
	records, revisits, failures, left, truncated atomic.Uint64
}

// Open makes an Archive of a directory, which it creates. It completes the files that a crash has left.
func Open(o Options) (*Archive, error) {
	if o.Dir == "" || o.Index == nil || o.Log == nil {
		return nil, errors.New("archive: Options.Dir, Index and Log are required")
	}
	a := &Archive{index: payloads{stored: o.Index}}
	space := memory.New(memory.Options{InUse: func() int64 { return 0 }})
	a.spools = &spools{dir: o.Dir, disk: &a.disk, space: space}
	a.files = newFiles(o.Dir, o.Software, &a.disk, a.index.remove)
	err := os.MkdirAll(o.Dir, 0o700)
	a.SetOptions(o)
	if err == nil {
		err = a.files.recover()
	}
	if err != nil {
		return nil, fmt.Errorf("archive: %w", err)
	}
	return a, nil
}

// SetOptions replaces the Options from Prefix on, for exchanges that begin from now on.
func (a *Archive) SetOptions(o Options) {
	a.files.options.Store(&o)
	a.files.wake()
}

func (a *Archive) options() *Options { return a.files.options.Load() }

// Err returns why nothing can be written; nil: it can. The error wraps ErrUnwritable.
func (a *Archive) Err() error {
	if err := a.failure.Load(); err != nil {
		return *err
	}
	if err := a.disk.Err(); err != nil {
		return fmt.Errorf("%w: %w", ErrUnwritable, err)
	}
	return nil
}

// Refusal returns why requests must be refused now: Err, unless Options.Continue is set.
func (a *Archive) Refusal() error {
	if a.options().Continue {
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
	log := a.options().Log
	if err == nil {
		if a.failure.Swap(nil) != nil {
			log.Info("archive written again", "dir", a.files.dir)
		}
		return nil
	}
	a.counts.failures.Add(1)
	err = fmt.Errorf("%w: %w", ErrUnwritable, err)
	if a.failure.Swap(&err) == nil {
		log.Error("archive write failed", "dir", a.files.dir, "error", err)
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
		case <-a.files.full:
			full = true
		case <-tick.C:
		}
		if err := a.sync(); err != nil {
			a.setFailure(err)
		} else if a.Err() != nil {
			failures := a.counts.failures.Load()
			// If another write has failed meanwhile, the success of the probe says nothing.
			if err := a.spools.probe(); err != nil || a.counts.failures.Load() == failures {
				a.setFailure(err)
			}
		}
		if now := time.Now(); full || now.Sub(cleaned) >= retentionInterval {
			cleaned = now
			a.clean(clock.Now())
		}
	}
}

// clean completes full files, removes old ones, and measures the space.
func (a *Archive) clean(settled time.Time) {
	o := a.options()
	if err := a.files.completeDue(); err != nil {
		a.setFailure(err)
	}
	space, err := a.files.clean(settled)
	if err != nil {
		o.Log.Warn("archive files not removed", "dir", a.files.dir, "error", err)
	}
	before := a.space.Swap(&space)
	if warning := space.Warning(); warning != "" && (before == nil || before.Warning() == "") {
		o.Log.Warn("little space left for the archive", "dir", a.files.dir, "detail", warning)
	}
}

// sync waits until the disk has the files, and then writes the index, whose entries rely on them.
func (a *Archive) sync() error {
	pending := a.index.take()
	if a.options().Sync != audit.SyncNone {
		if err := a.files.sync(); err != nil {
			// The payloads of the pending entries are archived once more.
			_ = a.index.store(nil)
			return err
		}
	}
	if err := a.index.store(pending); err != nil {
		a.options().Log.Warn("payloads of the archive not stored, so that equal ones are archived again", "error", err)
	}
	return nil
}

// Close completes the files. The caller has ended all exchanges.
func (a *Archive) Close() error {
	return errors.Join(a.sync(), a.files.close())
}

// Stats is the state of an Archive.
type Stats struct {
	// Err is why nothing can be written at present; nil: it can.
	Err error

	// Records counts the records of exchanges that were written. Revisits counts those of them whose payload an earlier
	// record has, and Truncated those without the end of their body.
	Records   uint64
	Revisits  uint64
	Truncated uint64

	// Failures counts the writes that failed.
	Failures uint64

	// Left counts the exchanges that could not be archived.
	Left uint64

	// Spooled is the number of bytes in the files of bodies that are not complete.
	Spooled int64

	// Space is the space as it was last measured.
	Space audit.Space
}

// Stats returns the present Stats. It waits for no disk.
func (a *Archive) Stats() Stats {
	c := &a.counts
	s := Stats{
		Err: a.Err(), Records: c.records.Load(), Revisits: c.revisits.Load(), Truncated: c.truncated.Load(),
		Failures: c.failures.Load(), Left: c.left.Load(), Spooled: a.spools.space.Stats().Held,
	}
	if space := a.space.Load(); space != nil {
		s.Space = *space
	}
	return s
}

// ClientName returns the name of a client in the records.
func (a *Archive) ClientName(client string) string {
	if name := a.options().Client; name != nil {
		return name(client)
	}
	return client
}
