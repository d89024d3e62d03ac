package audit

import (
	"bytes"
	"cmp"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

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

// prunings returns the events about removed files.
func prunings(t *testing.T, l *Log) (ranges [][2]uint64) {
	t.Helper()
	for _, e := range entries(t, l) {
		if e.Event == trail.EventPruned {
			ranges = append(ranges, [2]uint64{e.FirstSeq, e.LastSeq})
		}
	}
	return ranges
}

// TestPruningIsSaid: verify accepts a trail whose first files the Log has removed, but
// not one whose first file somebody else has removed.
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

// TestPruningSaysNothingOfOthers: the events do not name the lines of a file that somebody else
// has removed.
func TestPruningSaysNothingOfOthers(t *testing.T) {
	for keep, want := range map[int][][2]uint64{3: {{1, 1}}, 2: {{1, 1}, {3, 3}}} {
		l := open(t, Options{MaxFiles: 5})
		setAsideFiles(t, l, 5)
		if _, err := l.retention.prune(); err != nil {
			t.Fatal(err)
		}
		if err := os.Remove(trail.SegmentPath(l.opened.File, 2)); err != nil {
			t.Fatal(err)
		}
		o := *l.options.Load()
		o.MaxFiles = keep
		l.SetOptions(o)
		if _, err := l.retention.prune(); err != nil {
			t.Fatal(err)
		}
		if got := prunings(t, l); !slices.Equal(got, want) {
			t.Errorf("%d files are kept: %v, want %v", keep, got, want)
		}
	}
}

// TestPruningSaysNothingOfCutLines: the events do not name lines that were cut off while the proxy did not
// run, so that verification still reports them.
func TestPruningSaysNothingOfCutLines(t *testing.T) {
	for name, c := range map[string]struct {
		o     Options
		aside int // files that are set aside after the cut
	}{"the event is in the active file": {Options{MaxTotal: 1}, 0}, "the event is in a closed file": {Options{MaxFiles: 1}, 1}} {
		l := open(t, Options{})
		setAsideFiles(t, l, 3)
		l.Write(refused())
		close(t, l)
		c.o.File, c.o.Known = l.opened.File, l.OnDisk()
		if err := os.Remove(l.opened.File); err != nil {
			t.Fatal(err)
		}
		l = open(t, c.o)
		setAsideFiles(t, l, c.aside)
		if _, err := l.retention.prune(); err != nil {
			t.Fatal(err)
		}
		if got := prunings(t, l); c.o.Known.Seq != 5 || !slices.Equal(got, [][2]uint64{{1, 3}}) {
			t.Errorf("%s: %v are named, and the last line was seq %d", name, got, c.o.Known.Seq)
		}
		if _, err := verified(t, l); err == nil || !strings.Contains(err.Error(), "missing: seq 1 to 5") {
			t.Errorf("%s: %v", name, err)
		}
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

// writeAged writes a segment with a line for each age, and a line in the active segment. A line
// ended at the given age, or, if that is 0, at the age of the segment before it.
func writeAged(t *testing.T, l *Log, lines time.Duration, ages []time.Duration) {
	t.Helper()
	o := *l.options.Load()
	o.MaxSize = 1
	l.SetOptions(o)
	for i := range len(ages) + 1 {
		r := refused()
		r.Time = time.Now().Add(-cmp.Or(lines, ages[max(0, i-1)]) - r.Took)
		if err := l.Write(r); err != nil {
			t.Fatal(err)
		}
	}
	o.MaxSize = 0
	l.SetOptions(o)
}

// old is the age of segments that MaxAge: old / 2 removes.
const old = 48 * time.Hour

// retentionCases are segments of some ages, and how many of them which option removes.
var retentionCases = []struct {
	name    string
	options func(size int64) Options // size is that of a segment
	ages    []time.Duration          // of the segments, the oldest first
	lines   time.Duration            // age of all lines; 0: as old as the segment before them
	removed int
	option  string
}{
	{"no limit", func(int64) Options { return Options{} }, []time.Duration{old, old, 0}, 0, 0, ""},
	{"all are young", func(int64) Options { return Options{MaxAge: old} }, []time.Duration{0, 0, 0}, 0, 0, ""},
	{"two are old", func(int64) Options { return Options{MaxAge: old / 2} }, []time.Duration{old, old, 0}, 0, 2, "audit.max_age"},
	{"all are old", func(int64) Options { return Options{MaxAge: old / 2} }, []time.Duration{old, old, old}, 0, 3, "audit.max_age"},
	{"old behind a young one", func(int64) Options { return Options{MaxAge: old / 2} }, []time.Duration{0, old, old}, 0, 0, ""},
	{"only the files are old", func(int64) Options { return Options{MaxAge: old / 2} }, []time.Duration{old, old, old}, old / 4, 0, ""},
	{"only the lines are old", func(int64) Options { return Options{MaxAge: old / 2} }, []time.Duration{0, 0, 0}, old, 0, ""},
	{"too many", func(int64) Options { return Options{MaxAge: old, MaxFiles: 2} }, []time.Duration{0, 0, 0}, 0, 1, "audit.max_files"},
	{"too large", func(size int64) Options { return Options{MaxAge: old, MaxTotal: 3 * size} }, []time.Duration{0, 0, 0}, 0, 1, "audit.max_total_size"},
	{"as large as permitted", func(size int64) Options { return Options{MaxAge: old, MaxTotal: 5 * size} }, []time.Duration{0, 0, 0}, 0, 0, ""},
}

// TestRetentionCauses: audit.max_age decides, and the ceilings remove lines before it. The event names
// the option, and a ceiling is logged and counted.
func TestRetentionCauses(t *testing.T) {
	for _, tc := range retentionCases {
		t.Run(tc.name, func(t *testing.T) {
			var told bytes.Buffer
			l := open(t, Options{Log: slog.New(slog.NewTextHandler(&told, nil))})
			writeAged(t, l, tc.lines, tc.ages)
			segments, _, err := l.retention.segments()
			if err != nil || len(segments) != len(tc.ages) {
				t.Fatal(segments, err)
			}
			for i, age := range tc.ages {
				then := time.Now().Add(-age)
				if err := os.Chtimes(segments[i].Path, then, then); err != nil {
					t.Fatal(err)
				}
			}
			o := *l.options.Load()
			limits := tc.options(segments[0].size)
			o.MaxAge, o.MaxTotal, o.MaxFiles = limits.MaxAge, limits.MaxTotal, limits.MaxFiles
			l.SetOptions(o)
			l.retention.settled = time.Now()
			if _, err := l.retention.prune(); err != nil {
				t.Fatal(err)
			}
			left, _, _ := l.retention.segments()
			if removed := len(tc.ages) - len(left); removed != tc.removed {
				t.Errorf("%d segments are removed, want %d", removed, tc.removed)
			}
			var events []trail.Entry
			for _, e := range entries(t, l) {
				if e.Event == trail.EventPruned {
					events = append(events, e)
				}
			}
			lines := uint64(0)
			if tc.removed > 0 {
				lines = segments[tc.removed-1].lastSeq
				if len(events) != 1 || events[0].FirstSeq != 1 || events[0].LastSeq != lines || !strings.HasSuffix(events[0].Detail, "by "+tc.option) {
					t.Errorf("events %+v", events)
				}
			} else if len(events) > 0 {
				t.Errorf("events %+v", events)
			}
			for option, n := range l.Stats().Removed {
				if want := map[bool]uint64{true: lines}[option == tc.option]; n != want {
					t.Errorf("%d lines removed by %s, want %d", n, option, want)
				}
			}
			if early := tc.removed > 0 && tc.option != "audit.max_age"; early != strings.Contains(told.String(), "deleted before audit.max_age") {
				t.Errorf("logged: %s", &told)
			}
			if res, err := verified(t, l); err != nil || res.First != lines+1 {
				t.Errorf("verify: %+v, %v", res, err)
			}
		})
	}
}

// TestAgedSegmentIsRotated: a line is removed soon after MaxAge although its segment is never full.
func TestAgedSegmentIsRotated(t *testing.T) {
	l := open(t, Options{MaxAge: 10 * time.Hour})
	if err := l.Write(refused()); err != nil {
		t.Fatal(err)
	}
	e := entries(t, l)[0]
	for _, tc := range []struct {
		at        time.Duration
		rotations uint64
	}{{59 * time.Minute, 0}, {61 * time.Minute, 1}, {2 * time.Hour, 1}} { // the last time there is no line to rotate
		if err := l.rotateAged(e.End().Add(tc.at)); err != nil || l.Stats().Rotations != tc.rotations {
			t.Errorf("after %v: %d rotations, %v", tc.at, l.Stats().Rotations, err)
		}
	}
	if res, err := verified(t, l); err != nil || res.Lines != 1 {
		t.Errorf("%+v, %v", res, err)
	}
}
