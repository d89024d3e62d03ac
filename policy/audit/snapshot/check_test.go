package snapshot

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"robotsproxy/policy/audit"
	"robotsproxy/policy/audit/trail"
	"robotsproxy/robots/fetch"
)

// TestCheck: a file or an index line that somebody has edited is a fault, and a removed file is
// counted.
func TestCheck(t *testing.T) {
	const anotherFetch = "changed: the fetch that ended at 2026-11-21T10:00:"
	for _, c := range []checkCase{
		{"unchanged", func(*testing.T, string) {}, CheckResult{Robots: FileCounts{Unchanged: 1}, Fetches: 4}, ""},
		{"an edited file", func(t *testing.T, dir string) {
			if err := os.WriteFile(gzipPath(dir, hashed(text)), []byte("x"), 0o600); err != nil {
				t.Fatal(err)
			}
		}, CheckResult{Fetches: 4}, hashed(text)[2:] + ".txt.gz: changed: the SHA-256 of its bytes is not its name, on which the record seq 2 is based"},
		{"a removed file", func(t *testing.T, dir string) { os.Remove(gzipPath(dir, hashed(text))) }, CheckResult{Robots: FileCounts{Missing: 1}, Fetches: 4}, ""},
		{"a removed index", func(t *testing.T, dir string) { os.RemoveAll(filepath.Join(dir, indexName)) }, CheckResult{Robots: FileCounts{Unchanged: 1}, Unindexed: 4}, ""},
		{"a removed directory", func(t *testing.T, dir string) { os.RemoveAll(dir) }, CheckResult{Robots: FileCounts{Missing: 1}, Unindexed: 4}, ""},
		{"an edited status", edit(`"status":200`, `"status":404`), CheckResult{Robots: FileCounts{Unchanged: 1}, Fetches: 3, Unindexed: 1}, anotherFetch + "01Z differs from the record seq 1"},
		{"an edited hash", edit(`"sha256":"`+hashed(text)[:4], `"sha256":"0000`), CheckResult{Robots: FileCounts{Unchanged: 1}, Fetches: 3, Unindexed: 1}, anotherFetch + "01Z"},
		{"an edited URL", edit(`http://a.test/`, `http://b.test/`), CheckResult{Robots: FileCounts{Unchanged: 1}, Fetches: 3, Unindexed: 1}, anotherFetch + "01Z"},
		{"an edited User-Agent", edit(`FooBot`, `BarBot`), CheckResult{Robots: FileCounts{Unchanged: 1}, Fetches: 3, Unindexed: 1}, anotherFetch + "01Z"},
		{"a redirect that is said to lead nowhere", edit(`"redirects":1`, `"lost":true`), CheckResult{Robots: FileCounts{Unchanged: 1}, Fetches: 3, Unindexed: 1}, anotherFetch + "03Z"},
		{"a failure that is said to be none", edit(`,"error":"refused"`, ``), CheckResult{Robots: FileCounts{Unchanged: 1}, Fetches: 4}, ""}, // no connection either way
		{"an edited time", edit(`10:00:01Z`, `10:00:09Z`), CheckResult{Robots: FileCounts{Unchanged: 1}, Fetches: 3, Unknown: 1, Unindexed: 1}, ""},
	} {
		for _, kind := range []string{trail.KindRobots, trail.KindTDMRep} {
			t.Run(c.name+" "+kind, func(t *testing.T) {
				s := open(t, Options{})
				found := answer("a.test", text, 1)
				found.UserAgent = "FooBot/1.0 (+http://foo.test/)"
				failed := &fetch.Result{URL: "http://b.test/robots.txt", Err: errors.New("refused"), Fetched: found.Fetched.Add(time.Second)}
				moved := &fetch.Result{URL: "http://c.test/é?x=1", Status: 404, Redirects: 1, Connected: true, Fetched: found.Fetched.Add(2 * time.Second)}
				rejected := &fetch.Result{URL: "http://d.test/x", Status: 200, Connected: true, Err: errors.New("no JSON"), Fetched: found.Fetched.Add(3 * time.Second)}
				keep(t, s, found, failed, moved, rejected)
				file := filepath.Join(t.TempDir(), "audit.jsonl")
				record(t, file, kind, fetch.Report{Hops: []string{found.URL}, Result: found})
				appendLine(t, file, `{"time":"2026-11-21T10:00:05.000000000Z","id":"a-1","`+kind+`_sha256":"`+found.SHA256+`"`)
				record(t, file, kind, fetch.Report{Hops: []string{failed.URL}, Result: failed}, fetch.Report{Hops: []string{"http://c.test/robots.txt", moved.URL}, Result: moved},
					fetch.Report{Hops: []string{rejected.URL}, Result: rejected, Rejected: []byte("{")})
				c.change(t, s.o.Dir)
				if kind == trail.KindTDMRep {
					c.want.Robots, c.want.TDMRep = c.want.TDMRep, c.want.Robots
				}
				c.compare(t, s.o.Dir, file)
			})
		}
	}
}

