package archive_test

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"robotsproxy/proxy/archive"
	"robotsproxy/proxy/archive/warc"
)

// digest writes the SHA-256 of a text as records have it.
func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "sha256:" + hex.EncodeToString(sum[:])
}

// ISO 28500 6: an exchange is a request, a response and metadata, joined by WARC-Concurrent-To.
func TestExchange(t *testing.T) {
	t.Parallel()
	for _, compress := range []bool{false, true} {
		dir := t.TempDir()
		a := open(t, dir, func(o *archive.Options) { o.Compress = compress })
		r := get("http://user:password@a.example/x?q=1")
		r.Header.Set("Cookie", "secret")
		r.Header.Set("Accept", "text/html")
		at, err := exchange{
			request: r, header: http.Header{"Content-Type": {"text/html"}, "Set-Cookie": {"secret"}}, body: "hello",
			change: func(resp *http.Response) { resp.TransferEncoding = []string{"chunked"} },
		}.run(a)
		if err != nil {
			t.Fatal(err)
		}
		if err := a.Close(); err != nil {
			t.Fatal(err)
		}
		all := entries(t, dir)
		var kinds []string
		for _, e := range all {
			kinds = append(kinds, e.Type())
		}
		if diff := cmp.Diff([]string{"warcinfo", "request", "response", "metadata"}, kinds); diff != "" {
			t.Fatal(diff)
		}
		request, response, metadata := all[1], all[2], all[3]
		if want := "GET /x?q=1 HTTP/1.1\r\nHost: a.example\r\nAccept: text/html\r\n\r\n"; request.block != want {
			t.Errorf("request %q, want %q", request.block, want)
		}
		const head = "HTTP/1.1 200 OK\r\nX-Orig-Transfer-Encoding: chunked\r\nContent-Type: text/html\r\n\r\n"
		if response.block != head+"hello" {
			t.Errorf("response %q", response.block)
		}
		for name, want := range map[string]string{
			"WARC-Target-URI": "http://a.example/x?q=1", "WARC-Block-Digest": digest(head + "hello"), "WARC-Payload-Digest": digest("hello"),
			"WARC-Concurrent-To": request.ID(), "WARC-Protocol": "http/1.1", "WARC-Truncated": "",
		} {
			if got := response.Get(name); got != want {
				t.Errorf("compress %t: %s is %q, want %q", compress, name, got, want)
			}
		}
		if response.ID() != at.ID || response.file != at.File {
			t.Errorf("End says %+v, the record is %s in %s", at, response.ID(), response.file)
		}
		if metadata.block != "id: 1\r\n" || metadata.Get("WARC-Concurrent-To") != response.ID() || request.Get("WARC-Concurrent-To") != response.ID() {
			t.Errorf("metadata %q of %s", metadata.block, metadata.Get("WARC-Concurrent-To"))
		}
		info, err := os.Stat(filepath.Join(dir, at.File))
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("the file has mode %v, %v", info.Mode(), err)
		}
	}
}

// What Options leave out is in no record.
func TestLeftOut(t *testing.T) {
	t.Parallel()
	for _, keep := range []bool{false, true} {
		dir := t.TempDir()
		a := open(t, dir, func(o *archive.Options) { o.KeepSecrets, o.DropQuery = keep, !keep })
		r := get("http://a.example/x?secret")
		for _, name := range []string{"Cookie", "Authorization", "Proxy-Authorization"} {
			r.Header.Set(name, "secret")
		}
		r.Header.Set("Referer", "http://a.example/?secret")
		header := http.Header{"Set-Cookie": {"secret", "secret"}, "Location": {"http://a.example/?secret"}}
		if _, err := (exchange{request: r, header: header}).run(a); err != nil {
			t.Fatal(err)
		}
		a.Close()
		count := 0
		for _, e := range entries(t, dir) {
			count += strings.Count(e.block, "secret") + strings.Count(e.TargetURI(), "secret")
		}
		if want := map[bool]int{false: 0, true: 11}[keep]; count != want {
			t.Errorf("keep %t: the secret is there %d times, want %d", keep, count, want)
		}
	}
}

