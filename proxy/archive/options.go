package archive

import (
	"errors"
	"log/slog"
	"time"

	"robotsproxy/policy/audit"
)

// ErrUnwritable is in the chain of every error of an Archive that cannot write.
var ErrUnwritable = errors.New("the archive cannot be written")

// An exchangeError says why one exchange cannot be archived. Others can.
type exchangeError struct{ text string }

func (e *exchangeError) Error() string { return ErrUnwritable.Error() + ": " + e.text }

func (e *exchangeError) Unwrap() error { return ErrUnwritable }

// Options make an Archive. [Archive.SetOptions] can change those from Prefix on.
type Options struct {
	// Directory of the files; required.
	Dir string

	// Payloads that the files have; required. It must let no other process use Dir.
	Index Index

	// Name and version of this program, for the files.
	Software string

	// Begins the names of files.
	Prefix string

	// Bytes after which another file is begun.
	MaxFile int64

	// Bytes of a body that are archived; the rest is left out.
	MaxBody int64

	// Leave out responses with another status than 2xx.
	Only2xx bool

	// One member of gzip for each record.
	Compress bool

	// Write a revisit record if an earlier record has the same payload.
	Dedup bool

	// Files are removed when their last record is older; zero: never.
	MaxAge time.Duration

	// Bytes of all files; beyond it the oldest are removed; zero: no limit.
	MaxTotal int64

	// When the Archive waits for the disk.
	Sync audit.Sync

	// A failed write is reported by Err, but breaks off no response.
	Continue bool

	// KeepSecrets keeps the fields in secretFields.
	KeepSecrets bool

	// Leave the query out of URLs.
	DropQuery bool

	// Replaces a client's name; nil: leave it.
	Client func(string) string

	// Reports when nothing can be written, and when it can again; required.
	Log *slog.Logger
}
