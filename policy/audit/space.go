package audit

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"robotsproxy/policy/audit/trail"
	"robotsproxy/policy/explain/humanize"
	"robotsproxy/policy/osfile"
)

const (
	// lowSpace is how long before the space is used up a Space warns.
	lowSpace = 14 * 24 * time.Hour
	// rateSpan is the least time from which a rate is derived.
	rateSpan = 10 * time.Minute
	// day is the time whose growth is taken for the present rate.
	day = 24 * time.Hour
	// usualRatio is the size of a compressed segment over that of its lines, until one is known.
	// Records of 780 bytes, of 40 hosts with a path of their own each, are compressed to 0.19.
	usualRatio = 0.2
)

// A Space says how much of the disk a trail or an archive uses, and how long the rest lasts. The zero Space is
// that of one that is not a file, or is empty.
type Space struct {
	// Of is the part of the configuration that the Space is about: "audit" or "archive".
	Of string

	// Oldest is when the oldest record was written.
	Oldest time.Time

	// Bytes is the size of all files, as they are on the disk.
	Bytes int64

	// Free is how many bytes the disk has left.
	Free int64

	// PerDay is by how many bytes the files grow in a day, once compressed; 0: it is not known yet.
	PerDay int64

	// UsedUp is when the space is used up at the present rate; zero: not before lines are removed by MaxAge, or unknown.
	UsedUp time.Time

	// Limit is what uses the space up: the disk, or the option that removes lines then.
	Limit string

	// Segment is how many bytes the file that is written may reach.
	Segment int64
}

// isLow reports whether the disk has less left than a full segment and the next one: compression needs
// space for a second file.
func (s Space) isLow() bool { return s.Free < 2*s.Segment }

// Warning returns what to tell the operator if the space is used up soon, else "".
func (s Space) Warning() string {
	left := time.Until(s.UsedUp)
	if s.UsedUp.IsZero() || left > lowSpace || s.PerDay == 0 {
		if s.isLow() {
			return fmt.Sprintf("%s free on the disk of the %s, but a file of it may reach %s",
				humanize.Bytes(s.Free), s.Of, humanize.Bytes(s.Segment))
		}
		return ""
	}
	what := s.Limit + " deletes records that are younger than " + s.key("max_age")
	if s.Limit == theDisk {
		what = "the disk is full"
	}
	if left <= 0 {
		return fmt.Sprintf("no space left for more records: %s", what)
	}
	return fmt.Sprintf("at the present rate of %s a day, the space for the %s lasts for %s, then %s",
		humanize.Bytes(s.PerDay), s.Of, humanize.Duration(left), what)
}

// key returns the name of a key of the configuration.
func (s Space) key(name string) string { return s.Of + "." + name }

// theDisk is the Limit that no option sets.
const theDisk = "the disk"

// AutoTotal returns the value of audit.max_total_size: auto for the trail that is written to path:
// half of the bytes that its disk has left or that the trail takes already.
func AutoTotal(path string) (int64, error) {
	segments, free, err := onDisk(path)
	total := free
	for _, s := range segments {
		total += s.size
	}
	return total / 2, err
}

// A segmentFile is a segment with the state of its file.
type segmentFile struct {
	trail.Segment

	// size is in bytes, as the file is on the disk.
	size int64

	// lastWrite is the file's modification time.
	lastWrite time.Time
}

// onDisk returns the segments of a trail, and the bytes that its disk has left.
func onDisk(path string) (files []segmentFile, free int64, err error) {
	if free, err = osfile.Free(filepath.Dir(path)); err != nil {
		return nil, 0, err
	}
	segments, err := trail.Segments(path)
	if err != nil {
		return nil, 0, err
	}
	for _, s := range segments {
		info, err := os.Stat(s.Path)
		if errors.Is(err, fs.ErrNotExist) {
			// The segment was compressed or removed meanwhile.
			continue
		}
		if err != nil {
			return nil, 0, err
		}
		files = append(files, segmentFile{s, info.Size(), info.ModTime()})
	}
	return files, free, nil
}