// ISO 28500 5.13: a record says why the end of its body is missing.
func TestTruncated(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		x         exchange
		want, end string
	}{
		"whole":      {exchange{body: "12345678"}, "12345678", ""},
		"too long":   {exchange{body: "123456789"}, "12345678", "length"},
		"broken off": {exchange{body: "1234", brokeOff: true}, "1234", "disconnect"},
		"no body":    {exchange{status: 204, change: func(r *http.Response) { r.Body = http.NoBody }}, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			a := open(t, dir, func(o *archive.Options) { o.MaxBody = 8 })
			test.x.request = get("http://a.example/")
			if _, err := test.x.run(a); err != nil {
				t.Fatal(err)
			}
			a.Close()
			response := of(entries(t, dir), "response")[0]
			_, body, _ := strings.Cut(response.block, "\r\n\r\n")
			if body != test.want || response.Get("WARC-Truncated") != test.end {
				t.Errorf("body %q, WARC-Truncated %q", body, response.Get("WARC-Truncated"))
			}
		})
	}
}

// ISO 28500 6.7.2: an identical payload is not written again.
func TestRevisit(t *testing.T) {
	t.Parallel()
	dir, stored := t.TempDir(), new(index)
	again := func() *archive.Archive {
		return open(t, dir, func(o *archive.Options) { o.Index, o.Dedup = stored, true })
	}
	a := again()
	for _, url := range []string{"http://a.example/1", "http://a.example/2"} {
		if _, err := (exchange{request: get(url), body: "same"}).run(a); err != nil {
			t.Fatal(err)
		}
	}
	a.Close()
	a = again() // the index survives
	if _, err := (exchange{request: get("http://b.example/"), body: "same"}).run(a); err != nil {
		t.Fatal(err)
	}
	if _, err := (exchange{request: get("http://b.example/empty")}).run(a); err != nil {
		t.Fatal(err)
	}
	if s := a.Stats(); s.Revisits != 1 {
		t.Errorf("%d revisits since the second start, want 1", s.Revisits)
	}
	a.Close()
	all := entries(t, dir)
	responses, revisits := of(all, "response"), of(all, "revisit")
	if len(responses) != 2 || len(revisits) != 2 {
		t.Fatalf("%d responses, %d revisits", len(responses), len(revisits))
	}
	for _, r := range revisits {
		if r.Get("WARC-Profile") != warc.IdenticalPayload || r.Get("WARC-Refers-To") != responses[0].ID() ||
			r.Get("WARC-Refers-To-Target-URI") != "http://a.example/1" || r.Get("WARC-Refers-To-Date") != responses[0].Get("WARC-Date") ||
			r.Get("WARC-Payload-Digest") != digest("same") || !strings.HasSuffix(r.block, "\r\n\r\n") {
			t.Errorf("revisit %v %q", r.Header, r.block)
		}
	}
}

// A body larger than maxInMemory goes through a file, which is removed.
func TestLargeBodies(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	a := open(t, dir, nil)
	large := strings.Repeat("0123456789abcdef", 64<<10)
	post, _ := http.NewRequest("POST", "http://a.example/", io.NopCloser(strings.NewReader(large)))
	post.ContentLength = -1
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			x := exchange{request: get("http://a.example/"), body: large, source: archive.Source{Client: "a"}}
			if i == 0 {
				x.request = post
			}
			if _, err := x.run(a); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if left := names(t, dir, ".body-*"); len(left) > 0 || a.Stats().Spooled != 0 {
		t.Errorf("files of bodies left: %q, %d bytes", left, a.Stats().Spooled)
	}
	a.Close()
	found := entries(t, dir)
	for _, r := range of(found, "response") {
		if _, body, _ := strings.Cut(r.block, "\r\n\r\n"); body != large {
			t.Errorf("a body has %d bytes", len(body))
		}
	}
	if n := len(of(found, "response")); n != 8 {
		t.Errorf("%d responses", n)
	}
	uploads := 0
	for _, r := range of(found, "request") {
		if strings.HasSuffix(r.block, large) && r.Get("WARC-Truncated") == "" && r.Get("WARC-Payload-Digest") == digest(large) {
			uploads++
		}
	}
	if uploads != 1 {
		t.Errorf("%d uploads are whole, want 1", uploads)
	}
}

