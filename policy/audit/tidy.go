package audit

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"robotsproxy/policy/audit/trail"
)

// tidyDelay is how long after a failure to compress or remove old files the next try
// comes.
const tidyDelay = time.Minute

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
		err := l.sheet.tidy(ctx, l.terms.Load().MaxFiles)
		if err != nil && ctx.Err() == nil && !told {
			l.o.Log.Warn("old files of the audit are not compressed or removed", "file", l.o.File, "error", err)
		}
		told = err != nil
		var again <-chan time.Time
		if err != nil {
			again = time.After(tidyDelay)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-l.full:
		case <-again:
		}
	}
}

func (s *sheet) tidy(ctx context.Context, most int) error {
	files, err := trail.Files(s.path)
	if err != nil {
		return err
	}
	if n := len(files); n > 0 && files[n-1].First == 0 {
		files = files[:n-1] // the one that is written
	}
	for ; len(files) > most; files = files[1:] {
		plain := trail.Aside(s.path, files[0].First)
		for _, name := range []string{plain, plain + partial, trail.Gzipped(plain)} { // several after a crash
			if e := os.Remove(name); e != nil && !errors.Is(e, os.ErrNotExist) {
				err = errors.Join(err, e)
			}
		}
	}
	for _, f := range files {
		if !f.Gzip && ctx.Err() == nil {
			err = errors.Join(err, compress(ctx, f.Path))
		}
	}
	return err
}

// compress puts a compressed file in the place of a plain one, which is removed when
// the other is whole and on the disk.
func compress(ctx context.Context, name string) (err error) {
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
	zip, err := gzip.NewWriterLevel(out, gzip.BestSpeed) // two thirds of the time, for a fifth more octets
	if err != nil {
		return errors.Join(err, out.Close())
	}
	zip.Name = filepath.Base(name)
	_, err = io.Copy(zip, &untilDone{ctx, in})
	if err = errors.Join(err, zip.Close(), out.Sync(), out.Close()); err != nil {
		os.Remove(part)
		return fmt.Errorf("compress %s: %w", name, err)
	}
	if err := os.Rename(part, trail.Gzipped(name)); err != nil {
		return err
	}
	if err := syncDir(name); err != nil {
		return err
	}
	return os.Remove(name)
}

// untilDone reads until ctx ends.
type untilDone struct {
	ctx context.Context
	in  io.Reader
}

func (r *untilDone) Read(b []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.in.Read(b)
}
