package trail

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
)

// texts returns what a Reader returns up to io.EOF: lines, or errors in their place.
func texts(t testing.TB, r *Reader) (got []string) {
	t.Helper()
	for {
		line, err := r.Next()
		switch {
		case err == io.EOF:
			return got
		case err == nil:
			got = append(got, string(line.Text))
		default:
			got = append(got, fmt.Sprintf("%s:%d: %v", filepath.Base(line.File), line.Number, err))
			if !errors.Is(err, ErrTorn) && !errors.Is(err, ErrTooLong) && !errors.Is(err, ErrRemoved) {
				return got
			}
		}
	}
}

func equal(t testing.TB, got []string, want ...string) {
	t.Helper()
	if strings.Join(got, "|") != strings.Join(want, "|") {
		t.Errorf("read %q, want %q", got, want)
	}
}

func open(t testing.TB, path string) *Reader {
	t.Helper()
	r, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return r
}

func put(t testing.TB, path, text string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString(text); err != nil {
		t.Fatal(err)
	}
}

// A line whose end comes within a fifth of a second is whole.
func TestReaderWaitsForTheEndOfALine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "audit.jsonl")
		put(t, path, "one\ntw")
		r := open(t, path)
		done := make(chan []string)
		go func() { done <- texts(t, r) }()
		synctest.Wait() // the reader waits for the rest
		put(t, path, "o\n")
		equal(t, <-done, "one", "two")
	})
}

// One that has none is told once; what is done about it is read.
func TestReaderGoesOnBehindATornLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "audit.jsonl")
		put(t, path, "one\ntw")
		r := open(t, path)
		equal(t, texts(t, r), "one", "audit.jsonl:2: incomplete line")
		equal(t, texts(t, r))
		put(t, path, "o\nthr")
		equal(t, texts(t, r), "two", "audit.jsonl:3: incomplete line")
		if err := os.Truncate(path, 8); err != nil { // set aside, as by a proxy that starts
			t.Fatal(err)
		}
		put(t, path, "event\nfour\n")
		equal(t, texts(t, r), "event", "four")
	})
}

func TestReaderTornLineOfAFullSegment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "audit.jsonl")
		put(t, SegmentPath(path, 1), "one\ntw")
		put(t, path, "three\n")
		equal(t, texts(t, open(t, path)), "one", "audit-000000000001.jsonl:2: incomplete line", "three")
	})
}

func TestReaderLongLines(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	most := strings.Repeat("x", MaxLine)
	put(t, path, most+"\n"+most+"x\nthree\n"+strings.Repeat(most, 3)+"\nfive\n"+most+"tail")
	r := open(t, path)
	const tooLong = ": longer than 1048576 bytes"
	equal(t, texts(t, r), most, "audit.jsonl:2"+tooLong, "three", "audit.jsonl:4"+tooLong, "five", "audit.jsonl:6"+tooLong)
	put(t, path, "x\nseven\n")
	equal(t, texts(t, r), "seven")
}

func TestReaderFileReplaced(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	put(t, path, "one\n")
	r := open(t, path)
	equal(t, texts(t, r), "one")
	put(t, path, "two\n")
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	equal(t, texts(t, r), "two") // and waits
	equal(t, texts(t, r))
	put(t, path, "three\n")
	equal(t, texts(t, r), "three")
	if err := os.Truncate(path, 0); err != nil {
		t.Fatal(err)
	}
	equal(t, texts(t, r))
	put(t, path, "4\n")
	line, err := r.Next()
	if err != nil || string(line.Text) != "4" || line.Number != 1 {
		t.Errorf("%+v, %v", line, err)
	}
}

// What was to be opened may have got another name, and another file its own.
func TestReaderSegmentRotatedBeforeItIsOpened(t *testing.T) {
	lines := chain(1, 6)
	path := trailOf(t, lines, 3)
	r := open(t, path)
	f, _, err := r.nextSegment()
	if err != nil || f.Path != path {
		t.Fatal(f, err)
	}
	if err := os.Rename(path, SegmentPath(path, 1)); err != nil {
		t.Fatal(err)
	}
	put(t, path, string(bytes.Join(lines[3:], nil)))
	if taken, err := r.tryOpen(f); taken || err != nil {
		t.Errorf("the file behind it is taken, %v", err)
	}
	if f, _, _ = r.nextSegment(); f.FirstSeq != 1 {
		t.Fatal(f)
	}
	if err := os.Rename(f.Path, f.Path+gzipExt); err != nil {
		t.Fatal(err)
	}
	if taken, err := r.tryOpen(f); taken || err != nil {
		t.Errorf("a file that is gone is taken, %v", err)
	}
}

// A file that was not listed while it got another name is read in its turn.
func TestReaderOverlooksNoFile(t *testing.T) {
	lines := chain(1, 9)
	path := trailOf(t, lines, 3, 3, 3)
	r := open(t, path)
	for range 3 {
		if _, err := r.Next(); err != nil {
			t.Fatal(err)
		}
	}
	r.Close()
	src, err := openSource(Segment{Path: path}, r.in) // as if it had been next
	if err != nil {
		t.Fatal(err)
	}
	r.src, r.finished, r.started = src, 1, false
	got := texts(t, r)
	equal(t, got, strings.Split(strings.TrimSpace(string(bytes.Join(lines[3:], nil))), "\n")...)
}

