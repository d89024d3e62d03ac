package audit

import (
	"errors"
	"log/slog"
	"time"

	"robotsproxy/robots/fetch"
)

// Sync says when a Log waits for the disk (fsync), so that a loss of power loses no lines.
// Lines that are written survive the end of the process in any case.
type Sync uint8

// The values of Sync.
const (
	SyncInterval Sync = iota // once a second
	SyncNone                 // never: the system decides when to write
	SyncAlways               // before Write returns, once for all that wait
)

// ErrNoSpace is in the chain of a SnapshotStore's error if the space for robots.txt files, or
// the client's share of it, is used up. It does not concern files that are stored already.
var ErrNoSpace = errors.New("no space to keep another robots.txt")

// A SnapshotStore stores the robots.txt files that decisions are based on. Any number of
// goroutines may share it.
type SnapshotStore interface {
	// Save returns when a is stored, at once if it was stored before. What it writes counts
	// against the share of client, whose request is based on a.
	Save(a *fetch.Result, client string) error
	// Flush waits until the disk has what was saved before. It is called once a second.
	Flush() error
}

// Options make a Log. [Log.SetOptions] can change those from MaxSize to Continue.
type Options struct {
	// Path of a regular file; "-" for standard output; required.
	File string

	// File is a FIFO, which another program reads.
	FIFO bool

	// Bytes after which the active segment is rotated; zero: 100 MiB.
	MaxSize int64

	// Full segments are removed when their last line is older; zero: never.
	MaxAge time.Duration

	// Bytes that the segments may take on the disk; beyond it the oldest are removed; zero: no limit.
	MaxTotal int64

	// Full segments that are kept; beyond it the oldest are removed; zero: no limit.
	MaxFiles int

	// When the Log waits for the disk.
	Sync Sync

	// Leave allowed requests out.
	BlockedOnly bool

	// Leave the query out of each URL.
	DropQuery bool

	// Of the previous process, as OnDisk returned it; zero: unknown.
	Known End

	// Name of this replica in each record; "": there is only one.
	Replica string

	// Replaces a client's name, such as its Pseudonym; nil: leave it.
	Client func(string) string

	// A failed write is reported by Err, but refuses no request.
	Continue bool

	// Is called for each line, in order and under a lock: it must not wait or keep line; nil: nothing is.
	Tap func(seq uint64, line []byte)

	// Stores the robots.txt that a record is based on; nil: it is not stored.
	Snapshots SnapshotStore

	// Reports when the trail cannot be written, and when it can again; required.
	Log *slog.Logger
}

// clientName returns the name of a client in the records.
func (o *Options) clientName(client string) string {
	if o.Client == nil {
		return client
	}
	return o.Client(client)
}

// ErrUnwritable is in the chain of every error of a Log that cannot write.
var ErrUnwritable = errors.New("the audit cannot be written")