// A client holds at most half of the space of bodies that are not complete. Others have the rest, and only its
// own exchanges fail.
func TestSpoolShare(t *testing.T) {
	t.Parallel()
	const size = 16 << 20
	a := open(t, t.TempDir(), func(o *archive.Options) { o.MaxBody = size }) // 256 MiB in all
	begin := func(client string) *archive.Exchange {
		e := a.Begin(archive.Source{Client: client})
		t.Cleanup(e.Discard)
		r := get("http://a.example/")
		return e.Respond(r, &http.Response{StatusCode: 200, Request: r, Body: io.NopCloser(strings.NewReader(""))}, netip.Addr{}, 0)
	}
	kept, body := 0, make([]byte, size)
	for begin("greedy").Read(body, nil) == nil {
		kept++
	}
	if kept != 8 {
		t.Errorf("a client keeps %d bodies, want 8", kept)
	}
	if err := a.Refusal(); err != nil {
		t.Errorf("requests are refused: %v", err)
	}
	if err := begin("other").Read(body, nil); err != nil {
		t.Errorf("another client: %v", err)
	}
	if _, err := (exchange{request: get("http://a.example/"), body: "small", source: archive.Source{Client: "greedy"}}).run(a); err != nil {
		t.Errorf("a small body: %v", err)
	}
}

// A file is complete when it is full, and then has its final name.
func TestRotation(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	a := open(t, dir, func(o *archive.Options) { o.MaxFile = 1 })
	for range 3 {
		if _, err := (exchange{request: get("http://a.example/")}).run(a); err != nil {
			t.Fatal(err)
		}
	}
	if complete, written := names(t, dir, "*.warc"), names(t, dir, "*.open"); len(complete) != 2 || len(written) != 1 {
		t.Errorf("complete %q, open %q", complete, written)
	}
	a.Close()
	if complete := names(t, dir, "*.warc"); len(complete) != 3 {
		t.Errorf("after Close: %q", complete)
	}
}

// After a crash, the incomplete record is moved to another file, and the rest is whole.
func TestCrash(t *testing.T) {
	t.Parallel()
	for _, compress := range []bool{false, true} {
		dir := t.TempDir()
		a := open(t, dir, func(o *archive.Options) { o.Compress = compress })
		for range 2 {
			if _, err := (exchange{request: get("http://a.example/"), body: "body"}).run(a); err != nil {
				t.Fatal(err)
			}
		}
		path := filepath.Join(dir, names(t, dir, "*.open")[0])
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var ends []int64 // of the records
		for _, e := range entries(t, dir)[1:] {
			ends = append(ends, e.at)
		}
		ends = append(ends, int64(len(data)))
		for cut := len(data); cut > 0; cut -= 97 {
			again := t.TempDir()
			if err := os.WriteFile(filepath.Join(again, "x-20261125141500123-00001.warc.open"), data[:cut], 0o600); err != nil {
				t.Fatal(err)
			}
			open(t, again, nil).Close()
			whole := 0
			for whole < len(ends) && ends[whole] <= int64(cut) {
				whole++
			}
			if found := entries(t, again); len(found) != whole {
				t.Fatalf("cut at %d: %d records, want %d", cut, len(found), whole)
			}
			kept := 0
			for _, name := range names(t, again, "*") {
				info, err := os.Stat(filepath.Join(again, name))
				if err != nil || strings.HasSuffix(name, ".open") {
					t.Fatalf("%s: %v", name, err)
				}
				kept += int(info.Size())
			}
			if kept != cut {
				t.Fatalf("cut at %d: %d bytes are left", cut, kept)
			}
		}
		a.Close()
	}
}

