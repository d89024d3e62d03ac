package archive_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"robotsproxy/policy/audit"
	"robotsproxy/proxy/archive"
	"robotsproxy/robots/testkit"
)

// A change of options that concern all records of a file begins another one, whose name and warcinfo say so.
func TestOptionsChange(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	o := archive.Options{Prefix: "a", MaxFile: 1 << 30, MaxBody: 1 << 30, Log: slog.New(slog.DiscardHandler)}
	a := open(t, dir, func(o *archive.Options) { o.Prefix = "a" })
	for _, change := range []func(){
		func() {}, func() { o.MaxBody = 1 << 20 }, func() { o.Compress = true }, func() { o.KeepSecrets = true }, func() { o.DropQuery = true }, func() { o.Prefix = "b" },
	} {
		change()
		a.SetOptions(o)
		for _, size := range []int{1, 512 << 10} { // one of them in a file
			if _, err := (exchange{request: get("http://a.example/"), body: strings.Repeat("x", size)}).run(a); err != nil {
				t.Fatal(err)
			}
		}
	}
	a.Close()
	files := map[string]int{}
	responses := 0
	for _, e := range entries(t, dir) {
		if e.Type() == "warcinfo" {
			prefix, _, _ := strings.Cut(e.file, "-")
			_, description, _ := strings.Cut(e.block, "HTTP/1.1; ")
			files[prefix+" "+filepath.Ext(e.file)+" "+strings.TrimSpace(description)]++
		} else if e.Type() == "response" {
			responses++
		}
	}
	want := map[string]int{"a .warc cookies": 3, "a .gz cookies": 2, "a .gz ": 2, "a .gz queries": 2, "b .gz queries": 2}
	got := map[string]int{}
	for name, n := range files {
		name = strings.NewReplacer("cookies and credentials are left out", "cookies", "the queries of URLs are left out", "queries").Replace(name)
		got[name] += n
	}
	if diff := cmp.Diff(want, got); diff != "" || responses != 12 {
		t.Errorf("%d responses in files of these kinds: %s", responses, diff)
	}
}

// The records of an exchange that began before a change of options are in a file whose warcinfo is true of them.
func TestOptionsChangeDuringAnExchange(t *testing.T) {
	t.Parallel()
	for _, size := range []int{1, 512 << 10} { // the latter is in a file
		dir := t.TempDir()
		o := archive.Options{Prefix: "a", MaxFile: 1 << 30, MaxBody: 1 << 30, KeepSecrets: true, Compress: true, Log: slog.New(slog.DiscardHandler)}
		a := open(t, dir, nil)
		a.SetOptions(o)
		r := get("http://a.example/?secret")
		r.Header.Set("Cookie", "secret")
		x := exchange{request: r, body: strings.Repeat("x", size), change: func(*http.Response) {
			o.KeepSecrets, o.DropQuery, o.Compress = false, true, false
			a.SetOptions(o)
		}}
		for range 2 {
			if _, err := x.run(a); err != nil {
				t.Fatal(err)
			}
		}
		a.Close()
		info := map[string]string{}
		for _, e := range entries(t, dir) {
			switch without := strings.Contains(info[e.file], "are left out"); {
			case e.Type() == "warcinfo":
				_, description, _ := strings.Cut(e.block, "HTTP/1.1")
				info[e.file] = description
			case e.Type() == "request" && without == strings.Contains(e.block, "secret"):
				t.Errorf("%d bytes: the file says %q, and has the request %q", size, info[e.file], e.block)
			}
		}
		if len(info) != 2 {
			t.Errorf("%d bytes: %d files, want 2", size, len(info))
		}
	}
}

