package snapshot

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/maphash"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"robotsproxy/robots/fetch"
	"robotsproxy/robots/testkit"
)

func TestMain(m *testing.M) {
	testkit.AwayFromMidnight() // snapshots are kept once a day
	goleak.VerifyTestMain(m)
}

const text = "User-agent: *\nDisallow: /private\n"

func hashed(data string) string {
	sum := sha256.Sum256([]byte(data))
	return hex.EncodeToString(sum[:])
}

// answer is one with a text, fetched n seconds after some moment.
func answer(host, data string, n int) *fetch.Result {
	return &fetch.Result{
		URL: "http://" + host + "/robots.txt", Status: 200, Body: []byte(data), SHA256: hashed(data),
		Connected: true, Fetched: time.Date(2026, 11, 21, 10, 0, n, 0, time.UTC),
	}
}

func open(t testing.TB, o Options) *Store {
	t.Helper()
	if o.Dir == "" {
		o.Dir = filepath.Join(t.TempDir(), "snapshots")
	}
	o.Log = slog.New(slog.DiscardHandler)
	s, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func keep(t testing.TB, s *Store, answers ...*fetch.Result) {
	t.Helper()
	for _, a := range answers {
		if err := s.Save(a, "someone"); err != nil {
			t.Fatal(err)
		}
	}
}

func index(t testing.TB, dir, having string) (all []Fetch) {
	t.Helper()
	for f, err := range Index(dir, having) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, f)
	}
	return all
}

// tree returns the files of a directory with their sizes, and fails if other users may
// read one.
func tree(t testing.TB, dir string) map[string]int64 {
	t.Helper()
	files := map[string]int64{}
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		want := fs.FileMode(0o600)
		if e.IsDir() {
			want = 0o700
		} else {
			name, _ := filepath.Rel(dir, path)
			files[name] = info.Size()
		}
		if info.Mode().Perm() != want {
			t.Errorf("%s has mode %v, want %v", path, info.Mode().Perm(), want)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func TestSave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, Options{})
		first, again, empty := answer("a.test", text, 1), answer("b.test", text, 2), answer("c.test", "", 3)
		first.Headers = &fetch.Headers{ETag: `"x"`, ContentType: "text/plain"}
		first.Redirects = 2
		none := &fetch.Result{URL: "http://d.test/robots.txt", Status: 404, Fetched: first.Fetched}
		lost := &fetch.Result{URL: "http://e.test/x", Status: 302, TooManyRedirects: true, Redirects: 5, Fetched: first.Fetched}
		broken := &fetch.Result{URL: "http://f.test/robots.txt", Fetched: first.Fetched, Err: errors.New("reset \x1b[2J\u009b by\xff peer")}
		keep(t, s, first, again, empty, none, lost, broken, first, again, none, broken)

		files := tree(t, s.o.Dir)
		day := "index/" + dayOf(time.Now()) + ".jsonl"
		want := map[string]int64{
			hashed(text)[:2] + "/" + hashed(text)[2:] + ".txt.gz": 0,
			hashed("")[:2] + "/" + hashed("")[2:] + ".txt.gz":     0,
			day: 0,
		}
		for name := range want {
			want[name] = files[name]
		}
		if diff := cmp.Diff(want, files); diff != "" {
			t.Errorf("files (-want +got):\n%s", diff)
		}
		data, err := Read(s.o.Dir, hashed(text))
		if err != nil || string(data) != text {
			t.Errorf("bytes %q, %v", data, err)
		}
		line := func(a *fetch.Result, failure string) Fetch {
			f := Fetch{
				Saved: time.Now().UTC(), Fetched: a.Fetched, URL: a.URL, Status: a.Status, SHA256: a.SHA256,
				Bytes: len(a.Body), Redirects: a.Redirects, TooManyRedirects: a.TooManyRedirects, Error: failure,
			}
			if a.Headers != nil {
				f.Headers = *a.Headers
			}
			return f
		}
		lines := []Fetch{
			line(broken, "reset \x1b[2J\u009b by\ufffd peer"), line(lost, ""), line(none, ""),
			line(empty, ""), line(again, ""), line(first, ""),
		}
		if diff := cmp.Diff(lines, index(t, s.o.Dir, "")); diff != "" {
			t.Errorf("index, newest first (-want +got):\n%s", diff)
		}
		raw, err := os.ReadFile(filepath.Join(s.o.Dir, day))
		if err != nil || strings.ContainsFunc(string(raw), func(r rune) bool { return r != '\n' && (r < ' ' || r > '~') }) {
			t.Errorf("strangers' bytes stand in the index: %q, %v", raw, err)
		}
	})
}

