package notary

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"robotsproxy/policy/audit"
	"robotsproxy/policy/audit/checkpoint"
	"robotsproxy/policy/audit/trail"
	"robotsproxy/policy/osfile"
	"robotsproxy/proxy/egress"
	"robotsproxy/robots/fetch"
	"robotsproxy/robots/testkit"
)

// A fixture is a Notary of an audit that is open.
type fixture struct {
	*Notary
	dir      string
	settings Settings
	log      strings.Builder
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	f := &fixture{dir: t.TempDir()}
	f.settings = Settings{
		Keys: KeyFile{Path: filepath.Join(f.dir, KeyName)}, Origin: "robotsproxy/a", Every: time.Hour, Lines: 10, AnchorEvery: 24 * time.Hour,
	}
	log := slog.New(slog.NewTextHandler(&f.log, nil))
	evidence, err := audit.Open(audit.Options{File: filepath.Join(f.dir, "audit.jsonl"), Log: log})
	testkit.Must(t, err)
	t.Cleanup(func() { evidence.Close() })
	f.Notary = New(Options{
		Dir: f.dir, Settings: func() Settings { return f.settings }, Audit: evidence, Log: log,
		Client: func() http.RoundTripper { return http.DefaultTransport },
	})
	return f
}

// addLines adds n lines to the audit.
func (f *fixture) addLines(t *testing.T, n int) {
	t.Helper()
	for range n {
		fetched := fetch.Report{Hops: []string{"http://a.test/robots.txt"}, Result: &fetch.Result{Fetched: time.Now()}}
		testkit.Must(t, f.o.Audit.WriteFetch(trail.KindRobots, fetched))
	}
}

// step lets a place look whether a checkpoint is due. It returns the last line of the one that was written; 0: none was.
func (f *fixture) step(t *testing.T, name string) uint64 {
	t.Helper()
	for _, p := range f.places {
		if p.name == name {
			before := p.lastSeq
			p.step(t.Context(), time.Now())
			if p.lastSeq != before {
				return p.lastSeq
			}
			return 0
		}
	}
	t.Fatalf("there is no place %s", name)
	return 0
}

// newest returns the newest checkpoint in a file.
func (f *fixture) newest(t *testing.T, file string) checkpoint.Checkpoint {
	t.Helper()
	keys, err := f.settings.Keys.read()
	testkit.Must(t, err)
	return newestIn(file, f.settings.origin(keys), keys)
}

// TestCheckpointIsDue: in the state directory at the start, after a time or a number of lines, and if there are new lines; in
// the file of the anchors after a time alone. A restart does not shorten that.
func TestCheckpointIsDue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.settings.AnchorFile = filepath.Join(f.dir, "anchors")
		want := func(when, place string, seq uint64) {
			t.Helper()
			if got := f.step(t, place); got != seq {
				t.Errorf("%s: %s has a new checkpoint of seq %d, want %d (0: none)", when, place, got, seq)
			}
		}
		want("an empty audit", "state", 0)
		f.addLines(t, 1)
		want("at the start", "state", 1)
		want("at the start", "anchor", 1)
		want("without a new line", "state", 0)
		f.addLines(t, 9)
		want("too few new lines", "state", 0)
		f.addLines(t, 1)
		want("enough new lines", "state", 11)
		want("enough new lines", "anchor", 0)
		time.Sleep(2 * time.Hour)
		want("a later time without a new line", "state", 0)
		f.addLines(t, 1)
		want("a later time with a new line", "state", 12)
		want("a later time with a new line", "anchor", 0)
		time.Sleep(22 * time.Hour)
		want("after a day", "anchor", 12)

		f.addLines(t, 1)
		again := &fixture{Notary: New(f.o), dir: f.dir, settings: f.settings}
		f.Notary = again.Notary
		want("after a restart", "state", 13)
		want("after a restart", "anchor", 0)
		f.settings.Lines = 0
		f.addLines(t, 100)
		want("no number of lines", "state", 0)
		f.settings.AnchorFile = filepath.Join(f.dir, "others")
		want("at another place", "anchor", 113)
		f.settings.AnchorFile = ""
		want("at no place", "anchor", 0)
		if got := f.newest(t, filepath.Join(f.dir, "others")); got.Seq != 113 || got.Size != 113 || got.Origin != "robotsproxy/a" {
			t.Errorf("%+v", got)
		}
		if n := len(f.Places()); n != 1 {
			t.Errorf("%d places", n)
		}
	})
}

