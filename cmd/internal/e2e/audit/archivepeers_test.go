package audit

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"robotsproxy/cmd/internal/e2e"
	"robotsproxy/proxy/archive/warc"
	"robotsproxy/robots/testkit"
)

// noise returns n bytes that are the same in each run.
func noise(n int) []byte {
	b := make([]byte, n)
	rand.NewChaCha8([32]byte{}).Read(b)
	return b
}

// pages are what the origin of these tests has, by path and query.
var pages = map[string][]byte{
	"/":             []byte("<p>hello</p>\r\n\r\n"),
	"/noise":        noise(300_000),
	"/chunked":      noise(100_001),
	"/empty":        {},
	"/gone":         []byte("gone"),
	"/dir/?b=2&a":   []byte("query"),
	"/p%C3%A4ge%20": []byte("escaped"),
}

func servePage(w http.ResponseWriter, r *http.Request) {
	page := pages[r.RequestURI]
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	if r.URL.Path == "/gone" {
		w.WriteHeader(http.StatusGone)
	}
	for part := range slices.Chunk(page, 40_000) {
		w.Write(part)
		if r.URL.Path == "/chunked" {
			w.(http.Flusher).Flush()
		}
	}
}

// newOrigin starts an origin with the pages, and returns its URL for clients that use no proxy.
func newOrigin(t *testing.T) string {
	t.Helper()
	o := e2e.NewOrigin(t, "pages", "")
	for uri := range pages {
		path, err := url.Parse(uri)
		testkit.Must(t, err)
		o.Handle(path.Path, servePage)
	}
	return fmt.Sprintf("http://%s:%d", o.Ip, o.Ports["http"])
}

// wget fetches all pages from an origin into NAME.warc or NAME.warc.gz, and returns the pages by
// their URLs.
func wget(t *testing.T, dir, name, origin string, options ...string) (want map[string][]byte) {
	t.Helper()
	want = map[string][]byte{}
	argv := append(e2e.NeedCommand("wget")(t), "-q", "--no-config", "--content-on-error", "--tries=1", "-O", "/dev/null", "--warc-cdx", "--warc-file="+filepath.Join(dir, name))
	argv = append(argv, options...)
	for path, page := range pages {
		want[origin+path] = page
		argv = append(argv, origin+path)
	}
	e2e.RunPeer(t, argv, e2e.CleanEnv()).Want(t, 8) // since a page has status 410
	return want
}

// wantPages checks that the archive returns the pages.
func wantPages(t *testing.T, dir string, want map[string][]byte) {
	t.Helper()
	for url, page := range want {
		if got := e2e.Command(t, "archive", "get", "--dir", dir, url).Want(t, 0).Stdout; got != string(page) {
			t.Errorf("%s: %d bytes, want %d", url, len(got), len(page))
		}
	}
}

// An entry is what a line of an index must say.
type entry struct {
	URL, Status, Digest, Length, Offset, Filename string
}

// index parses lines of CDXJ. The digests are without the name of the algorithm.
func index(t *testing.T, lines string) (entries []entry) {
	t.Helper()
	for line := range strings.Lines(lines) {
		var e entry
		_, text, _ := strings.Cut(line, " {")
		testkit.Must(t, json.Unmarshal([]byte("{"+text), &e))
		_, digest, ok := strings.Cut(e.Digest, ":")
		if ok {
			e.Digest = digest
		}
		entries = append(entries, e)
	}
	slices.SortFunc(entries, func(a, b entry) int { return strings.Compare(a.Filename+" "+a.Offset, b.Filename+" "+b.Offset) })
	return entries
}

// wantIndex checks that the index of an archive is that of warcio.
func wantIndex(t *testing.T, dir string) []entry {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.warc*"))
	testkit.Must(t, err)
	ours := index(t, e2e.Command(t, "archive", "index", "--dir", dir).Want(t, 0).Stdout)
	theirs := index(t, e2e.IndexWARC(t, files...))
	for i, e := range theirs {
		if filepath.Ext(e.Filename) == ".warc" {
			length, err := strconv.Atoi(e.Length)
			testkit.Must(t, err)
			theirs[i].Length = strconv.Itoa(length + len(warc.End)) // which warcio does not count
		}
	}
	if diff := cmp.Diff(theirs, ours); diff != "" {
		t.Errorf("the index (-warcio +ours):\n%s", diff)
	}
	return ours
}