// After queries are dropped, no revisit repeats the URL of a record that has one. The payload is archived once more, and
// later records refer to that.
func TestQueriesDroppedAfterARecord(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	o := archive.Options{Prefix: "a", MaxFile: 1 << 30, MaxBody: 1 << 30, Dedup: true, Log: slog.New(slog.DiscardHandler)}
	a := open(t, dir, nil)
	for _, o.DropQuery = range []bool{false, true, true} {
		a.SetOptions(o)
		if _, err := (exchange{request: get("http://a.example/?secret"), body: "same"}).run(a); err != nil {
			t.Fatal(err)
		}
	}
	a.Close()
	dropped := false
	var kinds []string
	for _, e := range entries(t, dir) {
		if e.Type() == "warcinfo" {
			dropped = strings.Contains(e.block, "the queries of URLs are left out")
		} else if dropped && strings.Contains(fmt.Sprint(e.Header, e.block), "secret") {
			t.Errorf("queries are left out, and a record has %v %q", e.Header, e.block)
		}
		if e.Type() == "response" || e.Type() == "revisit" {
			kinds = append(kinds, e.Type())
		}
	}
	if want := []string{"response", "response", "revisit"}; !slices.Equal(kinds, want) {
		t.Errorf("records %v, want %v", kinds, want)
	}
}

// What a crash has left cannot keep the archive from opening, and what belongs to others stays as it is.
func TestForeignFiles(t *testing.T) {
	t.Parallel()
	dir, outside := t.TempDir(), filepath.Join(t.TempDir(), "outside")
	name := filepath.Join(dir, "x-20261125141500123-00001.warc")
	for path, text := range map[string]string{
		outside: "outside", filepath.Join(dir, "notes.open"): "notes", name + ".open": "incomplete", name + ".torn": "inc", // it was being copied
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for path, make := range map[string]func(string) error{
		"x-20261125141500123-00002.warc.open": func(path string) error { return os.Symlink(outside, path) },
		"x-20261125141500123-00003.warc.open": func(path string) error { return os.Mkdir(path, 0o700) },
		"x-20261125141500123-00004.warc":      func(path string) error { return os.Mkdir(path, 0o700) },
		"x-20261125141500123-00005.warc":      func(path string) error { return os.Symlink(outside, path) },
		".body-0":                             func(path string) error { return os.Mkdir(path, 0o700) },
	} {
		if err := make(filepath.Join(dir, path)); err != nil {
			t.Fatal(err)
		}
	}
	all := names(t, dir, "*")
	open(t, dir, nil).Close()
	if diff := cmp.Diff(slices.DeleteFunc(all, func(path string) bool { return path == filepath.Base(name)+".open" }), names(t, dir, "*")); diff != "" {
		t.Error(diff)
	}
	for path, want := range map[string]string{outside: "outside", filepath.Join(dir, "notes.open"): "notes", name + ".torn": "incomplete"} {
		got, err := os.ReadFile(path)
		if err != nil || string(got) != want {
			t.Errorf("%s: %q, %v", path, got, err)
		}
	}
	space, err := archive.Measure(dir, archive.Options{})
	if err != nil || space.Bytes != 0 {
		t.Errorf("%d bytes count as those of the archive, %v", space.Bytes, err)
	}
}

// A body whose file somebody has cut off is not archived as if it were whole.
func TestBodyCutOff(t *testing.T) {
	t.Parallel()
	for _, compress := range []bool{false, true} {
		dir := t.TempDir()
		a := open(t, dir, func(o *archive.Options) { o.Compress = compress })
		r := get("http://a.example/")
		e := a.Begin(archive.Source{}).Respond(r, &http.Response{StatusCode: 200, Request: r, Body: io.NopCloser(nil)}, netip.Addr{}, 0)
		if err := e.Read(bytes.Repeat([]byte("x"), 1<<20), nil); err != nil {
			t.Fatal(err)
		}
		for _, name := range names(t, dir, ".body-*") {
			if err := os.Truncate(filepath.Join(dir, name), 100); err != nil {
				t.Fatal(err)
			}
		}
		e.Read(nil, io.EOF)
		if _, err := e.End(nil); !errors.Is(err, archive.ErrUnwritable) || a.Err() != nil {
			t.Errorf("End returns %v, Err %v", err, a.Err())
		}
		a.Close()
		if found := of(entries(t, dir), "response"); len(found) > 0 {
			t.Errorf("%d responses", len(found))
		}
	}
}

// A file that somebody removes while it is written is no original of later revisits.
func TestRemovedWhileWritten(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	a := open(t, dir, func(o *archive.Options) { o.Dedup = true })
	send := func() {
		t.Helper()
		if _, err := (exchange{request: get("http://a.example/"), body: "same"}).run(a); err != nil {
			t.Fatal(err)
		}
	}
	send()
	for _, name := range names(t, dir, "*.open") {
		if err := os.Remove(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	deadline := time.Now().Add(testkit.Patience)
	for len(names(t, dir, "*.open")) == 0 && time.Now().Before(deadline) {
		send()
	}
	send()
	a.Close()
	all := entries(t, dir)
	if len(of(all, "response")) != 1 {
		t.Errorf("%d responses, %d revisits", len(of(all, "response")), len(of(all, "revisit")))
	}
}

// Nothing is written to a file that somebody has removed after a failure to forget the file, however soon the failure has
// ended.
func TestRemovedAndNotForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir, broken := t.TempDir(), &index{err: errors.New("no index")}
		a := open(t, dir, func(o *archive.Options) { o.Index = broken })
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- a.Run(ctx) }()
		synctest.Wait()
		send := func() error {
			_, err := exchange{request: get("http://a.example/"), body: "body"}.run(a)
			return err
		}
		testkit.Must(t, send())
		testkit.Must(t, os.Remove(filepath.Join(dir, names(t, dir, "*.open")[0])))
		time.Sleep(980 * time.Millisecond) // Run looks each second whether a failure has ended
		if err := send(); !errors.Is(err, archive.ErrUnwritable) {
			t.Fatalf("got %v", err)
		}
		broken.err = nil
		time.Sleep(40 * time.Millisecond)
		testkit.Must(t, send())
		stop()
		testkit.Must(t, <-done)
		testkit.Must(t, a.Close())
		if n := len(of(entries(t, dir), "response")); n != 1 {
			t.Errorf("%d responses", n)
		}
	})
}