// TestFinish writes the last lines to all files.
func TestFinish(t *testing.T) {
	f := newFixture(t)
	f.settings.File, f.settings.AnchorFile = filepath.Join(f.dir, "file"), filepath.Join(f.dir, "anchors")
	f.settings.Part = "20261128T120000Z-1"
	f.addLines(t, 3)
	testkit.Must(t, f.o.Audit.Close())
	for range 2 {
		f.Finish()
	}
	for _, name := range []string{CheckpointsName, "file", "anchors"} {
		text, err := os.ReadFile(filepath.Join(f.dir, name))
		testkit.Must(t, err)
		if got := f.newest(t, filepath.Join(f.dir, name)); got.Seq != 3 || got.Origin != "robotsproxy/a/20261128T120000Z-1" || len(checkpoint.Notes(text)) != 1 {
			t.Errorf("%s: %+v in %s", name, got, text)
		}
	}
}

// TestOverdue: a failure shows until a checkpoint is written, and the log repeats it once an hour.
func TestOverdue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.settings.AnchorFile = filepath.Join(f.dir, "none", "anchors")
		f.addLines(t, 1)
		f.step(t, "anchor")
		if got := f.Warnings(); len(got) != 1 || !strings.Contains(got[0], "overdue at "+f.settings.AnchorFile+", none was written there yet: ") {
			t.Errorf("%q", got)
		}
		for range 3 * 3600 {
			time.Sleep(time.Second)
			f.step(t, "anchor")
		}
		if n := strings.Count(f.log.String(), "audit checkpoint overdue"); n != 4 {
			t.Errorf("%d lines in the log, want one at once and one each hour: %s", n, f.log.String())
		}
		testkit.Must(t, os.Mkdir(filepath.Dir(f.settings.AnchorFile), 0o700))
		time.Sleep(maxRetry)
		if f.step(t, "anchor") != 1 || f.Warnings() != nil || !strings.Contains(f.log.String(), "audit checkpoint written") {
			t.Errorf("%q, %s", f.Warnings(), f.log.String())
		}
	})
}

// TestOverdueWithoutAKey: a key that cannot be read makes each place overdue.
func TestOverdueWithoutAKey(t *testing.T) {
	f := newFixture(t)
	f.settings.Keys = KeyFile{Path: filepath.Join(f.dir, "none"), Configured: true}
	f.addLines(t, 1)
	f.step(t, "state")
	if got := f.Warnings(); len(got) != 1 || !strings.Contains(got[0], "robotsproxy audit key") {
		t.Errorf("%q", got)
	}
	if f.Newest() != nil {
		t.Errorf("%s", f.Newest())
	}
}

// TestPlaceThatHangs: one attempt at a time hangs, a warning says so, and the next one follows when the disk responds.
func TestPlaceThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.addLines(t, 1)
		var attempts atomic.Int32
		responds := make(chan struct{})
		state := f.places[0]
		state.write = func(context.Context, string, signed) error { attempts.Add(1); <-responds; return nil }
		f.step(t, "state")
		if got := f.Warnings(); len(got) != 1 || !strings.Contains(got[0], osfile.ErrHangs.Error()) {
			t.Errorf("%q", got)
		}
		time.Sleep(2 * maxRetry)
		f.step(t, "state")
		if attempts.Load() != 1 {
			t.Errorf("%d attempts hang", attempts.Load())
		}
		close(responds)
		synctest.Wait()
		f.step(t, "state")
		if got := f.Warnings(); attempts.Load() != 2 || got != nil {
			t.Errorf("%d attempts, the warning is %q", attempts.Load(), got)
		}
	})
}

