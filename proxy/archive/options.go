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
	// Dir is the directory of the files; required.
	Dir string

	// Index has the payloads that the files have; required. It must let no other process use Dir.
	Index Index

	// Software is the name and version of this program, for the first record of a file.
	Software string

	// Prefix begins the names of files.
	Prefix string

	// MaxFile is the size in bytes after which another file is begun.
	MaxFile int64

	// MaxBody is how many bytes of a body are archived; the rest is left out.
	MaxBody int64

	// Only2xx leaves out responses with another status than 2xx.
	Only2xx bool

	// Compress writes each record as one member of gzip.
	Compress bool

	// Dedup writes a revisit record if an earlier record has the same payload.
	Dedup bool

	// MaxAge is how long files are kept after their last record; zero: forever.
	MaxAge time.Duration

	// MaxTotal is how many bytes all files may take before the oldest are removed; zero: no limit.
	MaxTotal int64

	// Sync says when the Archive waits for the disk.
	Sync audit.Sync

	// Continue passes responses on after a failed write, which Err still reports.
	Continue bool

	// KeepSecrets keeps the fields in secretFields.
	KeepSecrets bool

	// DropQuery leaves the query out of URLs.
	DropQuery bool

	// Client returns what the records have in place of a client's name; nil: the name.
	Client func(string) string

	// Log gets a line when nothing can be written, and when writing works again; required.
	Log *slog.Logger
}