// An exchange that cannot be written fails, and so do later ones, until a probe succeeds.
func TestUnwritable(t *testing.T) {
	t.Parallel()
	for _, goOn := range []bool{false, true} {
		dir := filepath.Join(t.TempDir(), "archive")
		a := open(t, dir, func(o *archive.Options) { o.Continue = goOn })
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
		at, err := exchange{request: get("http://a.example/"), body: "body"}.run(a)
		if goOn && err != nil || !goOn && !errors.Is(err, archive.ErrUnwritable) || at.ID != "" {
			t.Errorf("continue %t: %+v, %v", goOn, at, err)
		}
		if err := a.Err(); !errors.Is(err, archive.ErrUnwritable) || !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("Err is %v", err)
		}
		if err := a.Refusal(); (err == nil) != goOn {
			t.Errorf("continue %t: Refusal is %v", goOn, err)
		}
		if s := a.Stats(); s.Left != 1 {
			t.Errorf("%d left out, want 1", s.Left)
		}
		a.Close()
	}
}

// Only2xx leaves out the rest.
func TestOnly2xx(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	a := open(t, dir, func(o *archive.Options) { o.Only2xx = true })
	for _, status := range []int{200, 206, 304, 404, 500} {
		if _, err := (exchange{request: get("http://a.example/"), status: status}).run(a); err != nil {
			t.Fatal(err)
		}
	}
	a.Close()
	if n := len(of(entries(t, dir), "response")); n != 2 {
		t.Errorf("%d responses, want 2", n)
	}
}

// A file from an FTP server is a resource (ISO 28500 6.6).
func TestFTP(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	a := open(t, dir, nil)
	if _, err := (exchange{request: get("ftp://a.example/x"), body: "file"}).run(a); err != nil {
		t.Fatal(err)
	}
	a.Close()
	all := entries(t, dir)
	resource := of(all, "resource")
	if len(of(all, "request")) != 0 || len(resource) != 1 || resource[0].block != "file" || resource[0].Get("WARC-Block-Digest") != digest("file") {
		t.Errorf("records %v", all)
	}
}

// A control character in what a stranger sends cannot begin another field.
func TestFieldsCannotBeForged(t *testing.T) {
	t.Parallel()
	got := string(warc.AppendField(nil, "id", "1\r\nrule: none\x00"))
	if want := "id: 1  rule: none \r\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// The space is measured as that of the audit: by the growth of the last day, and the limit that is reached first.
func TestMeasure(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(ago time.Duration, size int64) {
		t.Helper()
		name := filepath.Join(dir, "x-"+strings.Replace(time.Now().Add(-ago).UTC().Format("20060102150405.000"), ".", "", 1)+"-00001.warc")
		if err := errors.Join(os.WriteFile(name, nil, 0o600), os.Truncate(name, size)); err != nil {
			t.Fatal(err)
		}
	}
	write(72*time.Hour, 1<<20)
	write(12*time.Hour, 6<<20)
	s, err := archive.Measure(dir, archive.Options{MaxFile: 1, MaxTotal: 20 << 20, MaxAge: 8760 * time.Hour})
	if err != nil || s.Bytes != 7<<20 || s.PerDay < 2<<20 || s.PerDay > 13<<20 || s.Limit != "archive.max_total_size" {
		t.Errorf("%+v, %v", s, err)
	}
	if got := s.Warning(); !strings.Contains(got, "the space for the archive lasts for") || !strings.Contains(got, "archive.max_total_size deletes records that are younger than archive.max_age") {
		t.Errorf("warning: %q", got)
	}
	if s, err := archive.Measure(dir, archive.Options{MaxFile: 1 << 60}); err != nil || !strings.Contains(s.Warning(), "free on the disk of the archive") {
		t.Errorf("a disk that is nearly full: %+v, %v", s, err)
	}
}
