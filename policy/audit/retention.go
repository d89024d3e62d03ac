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
	"robotsproxy/policy/osfile"
)

const (
	// retentionInterval is how often segments are compressed and removed, even if none was rotated.
	retentionInterval = time.Minute
	// maxCompressed bounds the bytes that are compressed in a second. A hundredth of one
	// processor is enough for 4,000 requests a second. Of a faster trail, most segments would
	// be removed soon after they were compressed.
	maxCompressed = 3 << 20
	// compressChunk is how many bytes are compressed without a pause: one or two milliseconds' work.
	compressChunk = 256 << 10
	// partialExt ends the name of a compressed segment that is not complete.
	partialExt = ".part"
)

// removalCauses are the options that decide when segments are removed. All but the first are
// ceilings, which remove lines before they are as old as MaxAge.
var removalCauses = [...]string{"audit.max_age", "audit.max_files", "audit.max_total_size"}

const (
	byAge = iota
	byFiles
	byTotal
)

// A retention compresses the full segments of a Log, and removes the oldest ones.
type retention struct {
	log *Log

	// prunedSeq is the last line that a pruned event has named.
	prunedSeq uint64

	// lastSeqs has the last line of each full segment that was listed last, by its first line.
	lastSeqs map[uint64]uint64
	clock    SettledClock

	// settled is the time of the clock from which ages count.
	settled time.Time
}

// run compresses and removes segments, and measures the space, until ctx ends.
func (r *retention) run(ctx context.Context) error {
	if !r.log.segment.regular {
		return nil
	}
	tick := time.NewTicker(retentionInterval)
	defer tick.Stop()
	reported := false
	for {
		err := r.log.rotateAged(time.Now())
		r.settled = r.clock.Now()
		plain, perr := r.prune()
		if err = errors.Join(err, perr); len(plain) > 0 {
			err = errors.Join(err, compressOne(ctx, plain, func(n int) error { return r.pause(ctx, n) }))
		}
		err = errors.Join(err, r.measure())
		if err != nil && ctx.Err() == nil && !reported {
			r.log.opened.Log.Warn("audit files not compressed or removed", "file", r.log.opened.File, "error", err)
		}
		if reported = err != nil; !reported && len(plain) > 0 {
			continue
		}
		select {
		case <-ctx.Done():
			return nil
		case <-r.log.rotated:
		case <-tick.C:
		}
	}
}

// rotateAged begins a new segment if the active one has lines for too long: a line is removed with
// its whole segment, which must not be much later than after MaxAge.
func (l *Log) rotateAged(now time.Time) error {
	// perAge is the least number of segments that a trail has within MaxAge.
	const perAge = 10
	maxAge := l.options.Load().MaxAge
	if maxAge <= 0 {
		return nil
	}
	began, err := trail.Began(trail.Segment{Path: l.segment.path})
	if err != nil || began.IsZero() || now.Sub(began) < maxAge/perAge {
		return err
	}
	if err := l.lock(); err != nil {
		return err
	}
	defer l.unlock()
	if l.lastFailure() != nil || l.writtenBytes > 0 || l.segment.size == 0 {
		// The next write can begin a segment.
		return nil
	}
	return l.rotate()
}