// edit returns a function that changes the first old text in the index of today.
func edit(old, new string) func(*testing.T, string) {
	return func(t *testing.T, dir string) {
		path := indexPath(dir, time.Now())
		text, err := os.ReadFile(path)
		if err == nil && !bytes.Contains(text, []byte(old)) {
			err = fmt.Errorf("no %s in %s", old, text)
		}
		if err == nil {
			err = os.WriteFile(path, bytes.Replace(text, []byte(old), []byte(new), 1), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// A checkCase is a change of a directory, and what a Check then finds.
type checkCase struct {
	name   string
	change func(t *testing.T, dir string)
	want   CheckResult // without Faults
	fault  string      // "": there is none
}

// compare checks the directory against the audit in a file.
func (c *checkCase) compare(t *testing.T, dir, file string) {
	t.Helper()
	check := NewCheck()
	r, err := trail.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if _, err := trail.Verify(r, trail.VerifyOptions{Each: check.Add}); err != nil {
		t.Fatal(err)
	}
	got, err := check.Compare(dir)
	faults := got.Faults
	got.Faults = nil
	if err != nil || fmt.Sprint(got) != fmt.Sprint(c.want) || len(faults) != min(1, len(c.fault)) || len(faults) == 1 && !strings.Contains(faults[0].Error(), c.fault) {
		t.Errorf("%+v, %v, %v; want %+v, %q", got, faults, err, c.want, c.fault)
	}
}

// record writes lines of a kind about fetches to the audit in a file.
func record(t *testing.T, file, kind string, reports ...fetch.Report) {
	t.Helper()
	l, err := audit.Open(audit.Options{File: file, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range reports {
		r.Began = r.Result.Fetched.Add(-time.Second)
		if err := l.WriteFetch(kind, r); err != nil {
			t.Error(err)
		}
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}

// appendLine appends a line that begins with the members in text to the audit in a file.
func appendLine(t *testing.T, file, text string) {
	t.Helper()
	was, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	last, _, err := trail.LastLink(bytes.NewReader(was), int64(len(was)))
	if err != nil {
		t.Fatal(err)
	}
	line, _ := trail.AppendLink(append([]byte(text), trail.VersionMember...), 0, last.Seq+1, last.Hash)
	if err := os.WriteFile(file, append(was, line...), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestCheckLongLine: a line of the audit about a fetch with long redirects has only the beginnings of
// its strings, which are compared.
func TestCheckLongLine(t *testing.T) {
	const fault = "differs from the record seq 1"
	whole, none := CheckResult{Fetches: 1}, CheckResult{Unindexed: 1}
	for _, c := range []checkCase{
		{"unchanged", func(*testing.T, string) {}, whole, ""},
		{"an edited URL", edit("a.test/x", "b.test/x"), none, fault},
		{"a shortened URL", edit(strings.Repeat("x", 500), "x"), none, fault},
		{"an edited User-Agent", edit("FooBot", "BarBot"), none, fault},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := open(t, Options{})
			moved := answer("a.test", text, 1)
			moved.URL, moved.UserAgent, moved.Redirects = "http://a.test/"+strings.Repeat("x", 900), "FooBot/1.0 "+strings.Repeat("y", 600), 5
			hops := []string{"http://a.test/robots.txt"}
			for range moved.Redirects {
				hops = append(hops, moved.URL)
			}
			keep(t, s, moved)
			file := filepath.Join(t.TempDir(), "audit.jsonl")
			record(t, file, trail.KindRobots, fetch.Report{Hops: hops, Result: moved})
			c.change(t, s.o.Dir)
			c.compare(t, s.o.Dir, file)
		})
	}
}