// Files of others, half compressed ones and twins are passed over.
func TestReaderPicksItsFiles(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	put(t, SegmentPath(path, 1), "one\n")
	put(t, SegmentPath(path, 1)+".gz", "half a twin")
	put(t, SegmentPath(path, 2)+".gz", string(zip([]byte("two\n"))))
	put(t, SegmentPath(path, 3), "three\n")
	put(t, SegmentPath(path, 3)+".gz.part", "no")
	put(t, path+".lock", "")
	dir := filepath.Dir(path)
	for _, name := range []string{
		"audit-1.jsonl", "audit-000000000000.jsonl", "audit-0000000000004.jsonl", "audit-+00000000004.jsonl", "audit-000000000004.json",
		"audit-000000000004", "audit-b-000000000004.jsonl", "audit-000000000004.jsonl.torn-1", "xaudit-000000000004.jsonl", "audit-.jsonl", "audit-99999999999999999999.jsonl",
	} {
		put(t, filepath.Join(dir, name), "no\n")
	}
	equal(t, texts(t, open(t, path)), "one", "two", "three")
	put(t, SegmentPath(path, 1_000_000_000_000), "million\n")
	put(t, path, "last\n")
	equal(t, texts(t, open(t, path)), "one", "two", "three", "million", "last")
	equal(t, texts(t, open(t, SegmentPath(path, 2)+".gz")), "two")
	r, err := openSegment(Segment{Path: SegmentPath(path, 3)})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	equal(t, texts(t, r), "three")
}

func TestOpenNothing(t *testing.T) {
	dir := t.TempDir()
	for _, path := range []string{filepath.Join(dir, "audit.jsonl"), filepath.Join(dir, "none", "audit.jsonl")} {
		if _, err := Open(path); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), dir) {
			t.Errorf("%v", err)
		}
		if _, _, err := OpenLast(path, 1); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%v", err)
		}
	}
	if _, err := openSegment(Segment{Path: dir + "/x.gz", Gzip: true}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v", err)
	}
}

// However many bytes are requested, reading begins with a whole line and returns the last
// lines.
func TestOpenLast(t *testing.T) {
	lines := chain(1, 9)
	var whole []string
	for _, line := range lines {
		whole = append(whole, string(bytes.TrimSpace(line)))
	}
	step := int64(19)
	if testing.Short() {
		step = 97
	}
	for _, counts := range [][]int{{9}, {3, 3, 3}, {-3, 3, 3}, {-3, -6, 0}, {9, 0}} {
		path := trailOf(t, lines, counts...)
		alls := 0
		for length := int64(0); length < int64(len(bytes.Join(lines, nil)))+step; length += step {
			r, all, err := OpenLast(path, length)
			if err != nil {
				t.Fatal(err)
			}
			got := texts(t, r)
			equal(t, got, whole[len(whole)-len(got):]...)
			if len(got) < len(whole) && all {
				t.Fatalf("%v, %d: %d lines are all", counts, length, len(got))
			}
			if counts[0] == 9 && len(counts) == 1 {
				size := 0
				for _, line := range got {
					size += len(line) + 1
				}
				if int64(size) > length || int64(size+len(lines[0])+1) < length && !all {
					t.Fatalf("%d bytes asked for, %d got", length, size)
				}
			}
			if all {
				alls++
			}
			r.Close()
		}
		if alls == 0 {
			t.Errorf("%v: never all", counts)
		}
	}
}

func TestOpenLastFollows(t *testing.T) {
	lines := chain(1, 12)
	path := trailOf(t, lines, 3, 3, 3)
	r, all, err := OpenLast(path, int64(len(lines[8])))
	if err != nil || all {
		t.Fatal(all, err)
	}
	defer r.Close()
	line, err := r.Next()
	if err != nil || line.Number != 0 || string(line.Text)+"\n" != string(lines[8]) {
		t.Fatalf("%+v, %v", line, err)
	}
	if err := os.Rename(path, SegmentPath(path, 7)); err != nil {
		t.Fatal(err)
	}
	equal(t, texts(t, r))
	put(t, path, string(bytes.Join(lines[9:], nil)))
	line, err = r.Next()
	if err != nil || line.Number != 1 || string(line.Text)+"\n" != string(lines[9]) {
		t.Fatalf("%+v, %v", line, err)
	}
}

// Lines without a number do not lead back to the beginning.
func TestOpenLastFollowsOtherLines(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	put(t, SegmentPath(path, 1), "one\n")
	put(t, path, "two\n")
	r, _, err := OpenLast(path, 4)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	equal(t, texts(t, r), "two")
	if err := os.Rename(path, filepath.Join(filepath.Dir(path), "elsewhere")); err != nil {
		t.Fatal(err)
	}
	put(t, path, "three\n")
	equal(t, texts(t, r), "three")
}