// MeasureSpace returns the Space of the trail that is written to path, which must be a regular
// file, under the options MaxSize, MaxAge, MaxTotal and MaxFiles.
func MeasureSpace(path string, o Options, now time.Time) (s Space, err error) {
	files, free, err := onDisk(path)
	if err != nil {
		return s, err
	}
	s.Of, s.Free, s.Segment = "audit", free, o.MaxSize
	if len(files) > 0 {
		s.measure(files, o, now)
	}
	s.finish(now)
	return s, nil
}

// finish sets UsedUp for a disk that may be full at any time, because no rate is known.
func (s *Space) finish(now time.Time) {
	if s.PerDay == 0 && s.isLow() {
		s.UsedUp, s.Limit = now, theDisk
	}
}

// Forecast sets what follows from the growth of the files: grown bytes since began. o has the limits.
func (s *Space) Forecast(grown int64, began time.Time, o Options, now time.Time) {
	s.estimate(float64(grown), began, o, 0, 1, now)
	s.finish(now)
}

// measure sets what the segments tell.
func (s *Space) measure(files []segmentFile, o Options, now time.Time) {
	ratio := compressionRatio(files)
	// grown is the size of the segments since began, once compressed, in bytes.
	var grown float64
	began := now
	for _, f := range slices.Backward(files) {
		s.Bytes += f.size
		if now.Sub(began) > day {
			continue
		}
		first, err := trail.Began(f.Segment)
		if err != nil || first.IsZero() {
			// Verification describes what is wrong with such a segment.
			continue
		}
		began = first
		if f.Gzip {
			grown += float64(f.size)
		} else {
			grown += float64(f.size) * ratio
		}
	}
	s.Oldest, _ = trail.Began(files[0].Segment)
	s.estimate(grown, began, o, len(files), ratio, now)
}

// estimate sets PerDay, UsedUp and Limit.
func (s *Space) estimate(grown float64, began time.Time, o Options, segments int, ratio float64, now time.Time) {
	if span := now.Sub(began); span >= rateSpan {
		s.PerDay = int64(grown * float64(day) / float64(span))
	}
	left := s.Free
	s.Limit = theDisk
	if o.MaxTotal > 0 && o.MaxTotal-s.Bytes < left {
		left, s.Limit = o.MaxTotal-s.Bytes, s.key("max_total_size")
	}
	if o.MaxFiles > 0 {
		if files := float64(o.MaxFiles-segments+1) * float64(o.MaxSize) * ratio; files < float64(left) {
			left, s.Limit = int64(files), s.key("max_files")
		}
	}
	rate := float64(s.PerDay) / float64(day)
	if s.PerDay == 0 || o.MaxAge > 0 && rate*float64(o.MaxAge) <= float64(s.Bytes+left) {
		return
	}
	// longest fits in a time.Duration.
	const longest = 100 * 365 * day
	s.UsedUp = now.Add(time.Duration(min(max(0, float64(left))/rate, float64(longest))))
}

// compressionRatio returns the size of the newest compressed segment over that of its lines.
func compressionRatio(files []segmentFile) float64 {
	for _, f := range slices.Backward(files) {
		if !f.Gzip {
			continue
		}
		if lines, err := uncompressedSize(f); err == nil && lines > 0 {
			return min(1, float64(f.size)/float64(lines))
		}
	}
	return usualRatio
}

// uncompressedSize returns the size of a file before it was compressed (RFC 1952 2.3.1, ISIZE).
func uncompressedSize(f segmentFile) (uint32, error) {
	file, err := osfile.Open(f.Path)
	if err != nil {
		return 0, err
	}
	defer file.Close()
	var size [4]byte
	_, err = file.ReadAt(size[:], f.size-int64(len(size)))
	return binary.LittleEndian.Uint32(size[:]), err
}
