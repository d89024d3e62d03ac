package archive_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"robotsproxy/proxy/archive"
	"robotsproxy/proxy/archive/warc"
)

// index is an Index in memory.
type index struct {
	mu  sync.Mutex
	all map[archive.Digest]archive.Original
	err error
}

func (i *index) Find(d archive.Digest) (archive.Original, bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	of, ok := i.all[d]
	return of, ok
}

func (i *index) Add(all map[archive.Digest]archive.Original) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.all == nil {
		i.all = map[archive.Digest]archive.Original{}
	}
	for d, of := range all {
		i.all[d] = of
	}
	return i.err
}

func (i *index) Remove(file string) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	for d, of := range i.all {
		if of.File == file {
			delete(i.all, d)
		}
	}
	return i.err
}

// open opens an archive with defaults that a test changes.
func open(t testing.TB, dir string, change func(*archive.Options)) *archive.Archive {
	t.Helper()
	o := archive.Options{Dir: dir, Index: new(index), Software: "test", Prefix: "test", MaxFile: 1 << 30, MaxBody: 1 << 30, Log: slog.New(slog.DiscardHandler)}
	if change != nil {
		change(&o)
	}
	a, err := archive.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// exchange is one request with its response, as a test says them.
type exchange struct {
	request  *http.Request
	status   int
	header   http.Header
	body     string
	brokeOff bool // the body ends with an error
	change   func(*http.Response)
	source   archive.Source
}

func get(url string) *http.Request {
	r, err := http.NewRequest("GET", url, nil)
	if err != nil {
		panic(err)
	}
	return r
}

// run sends x through the archive as package proxy does.
func (x exchange) run(a *archive.Archive) (archived struct{ File, ID string }, err error) {
	if x.status == 0 {
		x.status = 200
	}
	e := a.Begin(x.source)
	r := x.request
	if r.Body != nil {
		r.Body = e.Upload(r.Body)
		io.Copy(io.Discard, r.Body)
	}
	resp := &http.Response{StatusCode: x.status, Status: fmt.Sprintf("%d %s", x.status, http.StatusText(x.status)), ProtoMajor: 1, ProtoMinor: 1, Header: x.header, Request: r, Body: io.NopCloser(strings.NewReader(x.body))}
	if x.change != nil {
		x.change(resp)
	}
	if e = e.Respond(r, resp, netip.Addr{}, 0); e == nil {
		return archived, nil
	}
	buf := make([]byte, 32<<10)
	for err == nil {
		var n int
		n, err = resp.Body.Read(buf)
		if err == io.EOF && x.brokeOff {
			err = io.ErrUnexpectedEOF
		}
		err = e.Read(buf[:n], err)
	}
	at, ended := e.End([]byte("id: 1\r\n"))
	archived.File, archived.ID = at.File, at.ID
	if errors.Is(err, archive.ErrUnwritable) {
		return archived, err
	}
	return archived, ended
}

// entry is a record with its block.
type entry struct {
	warc.Header
	file  string
	at    int64
	block string
}

// entries reads all records of a directory.
func entries(t testing.TB, dir string) (all []entry) {
	t.Helper()
	for _, name := range names(t, dir, "*.warc*") {
		if strings.HasSuffix(name, ".torn") {
			continue
		}
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		r, err := warc.NewReader(bytes.NewReader(data))
		for err == nil {
			var rec *warc.Record
			if rec, err = r.Next(); err != nil {
				break
			}
			block, rerr := io.ReadAll(rec.Block)
			if rerr != nil {
				t.Fatalf("%s: %v", name, rerr)
			}
			all = append(all, entry{rec.Header, name, rec.Offset, string(block)})
		}
		if err != io.EOF {
			t.Fatalf("%s: %v", name, err)
		}
	}
	return all
}

// of returns the records of a type.
func of(all []entry, kind string) (found []entry) {
	for _, e := range all {
		if e.Type() == kind {
			found = append(found, e)
		}
	}
	return found
}

// names returns the names of the files that match, in order.
func names(t testing.TB, dir, pattern string) (all []string) {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, pattern))
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range paths {
		all = append(all, filepath.Base(p))
	}
	slices.Sort(all)
	return all
}