// TestSharedFile: several proxies append to one file, which may have other lines, and may end within one.
func TestSharedFile(t *testing.T) {
	f := newFixture(t)
	file := filepath.Join(f.dir, "shared")
	f.addLines(t, 1)
	var notes []string
	for i, before := range []string{"", "9002:dda626ecd229e6826767fe575887c698\n", "robotsproxy/x\n12", ""} {
		f.settings.Origin = "robotsproxy/" + string(rune('a'+i))
		c, err := f.sign()
		testkit.Must(t, err)
		text, _ := os.ReadFile(file)
		testkit.Must(t, os.WriteFile(file, append(text, before...), 0o600))
		testkit.Must(t, appendNote(file, c.text))
		notes = append(notes, string(c.text))
	}
	text, err := os.ReadFile(file)
	testkit.Must(t, err)
	var found []string
	for _, n := range checkpoint.Notes(text) {
		found = append(found, string(n))
	}
	if strings.Join(found, "|") != strings.Join(notes, "|") {
		t.Errorf("%q in %q", found, text)
	}
	f.settings.Origin = "robotsproxy/b"
	if got := f.newest(t, file); got.Origin != "robotsproxy/b" {
		t.Errorf("%+v", got)
	}
	other := newFixture(t)
	other.settings.Origin = "robotsproxy/b"
	_, err = other.settings.CurrentOrigin()
	testkit.Must(t, err)
	if got := other.newest(t, file); got.Origin != "" {
		t.Errorf("signed by another key: %+v", got)
	}
}

func TestLatest(t *testing.T) {
	f := newFixture(t)
	f.settings.File, f.settings.AnchorFile = filepath.Join(f.dir, "file"), filepath.Join(f.dir, "anchors")
	latest := func(e Exchange, begun time.Time) (seqs []uint64) {
		t.Helper()
		all, err := Latest(f.settings, f.dir, e, begun)
		testkit.Must(t, err)
		for _, c := range all {
			seqs = append(seqs, c.Seq)
		}
		return seqs
	}
	if _, err := Latest(f.settings, f.dir, nil, time.Time{}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("without a key: %v", err)
	}
	var shared exchangeOfTest
	for range 4 {
		f.addLines(t, 1)
		c, err := f.sign()
		testkit.Must(t, err)
		switch c.Seq {
		case 1:
			testkit.Must(t, appendNote(f.settings.AnchorFile, c.text))
		case 2:
			testkit.Must(t, appendNote(f.settings.File, c.text))
		default:
			shared = append(shared, c.text)
		}
	}
	testkit.Must(t, os.Remove(filepath.Join(f.dir, CheckpointsName)))
	other := newFixture(t)
	other.addLines(t, 5)
	c, err := other.sign()
	testkit.Must(t, err)
	shared = append(shared, c.text, []byte("no note"), shared[0])
	if got := latest(shared, time.Now().Add(-2*time.Second)); !slices.Equal(got, []uint64{2, 1, 4}) {
		t.Errorf("%v", got)
	}
	if got := latest(nil, time.Time{}); !slices.Equal(got, []uint64{2, 1}) {
		t.Errorf("without others: %v", got)
	}
	if got := latest(shared, time.Now()); got != nil {
		t.Errorf("made before the audit began: %v", got)
	}
	all, err := Latest(f.settings, f.dir, shared[:3:3].failing(2), time.Time{})
	if !errors.Is(err, errAway) || len(all) != 2 {
		t.Errorf("the store fails after two notes: %v, %v", all, err)
	}
}

var errAway = errors.New("away")

// An exchangeOfTest has notes, of which it returns one at a time; nil: reading it fails.
type exchangeOfTest [][]byte

// failing returns the first n notes, after which e fails.
func (e exchangeOfTest) failing(n int) exchangeOfTest { return append(e[:n:n], nil) }

func (e exchangeOfTest) ShareCheckpoint(context.Context, []byte) error { return nil }

func (e exchangeOfTest) Checkpoints(_ context.Context, last string) (notes [][]byte, next string, err error) {
	// last has as many characters as notes were read.
	n := len(last)
	switch {
	case n == len(e):
		return nil, last, nil
	case e[n] == nil:
		return nil, "", errAway
	}
	return e[n : n+1], last + "x", nil
}