// TestSaveEachDay: an answer in use is kept again each day, and so is not removed.
func TestSaveEachDay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, Options{MaxAge: 2 * day})
		a := answer("a.test", text, 1)
		for range 5 {
			keep(t, s, a, a)
			<-time.After(day)
			if err := s.Prune(time.Now(), time.Now()); err != nil {
				t.Fatal(err)
			}
		}
		if n := len(index(t, s.o.Dir, "")); n != 3 { // of the last days; the index is pruned too
			t.Errorf("%d lines", n)
		}
		if _, err := Read(s.o.Dir, hashed(text)); err != nil {
			t.Error(err)
		}
		<-time.After(3 * day)
		if err := s.Prune(time.Now(), time.Now()); err != nil {
			t.Fatal(err)
		}
		if left := tree(t, s.o.Dir); len(left) > 0 {
			t.Errorf("left behind: %v", left)
		}
	})
}

// TestSaveTogether: several with one answer write it once, and all find it written.
func TestSaveTogether(t *testing.T) {
	s := open(t, Options{})
	var wg sync.WaitGroup
	for n := range 20 {
		for range 8 {
			wg.Go(func() {
				a := answer("a.test", fmt.Sprint(n/2), n) // two fetches each have the same bytes
				if err := s.Save(a, "someone"); err != nil {
					t.Error(err)
				}
				if _, err := Read(s.o.Dir, a.SHA256); err != nil {
					t.Error(err)
				}
			})
		}
	}
	wg.Wait()
	if n := len(index(t, s.o.Dir, "")); n != 20 {
		t.Errorf("%d lines for 20 answers", n)
	}
	if n := len(tree(t, s.o.Dir)); n != 11 { // and the index
		t.Errorf("%d files for 10 texts", n)
	}
}

// TestSaveFails: what could not be kept is tried again.
func TestSaveFails(t *testing.T) {
	s := open(t, Options{})
	a := answer("a.test", text, 1)
	inTheWay := filepath.Join(s.o.Dir, a.SHA256[:2])
	if err := os.WriteFile(inTheWay, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := s.Save(a, "someone"); err == nil {
			t.Fatal("kept where nothing can be")
		}
	}
	if n := len(index(t, s.o.Dir, "")); n != 0 {
		t.Errorf("the index has %d lines of what is not there", n)
	}
	if err := os.Remove(inTheWay); err != nil {
		t.Fatal(err)
	}
	keep(t, s, a)
	if _, err := Read(s.o.Dir, a.SHA256); err != nil {
		t.Error(err)
	}
	wrong := answer("a.test", text, 2)
	wrong.Body = []byte("other")
	if err := s.Save(wrong, "someone"); !errors.Is(err, errHash) {
		t.Errorf("bytes with another's hash: %v", err)
	}
	var huge Options
	huge.Dir = filepath.Join(inTheWay, "no", "directory", "\x00")
	huge.Log = slog.New(slog.DiscardHandler)
	if _, err := Open(huge); err == nil {
		t.Error("opened where nothing can be")
	}
}

// TestDirectoryTakenAway: what was in it is kept again.
func TestDirectoryTakenAway(t *testing.T) {
	for _, lazy := range []bool{false, true} {
		s := open(t, Options{NoSync: lazy})
		a := answer("a.test", text, 1)
		keep(t, s, a)
		if err := os.RemoveAll(s.o.Dir); err != nil {
			t.Fatal(err)
		}
		if err := s.Flush(); err != nil {
			t.Error(err)
		}
		keep(t, s, a)
		if err := s.Flush(); err != nil {
			t.Error(err)
		}
		if _, err := Read(s.o.Dir, a.SHA256); err != nil {
			t.Error(err)
		}
		if n := len(index(t, s.o.Dir, "")); n != 1 {
			t.Errorf("%d lines", n)
		}
	}
}

// TestFlush: the disk is waited for in Flush, and by Keep itself
// where too much waits already.
func TestFlush(t *testing.T) {
	s := open(t, Options{})
	keep(t, s, answer("a.test", text, 1))
	want := map[string]struct{}{
		gzipPath(s.o.Dir, hashed(text)): {}, filepath.Join(s.o.Dir, hashed(text)[:2]): {}, s.o.Dir: {},
		filepath.Join(s.o.Dir, "index"): {}, filepath.Join(s.o.Dir, "index", dayOf(time.Now())+".jsonl"): {},
	}
	if diff := cmp.Diff(want, s.disk.pending); diff != "" {
		t.Errorf("pending (-want +got):\n%s", diff)
	}
	if err := s.Flush(); err != nil || len(s.disk.pending) > 0 {
		t.Errorf("%v, and pending is still %v", err, s.disk.pending)
	}
	s.disk.pending = map[string]struct{}{"no\x00path": {}}
	for range 2 {
		if err := s.Flush(); err == nil {
			t.Error("what cannot be waited for is forgotten")
		}
	}
	s.disk.pending = make(map[string]struct{})
	for n := range maxPending {
		s.disk.pending[fmt.Sprint("gone", n)] = struct{}{}
	}
	keep(t, s, answer("b.test", text+"#", 1))
	if n := len(s.disk.pending); n != maxPending {
		t.Errorf("%d are pending, no more than %d may be", n, maxPending)
	}
}

