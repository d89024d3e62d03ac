package audit

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/klauspost/compress/gzip"

	"robotsproxy/policy/audit/trail"
	"robotsproxy/robots/testkit"
)

// of returns a record of a client.
func of(client string) *Record {
	r := allowed()
	r.Request.Client, r.Request.UserAgent, r.Request.PathQuery = client, "Agent-of-"+client, "/secret-of-"+client
	return r
}

// contentOf returns all segments of a trail, decompressed.
func contentOf(t *testing.T, file string) string {
	t.Helper()
	segments, err := trail.Segments(file)
	testkit.Must(t, err)
	var all bytes.Buffer
	for _, s := range segments {
		f, err := os.Open(s.Path)
		testkit.Must(t, err)
		if s.Gzip {
			zip, err := gzip.NewReader(f)
			testkit.Must(t, err)
			_, err = all.ReadFrom(zip)
			testkit.Must(t, err)
		} else {
			_, err = all.ReadFrom(f)
			testkit.Must(t, err)
		}
		f.Close()
	}
	return all.String()
}

// TestErase: the values of one client are gone from all segments, those of others are not, and the chain, the tree and the
// number of the next line are as before.
func TestErase(t *testing.T) {
	l := open(t, Options{MaxSize: 64 << 10})
	const lines = 300
	for i := range lines {
		l.Write(of([]string{"lab-a", "lab-b"}[i%2]))
		if i%50 == 0 {
			l.probe(true)
		}
	}
	close(t, l)
	file := l.opened.File
	testkit.Must(t, compress(trail.SegmentPath(file, 1), func(int) error { return nil }))
	root := rootOf(t, file, 1, lines)

	// The event would be in a new file.
	l = open(t, Options{File: file, MaxSize: 1})
	captures := 7
	erasure := Erasure{
		Matches: func(e *trail.Entry) bool { return e.Client == "lab-a" }, Reason: "asked on 2026-11-28",
		Prepare: func() (int, error) { return captures, nil },
	}
	dry, err := erasure.Find(t.Context(), file)
	if want := (Erased{Lines: lines / 2, Values: 5 * lines / 2, Captures: 7}); err != nil || dry != want || strings.Count(contentOf(t, file), "secret-of-lab-a") != lines/2 {
		t.Errorf("without a change: %+v, %v, want %+v", dry, err, want)
	}
	seen, elsewhere := 0, 0
	erasure.Each = func(before, after *trail.Entry) {
		if seen++; before.Client != "lab-a" || !strings.HasPrefix(after.Client, "sha256:") {
			t.Errorf("%+v, %+v", before, after)
		}
	}
	erasure.Elsewhere = func() error {
		if elsewhere = seen; strings.Count(contentOf(t, file), "secret-of-lab-a") != lines/2 {
			t.Error("the lines are erased already")
		}
		return nil
	}
	found, err := l.Erase(t.Context(), erasure)
	if err != nil || found != dry || seen != lines/2 || elsewhere != seen {
		t.Errorf("%+v, %v, %d lines", found, err, seen)
	}
	l.Write(of("lab-b"))
	close(t, l)

	content := contentOf(t, file)
	if strings.Contains(content, "of-lab-a") || strings.Count(content, "secret-of-lab-b") != lines/2+1 {
		t.Errorf("%d of lab-a, %d of lab-b", strings.Count(content, "of-lab-a"), strings.Count(content, "secret-of-lab-b"))
	}
	if rootOf(t, file, 1, lines) != root {
		t.Error("the tree of the lines is another one")
	}
	r, err := trail.Open(file)
	testkit.Must(t, err)
	defer r.Close()
	res, err := trail.Verify(r, trail.VerifyOptions{})
	if err != nil || res.Erased != found.Values || res.Lines != lines+2 {
		t.Errorf("%+v, %v", res, err)
	}
	if e := lineAt(t, file, lines+1); e.Event != trail.EventErased || e.Count != int64(found.Lines) || !strings.HasSuffix(e.Detail, ": asked on 2026-11-28") {
		t.Errorf("%+v", e)
	}
	if left, _ := filepath.Glob(filepath.Join(filepath.Dir(file), ".*")); left != nil {
		t.Errorf("left behind: %q", left)
	}
	l = open(t, Options{File: file})
	captures, elsewhere = 0, 0
	earlier := 0
	erasure.Earlier = func(*trail.Entry) { earlier++ }
	again, err := l.Erase(t.Context(), erasure)
	if err != nil || again != (Erased{Before: lines / 2}) || earlier != lines/2 || elsewhere != 0 || l.Tampered() != "" {
		t.Errorf("again: %+v, %v, %d earlier, %q", again, err, earlier, l.Tampered())
	}
	erasure.Prepare = func() (int, error) { return 0, io.ErrUnexpectedEOF }
	if _, err := l.Erase(t.Context(), erasure); err != io.ErrUnexpectedEOF || strings.Count(contentOf(t, file), `"event":"erased"`) != 1 {
		t.Errorf("not prepared: %v\n%s", err, contentOf(t, file))
	}
}