// Heads that a hostile party has made can be read, and add no line.
func TestHostileHeads(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	a := open(t, dir, func(o *archive.Options) { o.Dedup = true })
	long := func(n int) *http.Request {
		r := get("http://a.example/")
		r.URL.Path = "/" + strings.Repeat("\xff", n) // of which each takes three bytes in a URI
		return r
	}
	hostile := func(resp *http.Response) {
		resp.Status = "200 O\rK\n\xff"
		resp.Header = http.Header{"A": {"1\r\nb: 2"}, "No Name": {"3"}, "Set-Cookie": {"4"}}
	}
	for range 2 {
		if _, err := (exchange{request: long(20 << 10), body: "x", change: hostile}).run(a); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := (exchange{request: long(40 << 10), body: "x"}).run(a); !errors.Is(err, archive.ErrUnwritable) || a.Err() != nil {
		t.Errorf("a URL that is too long: %v, Err %v", err, a.Err())
	}
	a.Close()
	all := entries(t, dir)
	for _, e := range slices.Concat(of(all, "response"), of(all, "revisit")) {
		if head, _, _ := strings.Cut(e.block, "\r\n\r\n"); head != "HTTP/1.1 200 O K \xff\r\nA: 1  b: 2" {
			t.Errorf("%s %q", e.Type(), head)
		}
	}
	if n := len(of(all, "revisit")); n != 1 {
		t.Errorf("%d revisits", n)
	}
}

// archiveOne archives an exchange whose request has a body, which the origin may still be reading when it responds.
// i sets the sizes; every seventh exchange is discarded.
func archiveOne(a *archive.Archive, client string, i int) (at audit.Archived, err error) {
	size := 1 + (i%4)*100_000
	body, out := io.Pipe()
	go func() {
		out.Write(make([]byte, size))
		out.Close()
	}()
	r := get("http://a.example/")
	e := a.Begin(archive.Source{Client: client})
	r.Body, r.ContentLength = e.Upload(body), -1
	uploaded := make(chan struct{})
	go func() {
		defer close(uploaded)
		io.Copy(io.Discard, r.Body)
	}()
	defer func() { <-uploaded }()
	if i%3 == 0 {
		<-uploaded
	}
	if i%7 == 0 {
		e.Discard()
		return at, nil
	}
	e = e.Respond(r, &http.Response{StatusCode: 200, Status: "200 OK", ProtoMajor: 1, ProtoMinor: 1, Request: r, Body: io.NopCloser(nil)}, netip.Addr{}, 0)
	e.Read(bytes.Repeat([]byte{byte(i)}, size), io.EOF)
	return e.End([]byte("id: 1\r\n"))
}

// Exchanges end, are discarded and change their options at any time, while their bodies are still read and the archive
// runs and is closed. What End has reported is in the archive, whole.
func TestConcurrency(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	a := open(t, dir, func(o *archive.Options) { o.Dedup, o.MaxFile = true, 1<<20 })
	ctx, cancel := context.WithCancel(t.Context())
	var running, all sync.WaitGroup
	running.Go(func() { a.Run(ctx) })
	running.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			a.SetOptions(archive.Options{Prefix: []string{"a", "b"}[i%2], Compress: i%3 == 0, Dedup: i%4 > 0, MaxFile: 1 << 20, MaxBody: 1 << 30, Log: slog.New(slog.DiscardHandler)})
			a.Stats()
		}
	})
	var mu sync.Mutex
	places := map[string]string{} // file by ID
	for worker := range 8 {
		all.Go(func() {
			for i := range testkit.Rounds(40) {
				at, err := archiveOne(a, strconv.Itoa(worker%3), i)
				if err != nil {
					t.Error(err)
				}
				if at.ID != "" {
					mu.Lock()
					places[at.ID] = at.File
					mu.Unlock()
				}
			}
		})
	}
	all.Wait()
	cancel()
	running.Wait()
	if err := a.Close(); err != nil {
		t.Error(err)
	}
	if left := slices.Concat(names(t, dir, ".body-*"), names(t, dir, "*.open")); len(left) > 0 || a.Stats().Spooled != 0 {
		t.Errorf("left: %q, %d bytes", left, a.Stats().Spooled)
	}
	for _, e := range entries(t, dir) {
		if e.Type() != "response" && e.Type() != "revisit" {
			continue
		}
		if places[e.ID()] != e.file {
			t.Errorf("%s is in %s, End has said %q", e.ID(), e.file, places[e.ID()])
		}
		delete(places, e.ID())
		if _, body, _ := strings.Cut(e.block, "\r\n\r\n"); e.Type() == "response" && e.Get("WARC-Payload-Digest") != digest(body) {
			t.Errorf("%s has another payload than its digest says", e.ID())
		}
	}
	if len(places) > 0 {
		t.Errorf("%d records are missing", len(places))
	}
}

