package daemon

import (
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"robotsproxy/policy/audit"
	"robotsproxy/policy/audit/trail"
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
		anchors := filepath.Join(t.TempDir(), "anchors")
		var w anchorWriter
		var fault error
		written := func(place string) (seq uint64) {
			d.writeAnchor(&w, d.evidence.OnDisk(), place, time.Hour, func() string { return anchors }, func(a trail.Anchor) error {
				seq = a.Seq
				return fault
			})
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
		time.Sleep(anchorRetry)
		want("some time after a failure", written("a"), 3)

		addLine()
		testkit.Must(t, os.WriteFile(anchors, nil, 0o600))
		testkit.Must(t, os.Chtimes(anchors, time.Now(), time.Now()))
		w = anchorWriter{}
		want("after a restart", written("a"), 0)
		time.Sleep(time.Hour)
		want("an hour after the newest anchor", written("a"), 4)
		want("at another place", written("b"), 4)

		testkit.Must(t, os.Chtimes(anchors, time.Now(), time.Now().AddDate(10, 0, 0)))
		w = anchorWriter{}
		want("after a restart, with a newest anchor of a time to come", written("a"), 4)
	})
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