// TestEraseInterrupted: what an Erase has not done that was interrupted, the next one does.
func TestEraseInterrupted(t *testing.T) {
	l := open(t, Options{MaxSize: 64 << 10})
	const lines = 300
	for i := range lines {
		l.Write(of("lab-a"))
		if i%50 == 0 {
			l.probe(true)
		}
	}
	close(t, l)
	file := l.opened.File
	left := func() int { return strings.Count(contentOf(t, file), "secret-of-lab-a") }
	failed := errors.New("the archive is not there")
	read := 0
	ctx, interrupt := context.WithCancelCause(t.Context())
	erasure := Erasure{Matches: func(e *trail.Entry) bool {
		// The first time is the search.
		if read++; read == lines+lines*3/4 {
			interrupt(failed)
		}
		return e.Client == "lab-a"
	}}

	l = open(t, Options{File: file})
	erasure.Elsewhere = func() error { return failed }
	if _, err := l.Erase(t.Context(), erasure); !errors.Is(err, failed) || left() != lines {
		t.Errorf("what is elsewhere cannot be erased: %v, %d left", err, left())
	}
	read, erasure.Elsewhere = 0, nil
	if _, err := l.Erase(ctx, erasure); !errors.Is(err, failed) || left() == 0 || left() == lines {
		t.Errorf("interrupted: %v, %d left", err, left())
	}
	before := left()
	if found, err := l.Erase(t.Context(), erasure); err != nil || found.Lines != before || left() != 0 {
		t.Errorf("again: %+v, %v, %d left of %d", found, err, left(), before)
	}
	close(t, l)
	r, err := trail.Open(file)
	testkit.Must(t, err)
	defer r.Close()
	if res, err := trail.Verify(r, trail.VerifyOptions{}); err != nil || res.Erased != 5*lines {
		t.Errorf("%+v, %v", res, err)
	}
}

// TestEraseKeeps: lines of earlier versions and changed lines stay, and are counted; what is no line stays.
func TestEraseKeeps(t *testing.T) {
	l := open(t, Options{})
	l.Write(of("lab-a"))
	close(t, l)
	file := l.opened.File
	line := []byte(contentOf(t, file))
	earlier, _ := trail.AppendLink([]byte(`{"time":"2026-11-28T00:00:00Z","id":"a","client":"lab-a","v":2`), 0, 1, trail.Hash{})
	changed := bytes.Replace(line, []byte("secret"), []byte("altered"), 1)
	long := append(bytes.Repeat([]byte(" "), 3*trail.MaxLine), '\n')
	closed := trail.SegmentPath(file, 1)
	testkit.Must(t, os.WriteFile(closed, slices.Concat(earlier, changed, long, line), 0o640))
	// A crash has left them.
	for _, copied := range []string{trail.GzipPath(closed), closed + partialExt} {
		testkit.Must(t, os.WriteFile(copied, nil, 0o600))
	}
	erasure := Erasure{Matches: func(e *trail.Entry) bool { return e.Client == "lab-a" }}
	l = open(t, Options{File: file})
	if found, err := l.Erase(t.Context(), erasure); err != nil || found != (Erased{Lines: 2, Values: 10, Kept: 2}) {
		t.Errorf("%+v, %v", found, err)
	}
	text, err := os.ReadFile(closed)
	testkit.Must(t, err)
	if before := slices.Concat(earlier, changed, long); !bytes.HasPrefix(text, before) || bytes.Contains(text[len(before):], []byte("lab-a")) {
		t.Errorf("%s", text)
	}
	if left, _ := filepath.Glob(closed + ".*"); left != nil {
		t.Errorf("left: %q", left)
	}
}