// measure stores how much space there is. It logs when that becomes too little.
func (r *retention) measure() error {
	space, err := MeasureSpace(r.log.segment.path, *r.log.options.Load(), time.Now())
	if err != nil {
		return err
	}
	before := r.log.space.Swap(&space)
	if warning := space.Warning(); warning != "" && (before == nil || before.Warning() == "") {
		r.log.opened.Log.Warn("little space left for the audit", "file", r.log.opened.File, "detail", warning)
	}
	return nil
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

// A fullSegment is a segment that is not written any more.
type fullSegment struct {
	segmentFile
	lastSeq uint64
}

// prune removes the segments that are too old or too many, and returns the paths of those that
// are not compressed, the oldest first.
func (r *retention) prune() (plain []string, err error) {
	segments, active, err := r.segments()
	if err != nil {
		return nil, err
	}
	for {
		n, cause := r.excess(segments, active)
		if n == 0 {
			break
		}
		r.leaveOutCut(segments, n)
		for i := range n - 1 {
			if segments[i].lastSeq+1 < segments[i+1].FirstSeq {
				// The event must not name lines that somebody else has removed.
				n = i + 1
				break
			}
		}
		err = errors.Join(err, r.remove(segments[:n], cause))
		segments = segments[n:]
	}
	for _, s := range segments {
		if !s.Gzip {
			plain = append(plain, s.Path)
		}
	}
	return plain, err
}

// segments returns the full segments, the oldest first, and the size of the active one.
func (r *retention) segments() (full []fullSegment, active int64, err error) {
	if err := r.log.lock(); err != nil {
		return nil, 0, err
	}
	// This is read before the list is made, so that a segment that is rotated meanwhile is left out.
	next := r.log.segment.firstSeq
	r.log.unlock()
	all, _, err := onDisk(r.log.segment.path)
	if err != nil {
		return nil, 0, err
	}
	lastSeqs := make(map[uint64]uint64, len(all))
	for _, f := range slices.Backward(all) {
		switch {
		case f.FirstSeq == 0:
			active = f.size
		case f.FirstSeq < next:
			last := next - 1
			if known := r.lastSeqs[f.FirstSeq]; known > 0 {
				// Somebody may have removed the segment behind it.
				last = min(last, known)
			}
			lastSeqs[f.FirstSeq] = last
			full = append(full, fullSegment{f, last})
			next = f.FirstSeq
		}
	}
	r.lastSeqs = lastSeqs
	slices.Reverse(full)
	return full, active, nil
}

// leaveOutCut sets the last lines of the first n segments, behind which lines may have been cut off when
// the proxy started: the event about the cut is the next line.
func (r *retention) leaveOutCut(segments []fullSegment, n int) {
	for i := range n {
		next := trail.Segment{Path: r.log.segment.path}
		if i+1 < len(segments) {
			next = segments[i+1].Segment
		}
		e, err := trail.First(next)
		if err == nil && e.Event == trail.EventCut && e.FirstSeq > segments[i].FirstSeq && e.Seq > e.FirstSeq {
			segments[i].lastSeq = min(segments[i].lastSeq, e.FirstSeq-1)
		}
	}
}

// excess returns how many of the oldest segments are to be removed, and the index of the cause.
// active is the size of the active segment.
func (r *retention) excess(segments []fullSegment, active int64) (n, cause int) {
	o := r.log.options.Load()
	for o.MaxAge > 0 && n < len(segments) && r.isOlder(segments[n:], o.MaxAge) {
		n++
	}
	if n > 0 {
		return n, byAge
	}
	if o.MaxFiles > 0 && len(segments) > o.MaxFiles {
		return len(segments) - o.MaxFiles, byFiles
	}
	total := active
	for _, s := range segments {
		total += s.size
	}
	for o.MaxTotal > 0 && n < len(segments) && total > o.MaxTotal {
		total -= segments[n].size
		n++
	}
	return n, byTotal
}

// isOlder reports whether all lines of the first segment were written longer ago than age, by the settled
// clock. The time of the file is not enough, since touch or a restored copy can make it older than the lines.
func (r *retention) isOlder(segments []fullSegment, age time.Duration) bool {
	if r.settled.Sub(segments[0].lastWrite) <= age {
		return false
	}
	// The first line of the next segment is as old as the last one of segments[0], or younger.
	next := trail.Segment{Path: r.log.segment.path}
	if len(segments) > 1 {
		next = segments[1].Segment
	}
	for _, s := range []trail.Segment{next, segments[0].Segment} {
		if began, err := trail.Began(s); err == nil && r.settled.Sub(began) <= age {
			return false
		}
	}
	return true
}

// remove removes the oldest segments. Before that it writes a pruned event and waits until the
// event is on the disk. If lines are missing without such an event, somebody else has removed
// them.
func (r *retention) remove(segments []fullSegment, cause int) error {
	first, last, option := segments[0].FirstSeq, segments[len(segments)-1].lastSeq, removalCauses[cause]
	if last > r.prunedSeq {
		e := &event{Event: trail.EventPruned, FirstSeq: first, LastSeq: last}
		e.Detail = fmt.Sprintf("removed the files with the lines seq %d to %d, by %s", first, last, option)
		if err := r.log.writeEvent(e); err != nil {
			return err
		}
		r.log.counts.removed[cause].Add(last - max(first, r.prunedSeq+1) + 1)
		r.prunedSeq = last
		if cause != byAge {
			r.log.opened.Log.Warn("audit records deleted before audit.max_age", "file", r.log.opened.File,
				"option", option, "first_seq", first, "last_seq", last)
		}
	}
	var err error
	for _, s := range segments {
		plain := trail.SegmentPath(r.log.segment.path, s.FirstSeq)
		// After a crash there may be several of these files.
		for _, name := range []string{plain, plain + partialExt, trail.GzipPath(plain)} {
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
	in, err := osfile.Open(name)
	if err != nil {
		return err
	}
	defer in.Close()
	part := name + partialExt
	out, err := os.OpenFile(part, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	// This gzip takes half the time of compress/gzip, and makes fewer bytes.
	zip, err := gzip.NewWriterLevel(out, gzip.BestSpeed)
	if err != nil {
		return errors.Join(err, out.Close())
	}
	_, err = io.CopyBuffer(zip, &pacedReader{in, pause}, make([]byte, compressChunk))
	if err = errors.Join(err, zip.Close()); err == nil {
		err = out.Sync()
	}
	if err = errors.Join(err, out.Close()); err != nil {
		os.Remove(part)
		return fmt.Errorf("compress %s: %w", name, err)
	}
	err = keepTime(in, part)
	if err == nil {
		err = os.Rename(part, trail.GzipPath(name))
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		// The segment was removed meanwhile, since there were too many.
		return nil
	case err != nil:
		return err
	}
	if err := osfile.Sync(filepath.Dir(name)); err != nil {
		return err
	}
	return os.Remove(name)
}

// keepTime sets the modification time of a file to that of another, which is the time of its last
// line.
func keepTime(from *os.File, name string) error {
	info, err := from.Stat()
	if err != nil {
		return err
	}
	return os.Chtimes(name, time.Time{}, info.ModTime())
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
