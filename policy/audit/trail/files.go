package trail

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// A File is one of the files that make a trail.
type Segment struct {
	Path     string
	FirstSeq uint64 // the number of its first line; 0: the one that is written
	Gzip     bool
}

// gzipped ends the name of a compressed file.
const gzipped = ".gz"

// Aside is where the file at path goes when it is full and its first line has the
// number first: audit.jsonl becomes audit-000000000001.jsonl. Compressed it ends in
// .gz beside.
func SegmentPath(path string, first uint64) string {
	ext := filepath.Ext(path)
	return fmt.Sprintf("%s-%012d%s", strings.TrimSuffix(path, ext), first, ext)
}

// Gzipped is the name of a file that was set aside when it is compressed.
func GzipPath(aside string) string { return aside + gzipped }

// maxListings bounds how often a directory is read until twice it is the same.
const maxListings = 10

// Files finds the files of the trail that is written to path, the oldest first, that
// at path last, where there is one. Of a file that is there both plain and
// compressed, as after a crash, the plain one counts.
func Segments(path string) ([]Segment, error) {
	files, err := list(path)
	for range maxListings {
		// A name that is given or taken away while a directory is read may be left out.
		before := files
		if files, err = list(path); err != nil || slices.Equal(files, before) {
			break
		}
	}
	return files, err
}

func list(path string) ([]Segment, error) {
	dir, ext := filepath.Dir(path), filepath.Ext(path)
	stem := strings.TrimSuffix(filepath.Base(path), ext) + "-"
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var files []Segment
	for _, e := range entries {
		name, zipped := strings.CutSuffix(e.Name(), gzipped)
		digits, ok := strings.CutPrefix(strings.TrimSuffix(name, ext), stem)
		if !ok {
			continue
		}
		first, err := strconv.ParseUint(digits, 10, 64)
		if err != nil || first == 0 || name != filepath.Base(SegmentPath(path, first)) {
			continue // another's
		}
		files = append(files, Segment{Path: filepath.Join(dir, e.Name()), FirstSeq: first, Gzip: zipped})
	}
	slices.SortFunc(files, func(a, b Segment) int {
		return cmp.Or(cmp.Compare(a.FirstSeq, b.FirstSeq), strings.Compare(a.Path, b.Path)) // plain before .gz
	})
	files = slices.CompactFunc(files, func(a, b Segment) bool { return a.FirstSeq == b.FirstSeq })
	if _, err := os.Stat(path); err == nil {
		files = append(files, Segment{Path: path, Gzip: ext == gzipped})
	} else if !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return files, nil
}
