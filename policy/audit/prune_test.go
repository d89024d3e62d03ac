package audit

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"robotsproxy/policy/audit/trail"
)

// setAsideFiles has a Log set so many files aside, each with a line.
func setAsideFiles(t *testing.T, l *Log, n int) {
	t.Helper()
	o := *l.options.Load()
	o.MaxSize = 1
	l.SetOptions(o)
	for turns := l.Stats().Rotations + uint64(n); l.Stats().Rotations < turns; {
		if err := l.Write(refused()); err != nil {
			t.Fatal(err)
		}
	}
	o.MaxSize = 0
	l.SetOptions(o)
}

// verified is what trail.Verify says of a Log's files.
func verified(t *testing.T, l *Log) (trail.Result, error) {
	t.Helper()
	r, err := trail.Open(l.opened.File)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	return trail.Verify(r, trail.VerifyOptions{})
}

// prunings gives the events of files that were removed.
func prunings(t *testing.T, l *Log) (ranges [][2]uint64) {
	t.Helper()
	for _, e := range entries(t, l) {
		if e.Event == trail.EventPruned {
			ranges = append(ranges, [2]uint64{e.FirstSeq, e.LastSeq})
		}
	}
	return ranges
}

// TestPruningIsSaid: verify finds a trail whole whose first files the Log removed, and
// not one whose first file somebody took away.
func TestPruningIsSaid(t *testing.T) {
	l := open(t, Options{MaxFiles: 3})
	setAsideFiles(t, l, 5)
	if res, err := verified(t, l); err != nil || res.First != 1 {
		t.Fatalf("%+v, %v", res, err)
	}
	for range 2 { // the second time there is nothing to do
		if _, err := l.retention.prune(); err != nil {
			t.Fatal(err)
		}
	}
	if got := prunings(t, l); !slices.Equal(got, [][2]uint64{{1, 2}}) {
		t.Errorf("%v", got)
	}
	res, err := verified(t, l)
	if err != nil || res.First != 3 || !res.Pruned {
		t.Errorf("%+v, %v", res, err)
	}
	setAsideFiles(t, l, 1)
	if _, err := l.retention.prune(); err != nil {
		t.Fatal(err)
	}
	if res, err := verified(t, l); err != nil || !res.Pruned {
		t.Errorf("%+v, %v", res, err)
	}
	files, err := trail.Segments(l.opened.File)
	if err != nil || len(files) != 4 {
		t.Fatalf("%v, %v", files, err)
	}
	if err := os.Remove(files[0].Path); err != nil {
		t.Fatal(err)
	}
	_, err = verified(t, l)
	if f, ok := errors.AsType[*trail.Fault](err); !ok || f.Kind != "missing" || f.Seq != files[1].FirstSeq {
		t.Errorf("a file taken away: %v", err)
	}
}

// TestNothingIsRemovedUnsaid: not while the line that says so cannot be written.
func TestNothingIsRemovedUnsaid(t *testing.T) {
	l := open(t, Options{MaxFiles: 1})
	setAsideFiles(t, l, 3)
	undo := stop(t, l)
	for range 2 {
		if _, err := l.retention.prune(); !errors.Is(err, ErrUnwritable) {
			t.Errorf("%v", err)
		}
	}
	if files, _ := trail.Segments(l.opened.File); len(files) != 4 {
		t.Errorf("%v", files)
	}
	undo()
	l.probe(false)
	if _, err := l.retention.prune(); err != nil {
		t.Fatal(err)
	}
	if files, _ := trail.Segments(l.opened.File); len(files) != 2 {
		t.Errorf("%v", files)
	}
	if res, err := verified(t, l); err != nil || !res.Pruned {
		t.Errorf("%+v, %v", res, err)
	}
}

// TestPruningIsSaidOnce of a file that cannot be removed.
func TestPruningIsSaidOnce(t *testing.T) {
	l := open(t, Options{MaxFiles: 1})
	setAsideFiles(t, l, 2)
	part := trail.SegmentPath(l.opened.File, 1) + partialExt
	if err := os.MkdirAll(filepath.Join(part, "not empty"), 0o700); err != nil {
		t.Fatal(err)
	}
	plain := trail.SegmentPath(l.opened.File, 1)
	if err := errors.Join(os.Remove(plain), os.MkdirAll(filepath.Join(plain, "not empty"), 0o700)); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if _, err := l.retention.prune(); err == nil {
			t.Error("a directory was removed")
		}
	}
	if err := os.RemoveAll(plain); err != nil {
		t.Fatal(err)
	}
	if got := prunings(t, l); !slices.Equal(got, [][2]uint64{{1, 1}}) {
		t.Errorf("%v", got)
	}
}
