package audit

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"robotsproxy/policy/audit/trail"
	"robotsproxy/robots"
	"robotsproxy/robots/fetch"
)

// TestLineOfAFetch: the line of a fetch contains the request and the result, and no
// decision.
func TestLineOfAFetch(t *testing.T) {
	began := time.Date(2026, 11, 23, 9, 0, 0, 0, time.UTC)
	r := fetch.Report{
		Began:   began,
		Request: fetch.Request{Origin: robots.Origin{Scheme: "http", Host: "a.test", Port: 80}, Token: "FooBot"},
	}
	for _, c := range []struct {
		name   string
		hops   []string
		answer fetch.Result
		want   string
	}{
		{"a file", []string{"http://a.test/robots.txt"}, fetch.Result{UserAgent: "FooBot", Status: 200, Connected: true, Body: []byte("x"), SHA256: "ab"},
			`"url":"http://a.test/robots.txt","host":"a.test","user_agent":"FooBot","agent":"FooBot","outcome":"rules","sha256":"ab","fetched":"2026-11-23T09:00:00.005000000Z","status":200,"bytes":1,"duration_ms":5`},
		{"hops", []string{"http://a.test/robots.txt", "http://a.test/1", "http://b.test/2"}, fetch.Result{Status: 404, Connected: true},
			`"url":"http://a.test/robots.txt","host":"a.test","hops":["http://a.test/1","http://b.test/2"],"agent":"FooBot","outcome":"no-file","fetched":"2026-11-23T09:00:00.005000000Z","status":404,"bytes":0,"duration_ms":5`},
		{"a hop that is disallowed", []string{"http://a.test/robots.txt"}, fetch.Result{Err: errors.New("redirected to http://b.test/\x1b[2J"), RedirectDisallowed: true, Connected: true, Status: 302},
			`"url":"http://a.test/robots.txt","host":"a.test","agent":"FooBot","outcome":"unreachable","fetched":"2026-11-23T09:00:00.005000000Z","status":302,"bytes":0,"duration_ms":5,"error":"redirected to http://b.test/\u001b[2J"`},
		{"no answer", []string{"http://a.test/robots.txt"}, fetch.Result{Err: errors.New("refused")},
			`"url":"http://a.test/robots.txt","host":"a.test","agent":"FooBot","outcome":"no-connection","fetched":"2026-11-23T09:00:00.005000000Z","bytes":0,"duration_ms":5,"error":"refused"`},
	} {
		r.Hops, r.Result = c.hops, &c.answer
		c.answer.Fetched = began.Add(5 * time.Millisecond)
		want := `{"time":"2026-11-23T09:00:00.000000000Z","kind":"robots",` + c.want
		if got := string(appendLine(nil, &fetchLine{trail.KindRobots, r}, &Options{DropQuery: true})); got != want {
			t.Errorf("%s:\n got %s\nwant %s", c.name, got, want)
		}
	}
}

// TestLineOfARejectedFile: the line has the hash and the size of the bytes, which are kept nowhere.
func TestLineOfARejectedFile(t *testing.T) {
	began := time.Date(2026, 11, 23, 9, 0, 0, 0, time.UTC)
	r := fetch.Report{
		Began: began, Request: fetch.Request{Origin: robots.Origin{Scheme: "http", Host: "a.test", Port: 80}},
		Hops: []string{"http://a.test/.well-known/tdmrep.json"}, Rejected: []byte("{"),
		Result: &fetch.Result{Status: 200, Connected: true, Err: errors.New("no JSON"), Fetched: began},
	}
	const want = `{"time":"2026-11-23T09:00:00.000000000Z","kind":"tdmrep","url":"http://a.test/.well-known/tdmrep.json","host":"a.test","outcome":"unreachable",` +
		`"sha256":"021fb596db81e6d02bf3d2586ee3981fe519f275c0ac9ca76bbcf2ebb4097d96","fetched":"2026-11-23T09:00:00.000000000Z","status":200,"bytes":1,"duration_ms":0,"error":"no JSON"`
	if got := string(appendLine(nil, &fetchLine{trail.KindTDMRep, r}, &Options{})); got != want {
		t.Errorf("\n got %s\nwant %s", got, want)
	}
}

// TestFetchesAreWritten: whatever is left out of the requests.
func TestFetchesAreWritten(t *testing.T) {
	file := t.TempDir() + "/audit.jsonl"
	l, err := Open(Options{File: file, BlockedOnly: true, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	for kind, url := range map[string]string{trail.KindRobots: "http://a.test/robots.txt", trail.KindTDMRep: "http://a.test/.well-known/tdmrep.json"} {
		if err := l.WriteFetch(kind, fetch.Report{Hops: []string{url}, Result: &fetch.Result{Status: 404, Connected: true}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(text) {
		wantEnd := map[string]string{trail.KindRobots: "/robots.txt", trail.KindTDMRep: "/tdmrep.json"}
		if e, err := trail.Read(line); err != nil || !e.IsFetch() || !strings.HasSuffix(e.URL, wantEnd[e.Kind]) || e.IsRequest() {
			t.Errorf("%+v, %v", e, err)
		}
	}
	if n := bytes.Count(text, []byte("\n")); n != 2 {
		t.Errorf("%d lines", n)
	}
}