// TestBounded: what is remembered has a ceiling, and forgetting loses nothing.
func TestBounded(t *testing.T) {
	s := open(t, Options{NoSync: true})
	a := answer("a.test", text, 1)
	keep(t, s, a)
	for n := range maxSaved - 1 {
		s.saved[answerID{uint64(n), -1}] = struct{}{}
	}
	keep(t, s, answer("b.test", text, 1))
	if n := len(s.saved); n != 1 {
		t.Errorf("%d are remembered", n)
	}
	keep(t, s, a, a)
	if n := len(index(t, s.o.Dir, "a.test")); n != 2 {
		t.Errorf("%d lines", n)
	}
}

// TestMended: a damaged file, of this version or an older one, is written again.
func TestMended(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "snapshots")
	a := answer("a.test", text, 1)
	keep(t, open(t, Options{Dir: dir}), a)
	whole, err := os.ReadFile(gzipPath(dir, a.SHA256))
	if err != nil {
		t.Fatal(err)
	}
	changed := bytes.Clone(whole)
	changed[len(changed)/2] ^= 1
	plain := plainPath(dir, a.SHA256)
	for _, damage := range []struct {
		path string
		text []byte
	}{
		{gzipPath(dir, a.SHA256), nil},
		{gzipPath(dir, a.SHA256), []byte("no gzip")},
		{gzipPath(dir, a.SHA256), whole[:len(whole)-1]},
		{gzipPath(dir, a.SHA256), append(bytes.Clone(whole), "more"...)},
		{gzipPath(dir, a.SHA256), changed},
		{plain, nil},
		{plain, []byte("User-agent: *\nDisallow: /privatf\n")},
		{plain, []byte(text + "more")},
	} {
		if err := os.Remove(gzipPath(dir, a.SHA256)); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(damage.path, damage.text, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Read(dir, a.SHA256); !errors.Is(err, ErrDamaged) {
			t.Errorf("%q passes for %q: %v", damage.text, text, err)
		}
		s := open(t, Options{Dir: dir})
		keep(t, s, a)
		if data, err := Read(dir, a.SHA256); err != nil || string(data) != text {
			t.Errorf("after it was kept again: %q, %v", data, err)
		}
		if _, err := os.Stat(plain); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("what is damaged is still there: %v", err)
		}
		if got := s.Stats().Bytes; got != space(t, dir) {
			t.Errorf("%d bytes are counted, %d are there", got, space(t, dir))
		}
	}
}

// TestPlainFiles: files that older versions wrote are read, found, and not written again.
func TestPlainFiles(t *testing.T) {
	s := open(t, Options{})
	a := answer("a.test", text, 1)
	path := plainPath(s.o.Dir, a.SHA256)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	age(t, path, time.Now(), 9*day)
	keep(t, s, a)
	if sha, err := Find(s.o.Dir, a.SHA256[:MinPrefix]); sha != a.SHA256 || err != nil {
		t.Errorf("found %q, %v", sha, err)
	}
	if data, err := Read(s.o.Dir, a.SHA256); string(data) != text || err != nil {
		t.Errorf("%q, %v", data, err)
	}
	if files := tree(t, s.o.Dir); len(files) != 2 {
		t.Errorf("files: %v", files)
	}
	if info, err := os.Stat(path); err != nil || time.Since(info.ModTime()) > day {
		t.Errorf("its last use is forgotten: %v, %v", info, err)
	}
}

func TestSaveAgainCostsNothing(t *testing.T) {
	s := open(t, Options{})
	a := answer("a.test", text, 1)
	keep(t, s, a)
	if n := testing.AllocsPerRun(100, func() { keep(t, s, a) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

// BenchmarkSave is of an answer that was kept already.
func BenchmarkSave(b *testing.B) {
	s := open(b, Options{})
	a := answer("some.host.test", text, 1)
	for n := range 1000 {
		s.saved[answerID{uint64(n), -1}] = struct{}{}
	}
	keep(b, s, a)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if err := s.Save(a, "someone"); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkSaveNew is of an answer that was not, without waiting for the disk.
func BenchmarkSaveNew(b *testing.B) {
	s := open(b, Options{})
	for n := 0; b.Loop(); n++ {
		keep(b, s, answer("some.host.test", fmt.Sprint(text, "#", n), n))
	}
}

// TestDirectoryTakenAwayDuringASave: what a Save has written into a directory that was removed since is kept again.
func TestDirectoryTakenAwayDuringASave(t *testing.T) {
	s := open(t, Options{NoSync: true})
	a := answer("a.test", text, 1)
	id := answerID{maphash.String(s.seed, a.URL), a.Fetched.UnixNano()}
	at := resource{sha: a.SHA256}
	op, _ := s.begin(at, id)
	testkit.Must(t, s.write(a, "someone", time.Now()))
	testkit.Must(t, os.RemoveAll(s.o.Dir))
	testkit.Must(t, s.Flush())
	s.end(at, op, time.Now())
	keep(t, s, a)
	if _, err := Read(s.o.Dir, a.SHA256); err != nil {
		t.Error(err)
	}
}
