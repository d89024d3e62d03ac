package audit

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/klauspost/compress/gzip"

	"robotsproxy/policy/audit/trail"
)

const (
	// tidyDelay is how long after a failure to compress or remove old files the next
	// try comes.
	tidyDelay = time.Minute
	// maxCompressed bounds the octets that are compressed a second: a hundredth of one
	// processor is enough for 4,000 requests a second, and of what comes faster most
	// would be removed soon after.
	maxCompressed = 3 << 20
	// compressChunk is what is compressed at a stroke, in octets: one or two
	// milliseconds' work.
	compressChunk = 256 << 10
)

// partial ends the name of a compressed file that is not whole yet.
const partial = ".part"

// tidy compresses the files that were set aside and removes those that are too many,
// until ctx ends.
func (l *Log) tidy(ctx context.Context) error {
	if !l.sheet.regular {
		return nil
	}
	told := false
	for {
		plain, err := l.prune()
		if len(plain) > 0 {
			err = errors.Join(err, compressOne(ctx, plain, func(n int) error { return l.rest(ctx, n) }))
		}
		if err != nil && ctx.Err() == nil && !told {
			l.o.Log.Warn("old files of the audit are not compressed or removed", "file", l.o.File, "error", err)
		}
		told = err != nil
		var again <-chan time.Time
		switch {
		case err != nil:
			again = time.After(tidyDelay)
		case len(plain) > 0:
			continue
		}
		select {
		case <-ctx.Done():
			return nil
		case <-l.full:
		case <-again:
		}
	}
}

// rest waits for as long as maxCompressed has it after n octets. What is set aside
// meanwhile may make others too many.
func (l *Log) rest(ctx context.Context, n int) error {
	due := time.NewTimer(time.Duration(n) * time.Second / maxCompressed)
	defer due.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-l.full:
			if _, err := l.prune(); err != nil {
				return err
			}
		case <-due.C:
			return nil
		}
	}
}

// prune removes the files that are too many, and gives those that are not compressed,
// the oldest first.
func (l *Log) prune() (plain []string, err error) {
	files, err := trail.Segments(l.sheet.path)
	if err != nil {
		return nil, err
	}
	if n := len(files); n > 0 && files[n-1].FirstSeq == 0 {
		files = files[:n-1] // the one that is written
	}
	if excess := len(files) - l.terms.Load().MaxFiles; excess > 0 {
		err = l.remove(files[:excess], files[excess].FirstSeq-1)
		files = files[excess:]
	}
	for _, f := range files {
		if !f.Gzip {
			plain = append(plain, f.Path)
		}
	}
	return plain, err
}

// remove removes the oldest files; the last line in them has the number last. Before that
// it writes a line that says so, and waits for the disk. Lines that are gone without such
// a line were removed by somebody else.
func (l *Log) remove(files []trail.Segment, last uint64) error {
	if last > l.pruned {
		if err := l.failed(); err != nil {
			return err
		}
		e := event{name: trail.EventPruned, first: files[0].FirstSeq, last: last}
		e.detail = fmt.Sprintf("the files with the lines seq %d to %d are removed: there are more than audit.max_files", e.first, e.last)
		if err := l.commit(l.tell(e)); err != nil {
			return err
		}
		if l.terms.Load().Sync != SyncNone {
			if err := l.sheet.sync(); err != nil { // without the lock: nobody is held up by a slow disk
				return err
			}
		}
		l.pruned = last
	}
	var err error
	for _, f := range files {
		plain := trail.SegmentPath(l.sheet.path, f.FirstSeq)
		for _, name := range []string{plain, plain + partial, trail.GzipPath(plain)} { // several after a crash
			if e := os.Remove(name); e != nil && !errors.Is(e, os.ErrNotExist) {
				err = errors.Join(err, e)
			}
		}
	}
	return err
}

// compressOne compresses one of these files: the newest that can be, which will be kept
// longest.
func compressOne(ctx context.Context, plain []string, rest func(octets int) error) (err error) {
	for _, name := range slices.Backward(plain) {
		failed := compress(name, rest)
		if err = errors.Join(err, failed); failed == nil || ctx.Err() != nil {
			break
		}
	}
	return err
}

// compress puts a compressed file in the place of a plain one, which is removed when
// the other is whole and on the disk. It rests after each chunk.
func compress(name string, rest func(octets int) error) (err error) {
	in, err := os.Open(name)
	if err != nil {
		return err
	}
	defer in.Close()
	part := name + partial
	out, err := os.OpenFile(part, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	zip, err := gzip.NewWriterLevel(out, gzip.BestSpeed) // half of the time that compress/gzip takes, for fewer octets
	if err != nil {
		return errors.Join(err, out.Close())
	}
	zip.Name = filepath.Base(name)
	_, err = io.CopyBuffer(zip, &unhurried{in, rest}, make([]byte, compressChunk))
	if err = errors.Join(err, zip.Close()); err == nil {
		err = out.Sync()
	}
	if err = errors.Join(err, out.Close()); err != nil {
		os.Remove(part)
		return fmt.Errorf("compress %s: %w", name, err)
	}
	switch err := os.Rename(part, trail.GzipPath(name)); {
	case errors.Is(err, fs.ErrNotExist):
		return nil // it has become one of too many, and is removed
	case err != nil:
		return err
	}
	if err := syncDir(name); err != nil {
		return err
	}
	return os.Remove(name)
}

// unhurried rests after each read.
type unhurried struct {
	in   io.Reader
	rest func(octets int) error
}

func (r *unhurried) Read(b []byte) (int, error) {
	n, err := r.in.Read(b)
	if n > 0 {
		err = errors.Join(err, r.rest(n))
	}
	return n, err
}
