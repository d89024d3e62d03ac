package trail

import (
	"compress/gzip"
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

// The wait for the end of the last line takes no time in synctest.
func TestFind(t *testing.T) { synctest.Test(t, testFind) }

func testFind(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "audit.jsonl")
	var seq uint64
	var hash Hash
	lines := func(members ...string) (text string) {
		for _, m := range members {
			var line []byte
			seq++
			line, hash = AppendLink([]byte("{"+m), 0, seq, hash)
			text += string(line)
		}
		return text
	}
	old := lines(`"id":"a-1","url":"old"`, `"id":"a-2","url":"old"`)
	middle := lines(`"id":"a-3","url":"middle"`, `"event":"torn","id":"a-4"`, `"kind":"robots","id":"a-5"`)
	last := lines(`"id":"b-1","user_agent":"\"id\":\"a-9\""`, `"id":"a-2","url":"again"`) + "{\"id\":\"torn\"}\n" +
		strings.Repeat("x", MaxLine+5) + "\n" + lines(`"id":"b-2","url":"behind"`) + `{"id":"b-3"`
	file, err := os.Create(SegmentPath(path, 1) + ".gz")
	if err != nil {
		t.Fatal(err)
	}
	z := gzip.NewWriter(file)
	fmt.Fprint(z, old)
	if err := errors.Join(z.Close(), file.Close()); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{SegmentPath(path, 3): middle, path: last, SegmentPath(path, 9) + ".gz": "not compressed"} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, tc := range []struct {
		id, url string
		file    string
		number  int
	}{
		{"a-1", "old", SegmentPath(path, 1) + ".gz", 1},
		{"a-3", "middle", SegmentPath(path, 3), 1},
		{"a-2", "again", path, 2},
		{"b-2", "behind", path, 0}, // which line it is behind one that is too long does not matter
	} {
		line, entry, err := Find(path, tc.id)
		if err != nil || entry.URL != tc.url || line.File != tc.file || tc.number > 0 && line.Number != tc.number {
			t.Errorf("%s: %s:%d %+v, %v", tc.id, line.File, line.Number, entry, err)
		}
		if _, err := ReadLink(line.Text); err != nil {
			t.Errorf("%s: %v", tc.id, err)
		}
	}
	for _, id := range []string{"a-4", "a-5", "a-9", "b-3", "a-", "", `a-1","url`} {
		if line, entry, err := Find(path, id); !errors.Is(err, ErrNoRecord) || !errors.Is(err, gzip.ErrHeader) && !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("%q: %v %+v, %v", id, line, entry, err)
		}
	}
	if _, _, err := Find(filepath.Join(dir, "none.jsonl"), "a-1"); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}

// TestFindDuringRotation checks that a record is found although its segment is rotated after the segments were listed.
func TestFindDuringRotation(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	write := func(name, id string, seq uint64) {
		line, _ := AppendLink([]byte(`{"id":"`+id+`","url":"x"`), 0, seq, Hash{})
		if err := os.WriteFile(name, line, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(SegmentPath(path, 1), "a-1", 1)
	write(path, "a-2", 2)
	rotated := false
	line, _, err := find(path, "a-2", func(path string) ([]Segment, error) {
		all, err := Segments(path)
		if !rotated {
			rotated = true
			if err := os.Rename(path, SegmentPath(path, 2)); err != nil {
				t.Fatal(err)
			}
			write(path, "a-3", 3)
		}
		return all, err
	})
	if err != nil || line.File != SegmentPath(path, 2) {
		t.Errorf("%s: %v", line.File, err)
	}
}
