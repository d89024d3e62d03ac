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
	File        string                        // path of a regular file; "-" for standard output; required
	FIFO        bool                          // File is a FIFO, which another program reads
	MaxSize     int64                         // bytes after which the active segment is rotated; zero: 100 MiB
	MaxAge      time.Duration                 // full segments are removed when their last line is older; zero: never
	MaxTotal    int64                         // bytes that the segments may take on the disk; beyond it the oldest are removed; zero: no limit
	MaxFiles    int                           // full segments that are kept; beyond it the oldest are removed; zero: no limit
	Sync        Sync                          // when the Log waits for the disk
	BlockedOnly bool                          // leave allowed requests out
	DropQuery   bool                          // leave the query out of each URL
	Known       End                           // of the previous process, as OnDisk returned it; zero: unknown
	Replica     string                        // name of this replica in each record; "": there is only one
	Client      func(string) string           // replaces a client's name, such as its Pseudonym; nil: leave it
	Continue    bool                          // a failed write is reported by Err, but refuses no request
	Tap         func(seq uint64, line []byte) // is called for each line, in order and under a lock: it must not wait or keep line; nil: nothing is
	Snapshots   SnapshotStore                 // stores the robots.txt that a record is based on; nil: it is not stored
	Log         *slog.Logger                  // reports when the trail cannot be written, and when it can again; required
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
