package daemon

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"robotsproxy/cmd/internal/config"
	"robotsproxy/policy/audit"
	"robotsproxy/policy/audit/trail"
	"robotsproxy/policy/osfile"
	"robotsproxy/proxy"
	"robotsproxy/proxy/egress"
	"robotsproxy/robots/fetch"
	"robotsproxy/robots/testkit"
)

// TestAnchorWhenItIsDue: an anchor is written once a period, if there are new lines, and again some
// time after a failure. A restart does not shorten the period.
func TestAnchorWhenItIsDue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "audit.jsonl")
		d := &Daemon{log: slog.New(slog.DiscardHandler)}
		addLine := func() {
			var err error
			d.evidence, err = audit.Open(audit.Options{File: file, Log: d.log})
			testkit.Must(t, err)
			err = d.evidence.WriteFetch(trail.KindRobots, fetch.Report{Hops: []string{"http://a.test/robots.txt"}, Result: &fetch.Result{Fetched: time.Now()}})
			testkit.Must(t, errors.Join(err, d.evidence.Close()))
		}
		var fault error
		var newest time.Time
		var seq uint64
		newWriter := func() *anchorWriter {
			return &anchorWriter{
				placeIn: func(o config.Anchor) string { return o.File },
				newest:  func(string) time.Time { return newest },
				write:   func(_ context.Context, _ string, a trail.Anchor) error { seq = a.Seq; return fault },
				limit:   time.Minute,
			}
		}
		w := newWriter()
		written := func(place string) uint64 {
			seq = 0
			w.step(t.Context(), d, config.Anchor{File: place, Every: time.Hour}, time.Now())
			return seq
		}
		want := func(when string, got, want uint64) {
			t.Helper()
			if got != want {
				t.Errorf("%s: the anchor of seq %d was written, want %d (0: none)", when, got, want)
			}
		}
		addLine()
		want("no place", written(""), 0)
		want("at first", written("a"), 1)
		time.Sleep(2 * time.Hour)
		want("without a new line", written("a"), 0)
		addLine()
		want("with a new line", written("a"), 2)
		addLine()
		time.Sleep(59 * time.Minute)
		want("too soon", written("a"), 0)
		time.Sleep(time.Minute)
		fault = errors.New("away")
		want("after an hour", written("a"), 3)
		fault = nil
		want("right after a failure", written("a"), 0)
		if got := w.warning(); !strings.HasPrefix(got, "an audit anchor is overdue at a, the newest one there is of 2000-01-01T02:00:00Z: away") {
			t.Errorf("the warning is %q", got)
		}
		time.Sleep(anchorRetry)
		want("some time after a failure", written("a"), 3)
		if got := w.warning(); got != "" {
			t.Errorf("the warning is %q", got)
		}

		addLine()
		newest, w = time.Now(), newWriter()
		want("after a restart", written("a"), 0)
		time.Sleep(time.Hour)
		want("an hour after the newest anchor", written("a"), 4)
		want("at another place", written("b"), 4)

		newest, w = time.Now().AddDate(10, 0, 0), newWriter()
		want("after a restart, with a newest anchor of a time to come", written("a"), 4)
	})
}