func TestCheckWritable(t *testing.T) {
	dir := t.TempDir()
	pipe := filepath.Join(dir, "pipe")
	testkit.Fifo(t, pipe)
	there := filepath.Join(dir, "there")
	testkit.Must(t, os.WriteFile(there, nil, 0o600))
	for file, want := range map[string]string{
		"": "", there: "", filepath.Join(dir, "new"): "", pipe: "not a regular file", dir: "not a regular file",
		filepath.Join(dir, "none", "new"): "no file can be made in",
	} {
		for _, s := range []Settings{{File: file}, {AnchorFile: file}} {
			if err := CheckWritable(s); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
				t.Errorf("%q: %v, want %q", file, err, want)
			}
		}
	}
	if CheckRegular(Settings{File: pipe}) == nil || CheckRegular(Settings{AnchorFile: filepath.Join(dir, "none", "new")}) != nil {
		t.Error("CheckRegular looks at more than the kind of the file")
	}
	if names, err := os.ReadDir(dir); err != nil || len(names) != 2 {
		t.Errorf("files were left: %v, %v", names, err)
	}
	if err := appendNote(pipe, []byte("x")); err == nil {
		t.Error("a pipe was written")
	}
}

// TestKeys: a missing key is made if the configuration names none, several keys sign together, and the first one can be retired.
func TestKeys(t *testing.T) {
	f := newFixture(t)
	f.addLines(t, 1)
	c, err := f.sign()
	testkit.Must(t, err)
	info, err := os.Stat(f.settings.Keys.Path)
	if err != nil || osfile.Perm(info) != 0o600 && osfile.Perm(info) != 0 {
		t.Errorf("%v, %v", info, err)
	}
	if err := f.settings.Keys.Create("x"); !errors.Is(err, os.ErrExist) {
		t.Errorf("a second file: %v", err)
	}
	if err := f.settings.Keys.Retire(); err == nil {
		t.Error("the only key was retired")
	}
	testkit.Must(t, f.settings.Keys.Add(""))
	f.addLines(t, 1)
	second, err := f.sign()
	testkit.Must(t, err)
	if strings.Count(string(c.text), "\n— robotsproxy/a ") != 1 || strings.Count(string(second.text), "\n— robotsproxy/a ") != 2 {
		t.Errorf("%s\n%s", c.text, second.text)
	}
	both, err := f.settings.Keys.Public()
	testkit.Must(t, err)
	testkit.Must(t, f.settings.Keys.Retire())
	last, err := f.settings.Keys.Public()
	if err != nil || strings.Count(both, "\n") != 2 || !strings.HasSuffix(both, last) || strings.Count(last, "\n") != 1 {
		t.Errorf("%q, then %q, %v", both, last, err)
	}
	for _, k := range []KeyFile{f.settings.Keys, {Path: filepath.Join(f.dir, "random")}} {
		s := Settings{Keys: k}
		if origin, err := s.CurrentOrigin(); err != nil || !strings.HasPrefix(origin, "robotsproxy/") {
			t.Errorf("%q, %v", origin, err)
		}
	}
}

// TestStampDuringAReload: if a reload closes the egress client before the time-stamp authority has
// responded, the request is sent again with the new one.
func TestStampDuringAReload(t *testing.T) {
	var clients [2]*egress.Client
	for i := range clients {
		var err error
		clients[i], err = egress.New(egress.Options{AllowPrivate: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}})
		testkit.Must(t, err)
		defer clients[i].Close()
	}
	f := newFixture(t)
	var active atomic.Pointer[egress.Client]
	active.Store(clients[0])
	f.o.Client = func() http.RoundTripper { return active.Load() }
	var requests atomic.Int32
	authority := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if requests.Add(1) == 1 {
			active.Store(clients[1])
			panic(http.ErrAbortHandler)
		}
		http.Error(w, "", http.StatusTeapot)
	}))
	defer authority.Close()
	err := f.stamp(t.Context(), authority.URL, signed{})
	if err == nil || !strings.Contains(err.Error(), "418") || requests.Load() != 2 {
		t.Errorf("%d requests, want 2; %v", requests.Load(), err)
	}
}
