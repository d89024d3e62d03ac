package trail

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// A Segment is one of the files of a trail.
type Segment struct {
	Path string

	// FirstSeq is the seq of the first line; 0: it is the active segment, which is written.
	FirstSeq uint64

	// Gzip reports that the segment is compressed.
	Gzip bool
}

// gzipExt ends the name of a compressed segment.
const gzipExt = ".gz"

// SegmentPath returns the path to which the active segment at path is renamed when it is
// full and its first line has the seq first: audit-000000000001.jsonl for audit.jsonl.
func SegmentPath(path string, first uint64) string {
	ext := filepath.Ext(path)
	return fmt.Sprintf("%s-%012d%s", strings.TrimSuffix(path, ext), first, ext)
}

// GzipPath returns the path of a compressed segment, given its path before.
func GzipPath(segment string) string { return segment + gzipExt }

// FirstLine returns the first line of in without its line feed, and reads little more. The error is
// io.EOF if the line has no end, or is longer than MaxLine.
func FirstLine(in io.Reader) ([]byte, error) {
	line, err := bufio.NewReader(io.LimitReader(in, MaxLine+1)).ReadBytes('\n')
	if err != nil {
		return nil, err
	}
	return line[:len(line)-1], nil
}

// maxScans bounds how often Segments reads a directory to get the same result twice.
const maxScans = 10

// Segments lists the segments of the trail that is written to path, the oldest first and the
// active one last, if there is one. If a segment is there both plain and compressed, as after
// a crash, it lists the plain one.
func Segments(path string) ([]Segment, error) {
	segments, err := listSegments(path)
	for range maxScans {
		// A read of a directory may leave out a file that is renamed meanwhile.
		before := segments
		if segments, err = listSegments(path); err != nil || slices.Equal(segments, before) {
			break
		}
	}
	return segments, err
}

func listSegments(path string) ([]Segment, error) {
	dir, ext := filepath.Dir(path), filepath.Ext(path)
	stem := strings.TrimSuffix(filepath.Base(path), ext) + "-"
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var segments []Segment
	for _, e := range entries {
		name, zipped := strings.CutSuffix(e.Name(), gzipExt)
		digits, ok := strings.CutPrefix(strings.TrimSuffix(name, ext), stem)
		if !ok {
			continue
		}
		first, err := strconv.ParseUint(digits, 10, 64)
		if err != nil || first == 0 || name != filepath.Base(SegmentPath(path, first)) {
			// The file is no segment of this trail.
			continue
		}
		segments = append(segments, Segment{Path: filepath.Join(dir, e.Name()), FirstSeq: first, Gzip: zipped})
	}
	slices.SortFunc(segments, func(a, b Segment) int {
		// The plain file comes before the compressed one.
		return cmp.Or(cmp.Compare(a.FirstSeq, b.FirstSeq), strings.Compare(a.Path, b.Path))
	})
	segments = slices.CompactFunc(segments, func(a, b Segment) bool { return a.FirstSeq == b.FirstSeq })
	if _, err := os.Stat(path); err == nil {
		segments = append(segments, Segment{Path: path, Gzip: ext == gzipExt})
	} else if !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return segments, nil
}
