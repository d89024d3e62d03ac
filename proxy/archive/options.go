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

// A form is what the Options say of all records of a file.
type form struct {
	prefix                         string
	compress, keepSecrets, noQuery bool
}

func (o *Options) form() form { return form{o.Prefix, o.Compress, o.KeepSecrets, o.DropQuery} }

// fileLimit returns the size at which a file is complete. Files that are written are not removed, so they must take
// no more than a part of MaxTotal.
func (o *Options) fileLimit() int64 {
	if o.MaxTotal <= 0 {
		return o.MaxFile
	}
	return min(o.MaxFile, o.MaxTotal/(2*maxLarge))
}