// TestAnchorsThatHang: one attempt at a time hangs, a warning says so, and the next one follows when the disk responds.
func TestAnchorsThatHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &Daemon{log: slog.New(slog.DiscardHandler)}
		var err error
		d.evidence, err = audit.Open(audit.Options{File: filepath.Join(t.TempDir(), "audit.jsonl"), Log: d.log})
		testkit.Must(t, err)
		testkit.Must(t, d.evidence.WriteFetch(trail.KindRobots, fetch.Report{Hops: []string{"http://a.test/robots.txt"}, Result: &fetch.Result{Fetched: time.Now()}}))
		testkit.Must(t, d.evidence.Close())
		var attempts atomic.Int32
		responds := make(chan struct{})
		w := &anchorWriter{
			placeIn: func(config.Anchor) string { return "a" },
			newest:  func(string) time.Time { return time.Time{} },
			write:   func(context.Context, string, trail.Anchor) error { attempts.Add(1); <-responds; return nil },
			limit:   osfile.MaxSync,
		}
		step := func() { w.step(t.Context(), d, config.Anchor{Every: time.Hour}, time.Now()) }
		step()
		if got := w.warning(); !strings.Contains(got, osfile.ErrHangs.Error()) {
			t.Errorf("the warning is %q", got)
		}
		time.Sleep(2 * anchorRetry)
		step()
		if attempts.Load() != 1 {
			t.Errorf("%d attempts hang", attempts.Load())
		}
		close(responds)
		synctest.Wait()
		step()
		if got := w.warning(); attempts.Load() != 2 || got != "" {
			t.Errorf("%d attempts, the warning is %q", attempts.Load(), got)
		}
	})
}

// TestNewestAnchorInFile: only an anchor of a line of this audit counts, at the time of the line.
func TestNewestAnchorInFile(t *testing.T) {
	dir := t.TempDir()
	d := &Daemon{log: slog.New(slog.DiscardHandler), auditFile: filepath.Join(dir, "audit.jsonl")}
	var err error
	d.evidence, err = audit.Open(audit.Options{File: d.auditFile, Log: d.log})
	testkit.Must(t, err)
	fetched := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	testkit.Must(t, d.evidence.WriteFetch(trail.KindRobots, fetch.Report{Hops: []string{"http://a.test/robots.txt"}, Began: fetched, Result: &fetch.Result{Fetched: fetched}}))
	testkit.Must(t, d.evidence.Close())
	a, other := d.evidence.OnDisk().Anchor(), trail.Anchor{Seq: 1, Hash: strings.Repeat("0", 32)}
	for text, want := range map[string]time.Time{
		"": {}, "x\n": {}, other.String() + "\n": {}, a.String() + "\nx": {}, other.String() + "\n" + a.String() + "\n": fetched,
	} {
		file := filepath.Join(dir, "anchors")
		testkit.Must(t, os.WriteFile(file, []byte(text), 0o600))
		if got := d.newestInFile(file); !got.Equal(want) {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
	pipe := filepath.Join(dir, "pipe")
	testkit.Fifo(t, pipe)
	if err := errors.Join(checkAnchorFile(pipe), appendAnchor(pipe, a)); err == nil || strings.Count(err.Error(), "not a regular file") != 2 || !d.newestInFile(pipe).IsZero() {
		t.Errorf("a pipe: %v", err)
	}
}

// TestAnchorAfterATornLine: what a full disk has left of an anchor does not spoil the next one.
func TestAnchorAfterATornLine(t *testing.T) {
	a := trail.Anchor{Seq: 9, Hash: strings.Repeat("0", 32)}
	for before, want := range map[string]string{"": "", "8:00": "8:00\n", "8:00\n": "8:00\n"} {
		file := filepath.Join(t.TempDir(), "anchors")
		testkit.Must(t, os.WriteFile(file, []byte(before), 0o600))
		testkit.Must(t, appendAnchor(file, a))
		got, err := os.ReadFile(file)
		if testkit.Must(t, err); string(got) != want+a.String()+"\n" {
			t.Errorf("after %q the file has %q", before, got)
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
	d := new(Daemon)
	d.Active.Store(&generation{rules: proxy.Rules{Egress: clients[0]}})
	requests := 0
	authority := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if requests++; requests == 1 {
			d.Active.Store(&generation{rules: proxy.Rules{Egress: clients[1]}})
			panic(http.ErrAbortHandler)
		}
		http.Error(w, "", http.StatusTeapot)
	}))
	defer authority.Close()
	err := d.stamp(t.Context(), authority.URL, trail.Anchor{Seq: 1})
	if err == nil || !strings.Contains(err.Error(), "418") || requests != 2 {
		t.Errorf("%d requests, want 2; %v", requests, err)
	}
}
