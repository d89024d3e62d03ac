package audit

import (
	"errors"
	"log/slog"
	"time"

	"robotsproxy/policy/audit/checkpoint"
	"robotsproxy/policy/audit/trail"
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

// An End is what a process knows of the end of its trail.
type End struct {
	// Link is that of the last line that the disk has for certain.
	trail.Link

	// Open is a seq: each request whose line of kind begun has a lower seq has its record on the disk; zero: unknown.
	Open uint64
}

// Options make a Log. [Log.SetOptions] can change those from MaxSize to Continue.
type Options struct {
	// File is the path of a regular file, or "-" for standard output; required.
	File string

	// FIFO says that File is a FIFO, which another program reads.
	FIFO bool

	// MaxSize is the number of bytes after which the active segment is rotated; zero: 100 MiB.
	MaxSize int64

	// MaxAge is the age of their last line from which full segments are removed; zero: they are kept.
	MaxAge time.Duration

	// MaxTotal is how many bytes the segments may take on the disk, beyond which the oldest are removed; zero: no limit.
	MaxTotal int64

	// MaxFiles is the number of full segments that are kept, beyond which the oldest are removed; zero: no limit.
	MaxFiles int

	// Sync says when the Log waits for the disk.
	Sync Sync

	// BlockedOnly leaves allowed requests out.
	BlockedOnly bool

	// DropQuery leaves the query out of each URL.
	DropQuery bool

	// Known is the End of the previous process, as OnDisk returned it; zero: it is unknown.
	Known End

	// Latest are the newest known checkpoints of this trail, one of each place that keeps some.
	Latest []checkpoint.Checkpoint

	// Replica is the name of this replica in each record; "": there is only one.
	Replica string

	// Client replaces a client's name, for example by its Pseudonym; nil: the name is recorded.
	Client func(string) string

	// Continue says that a failed write is reported by Err, but refuses no request.
	Continue bool

	// Tap is called for each line, in order and under a lock: it must not wait or keep line; nil: nothing is called.
	Tap func(seq uint64, line []byte)

	// Snapshots stores the robots.txt that a record is based on; nil: it is not stored.
	Snapshots SnapshotStore

	// Log is told when the trail cannot be written, and when it can again; required.
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
