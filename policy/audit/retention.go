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
	// retentionRetry is how long after a failure segments are compressed and removed again.
	retentionRetry = time.Minute
	// maxCompressed bounds the bytes that are compressed in a second. A hundredth of one
	// processor is enough for 4,000 requests a second. Of a faster trail, most segments would
	// be removed soon after they were compressed.
	maxCompressed = 3 << 20
	// compressChunk is how many bytes are compressed without a pause: one or two milliseconds' work.
	compressChunk = 256 << 10
	// partialExt ends the name of a compressed segment that is not complete.
	partialExt = ".part"
)

// A retention compresses the full segments of a Log, and removes the oldest ones.
type retention struct {
	log       *Log
	prunedSeq uint64 // last line that a pruned event has named
}

// run compresses and removes segments until ctx ends.
func (r *retention) run(ctx context.Context) error {
	if !r.log.segment.regular {
		return nil
	}
	reported := false
	for {
		plain, err := r.prune()
		if len(plain) > 0 {
			err = errors.Join(err, compressOne(ctx, plain, func(n int) error { return r.pause(ctx, n) }))
		}
		if err != nil && ctx.Err() == nil && !reported {
			r.log.opened.Log.Warn("old files of the audit are not compressed or removed", "file", r.log.opened.File, "error", err)
		}
		reported = err != nil
		var retry <-chan time.Time
		switch {
		case err != nil:
			retry = time.After(retentionRetry)
		case len(plain) > 0:
			continue
		}
		select {
		case <-ctx.Done():
			return nil
		case <-r.log.rotated:
		case <-retry:
		}
	}
}

// pause waits after n bytes were compressed, so that maxCompressed is kept. It removes
// segments meanwhile if there are too many.
func (r *retention) pause(ctx context.Context, n int) error {
	timer := time.NewTimer(time.Duration(n) * time.Second / maxCompressed)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-r.log.rotated:
			if _, err := r.prune(); err != nil {
				return err
			}
		case <-timer.C:
			return nil
		}
	}
}

// prune removes the segments beyond MaxFiles, and returns the paths of those that are not
// compressed, the oldest first.
func (r *retention) prune() (plain []string, err error) {
	segments, err := trail.Segments(r.log.segment.path)
	if err != nil {
		return nil, err
	}
	if n := len(segments); n > 0 && segments[n-1].FirstSeq == 0 {
		segments = segments[:n-1] // without the active segment
	}
	if excess := len(segments) - r.log.options.Load().MaxFiles; excess > 0 {
		err = r.remove(segments[:excess], segments[excess].FirstSeq-1)
		segments = segments[excess:]
	}
	for _, s := range segments {
		if !s.Gzip {
			plain = append(plain, s.Path)
		}
	}
	return plain, err
}

// remove removes the oldest segments; the last line in them has the seq last. Before that it
// writes a pruned event and waits until the disk has it. If lines are missing without such an
// event, somebody else removed them.
func (r *retention) remove(segments []trail.Segment, last uint64) error {
	if last > r.prunedSeq {
		e := event{name: trail.EventPruned, first: segments[0].FirstSeq, last: last}
		e.detail = fmt.Sprintf("the files with the lines seq %d to %d are removed: there are more than audit.max_files", e.first, e.last)
		if err := r.log.writeEvent(e); err != nil {
			return err
		}
		r.prunedSeq = last
	}
	var err error
	for _, s := range segments {
		plain := trail.SegmentPath(r.log.segment.path, s.FirstSeq)
		for _, name := range []string{plain, plain + partialExt, trail.GzipPath(plain)} { // there are several after a crash
			if e := os.Remove(name); e != nil && !errors.Is(e, os.ErrNotExist) {
				err = errors.Join(err, e)
			}
		}
	}
	return err
}

// compressOne compresses the newest of these segments that can be compressed, since it will
// be kept longest. It calls pause after each chunk, with the number of bytes.
func compressOne(ctx context.Context, plain []string, pause func(n int) error) (err error) {
	for _, name := range slices.Backward(plain) {
		failed := compress(name, pause)
		if err = errors.Join(err, failed); failed == nil || ctx.Err() != nil {
			break
		}
	}
	return err
}

// compress replaces a plain segment by a compressed one. It removes the plain one when the
// other is complete and on the disk.
func compress(name string, pause func(n int) error) (err error) {
	in, err := os.Open(name)
	if err != nil {
		return err
	}
	defer in.Close()
	part := name + partialExt
	out, err := os.OpenFile(part, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	zip, err := gzip.NewWriterLevel(out, gzip.BestSpeed) // half the time of compress/gzip, and fewer bytes
	if err != nil {
		return errors.Join(err, out.Close())
	}
	zip.Name = filepath.Base(name)
	_, err = io.CopyBuffer(zip, &pacedReader{in, pause}, make([]byte, compressChunk))
	if err = errors.Join(err, zip.Close()); err == nil {
		err = out.Sync()
	}
	if err = errors.Join(err, out.Close()); err != nil {
		os.Remove(part)
		return fmt.Errorf("compress %s: %w", name, err)
	}
	switch err := os.Rename(part, trail.GzipPath(name)); {
	case errors.Is(err, fs.ErrNotExist):
		return nil // it was removed meanwhile, since there were too many
	case err != nil:
		return err
	}
	if err := syncDir(name); err != nil {
		return err
	}
	return os.Remove(name)
}

// A pacedReader calls pause after each read.
type pacedReader struct {
	in    io.Reader
	pause func(n int) error
}

func (r *pacedReader) Read(b []byte) (int, error) {
	n, err := r.in.Read(b)
	if n > 0 {
		err = errors.Join(err, r.pause(n))
	}
	return n, err
}