// TestWget: what wget has archived is read byte by byte, compressed or not, and its index names
// the same places as ours.
func TestWget(t *testing.T) {
	t.Parallel()
	for ext, options := range map[string][]string{".warc.gz": nil, ".warc": {"--no-warc-compression"}} {
		dir := t.TempDir()
		want := wget(t, dir, "one", newOrigin(t), options...)
		wantPages(t, dir, want)
		e2e.Command(t, "archive", "verify", "--dir", dir).Want(t, 0)

		places := map[string]string{} // offsets by URL, as wget has them
		for line := range strings.Lines(e2e.ReadText(t, filepath.Join(dir, "one.cdx"))) {
			if words := strings.Fields(line); words[0] != "CDX" {
				places[words[2]] = words[8] + " " + words[4] + " " + words[5]
			}
		}
		got := map[string]string{}
		for _, e := range wantIndex(t, dir) {
			if strings.HasPrefix(e.URL, "http") {
				got[e.URL] = e.Offset + " " + e.Status + " " + e.Digest
			}
		}
		if diff := cmp.Diff(places, got); diff != "" || len(places) != len(pages) {
			t.Errorf("%s: %d URLs in the index of wget, %d pages\n%s", ext, len(places), len(pages), diff)
		}
	}
}

// TestWgetRevisits: the payload of a revisit that wget has written is that of the first crawl.
// (wget writes the digest of an empty block into these records, which is a fault.)
func TestWgetRevisits(t *testing.T) {
	t.Parallel()
	dir, origin := t.TempDir(), newOrigin(t)
	wget(t, dir, "one", origin)
	want := wget(t, dir, "two", origin, "--warc-dedup="+filepath.Join(dir, "one.cdx"))
	wantPages(t, dir, want)
	revisits := 0
	for _, r := range e2e.ReadWARC(t, filepath.Join(dir, "two.warc.gz")) {
		if r.Type != "revisit" {
			continue
		}
		revisits++
		page := want[strings.Trim(r.URL, "<>")]
		if got := e2e.Command(t, "archive", "get", "--dir", dir, r.ID).Want(t, 0).Stdout; got != string(page) {
			t.Errorf("%s: %d bytes, want %d", r.URL, len(got), len(page))
		}
	}
	if revisits == 0 {
		t.Error("the second crawl has no revisit record")
	}
}

// TestWarcio: what warcio has written is read byte by byte, compressed or not, and its index names
// the same places as ours.
func TestWarcio(t *testing.T) {
	t.Parallel()
	const origin = "http://a.test"
	for _, file := range []string{"one.warc", "one.warc.gz"} {
		dir, want := t.TempDir(), map[string][]byte{}
		records := []map[string]any{{"type": "warcinfo", "filename": file, "body": base64.StdEncoding.EncodeToString([]byte("software: warcio\r\n"))}}
		for path, page := range pages {
			want[origin+path] = page
			records = append(records, map[string]any{
				"type": "response", "url": origin + path, "date": "2026-11-25T10:00:00.000Z", "body": base64.StdEncoding.EncodeToString(page),
				"httpHeaders": map[string]string{"Content-Type": "text/plain"},
			})
		}
		records = append(records, map[string]any{"type": "resource", "url": "ftp://a.test/file", "body": base64.StdEncoding.EncodeToString(noise(1000))})
		want["ftp://a.test/file"] = noise(1000)
		path := filepath.Join(dir, file)
		e2e.WriteWARC(t, path, records)
		wantPages(t, dir, want)
		e2e.Command(t, "archive", "verify", "--dir", dir).Want(t, 0)
		if n := len(wantIndex(t, dir)); n != len(want) {
			t.Errorf("%s: %d entries in the index, want %d", file, n, len(want))
		}
		if got := len(e2e.ReadWARC(t, path)); got != len(records) {
			t.Errorf("%s: warcio reads %d records, wrote %d", file, got, len(records))
		}
	}
}