// The oldest files are removed when all take too much space. What they had is archived once more, and a foreign
// directory in the way stops nothing.
func TestRetention(t *testing.T) {
	t.Parallel()
	const size, total = 100_000, 1_000_000
	dir := t.TempDir()
	foreign := filepath.Join(dir, "x-20001125141500123-00003.warc")
	testkit.Must(t, os.MkdirAll(filepath.Join(foreign, "x"), 0o700))
	a := open(t, dir, func(o *archive.Options) { o.Dedup, o.MaxFile, o.MaxTotal = true, total, total })
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { a.Run(ctx) })
	send := func(i int) {
		t.Helper()
		if _, err := (exchange{request: get("http://a.example/"), body: strings.Repeat(string(rune('A'+i)), size)}).run(a); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 30 {
		send(i)
	}
	large := exchange{request: get("http://a.example/"), body: strings.Repeat("x", 3*size)}
	for range 8 { // to other files
		large.body += "x"
		if _, err := large.run(a); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 30 {
		send(30 + i)
	}
	testkit.Eventually(t, "the files take no more than they may", func() bool {
		space, err := archive.Measure(dir, archive.Options{})
		return err == nil && space.Bytes <= total+2*size // of the file that is written
	})
	before := a.Stats().Revisits
	send(59)
	if a.Stats().Revisits != before+1 {
		t.Error("a payload that is there was written again")
	}
	send(0)
	if a.Stats().Revisits != before+1 {
		t.Error("a revisit refers to a record that was removed")
	}
	cancel()
	running.Wait()
	a.Close()
	testkit.Must(t, os.RemoveAll(foreign))
	ids := map[string]bool{}
	all := entries(t, dir)
	for _, e := range of(all, "response") {
		ids[e.ID()] = true
	}
	if len(ids) < 5 || len(ids) > 13 {
		t.Errorf("%d responses are left", len(ids))
	}
	for _, e := range of(all, "revisit") {
		if !ids[e.Get("WARC-Refers-To")] {
			t.Error("a revisit refers to a record that was removed")
		}
	}
}
