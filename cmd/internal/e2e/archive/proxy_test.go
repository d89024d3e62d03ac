package archive

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"robotsproxy/cmd/internal/e2e"
	"robotsproxy/proxy/archive/warc"
	"robotsproxy/robots/testkit"
)

// startProxy starts a proxy with an archive, and returns the directory of the archive.
func startProxy(t *testing.T, own e2e.Settings) (p *e2e.Proxy, dir string) {
	t.Helper()
	dir = t.TempDir()
	return e2e.StartProxy(t, e2e.Unpaced.With(own).With(e2e.Settings{"archive.dir": dir})), dir
}

// readArchive reads a complete archive with warcio, checks the digests of all payloads and that
// archive verify finds no fault, and returns the captures by their IDs.
func readArchive(t *testing.T, dir string) map[string]e2e.WARCRecord {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.warc*"))
	testkit.Must(t, err)
	captures := map[string]e2e.WARCRecord{}
	for _, r := range e2e.ReadWARC(t, files...) {
		switch r.Type {
		case "response":
			if r.Digest != "sha256:"+r.SHA256 {
				t.Errorf("%s: the digest of the payload is %s, want %s", r.URL, r.Digest, r.SHA256)
			}
			captures[r.ID] = r
		case "revisit":
			captures[r.ID] = r
		}
	}
	e2e.Command(t, "archive", "verify", "--dir", dir).Want(t, 0)
	return captures
}

// TestProxyAsWget: the payloads that the proxy archives are byte by byte those that wget archives
// of the same site, and the audit names the place of each.
func TestProxyAsWget(t *testing.T) {
	t.Parallel()
	for _, compress := range []string{"gzip", "none"} {
		origin, direct := newOrigin(t), t.TempDir()
		p, dir := startProxy(t, e2e.Settings{"archive.compress": compress, "archive.max_file": "1MiB"})
		want := wget(t, direct, "wget", origin)
		argv := append(e2e.NeedCommand("wget")(t), "-q", "--content-on-error", "--tries=1", "-O", "/dev/null")
		for url := range want {
			argv = append(argv, url)
		}
		e2e.RunPeer(t, argv, p.Env(t)).Want(t, 8) // since a page has status 410
		p.End(t)

		captures := readArchive(t, dir)
		for url := range want {
			ours := e2e.Command(t, "archive", "get", "--dir", dir, url).Want(t, 0).Stdout
			theirs := e2e.Command(t, "archive", "get", "--dir", direct, url).Want(t, 0).Stdout
			if ours != theirs {
				t.Errorf("%s, %s: %d bytes, wget has %d", compress, url, len(ours), len(theirs))
			}
		}
		records := e2e.ReadAudit(t, p.Audit)
		for _, r := range records {
			c := captures[r.WARC.ID]
			if got := (e2e.WARCPlace{File: c.File, Offset: c.Offset, ID: c.ID}); got != r.WARC || c.URL != r.URL {
				t.Errorf("%s: the audit names %v, warcio %v %s", r.URL, r.WARC, got, c.URL)
			}
		}
		if len(records) != len(pages) {
			t.Errorf("%d records in the audit, want %d", len(records), len(pages))
		}
		wantIndex(t, dir)
	}
}

// crawlPage returns the page with a number. Some pages are large, and some are the same.
func crawlPage(n int) []byte {
	switch {
	case n%50 == 0:
		return append(noise(400_000), byte(n), byte(n>>8))
	case n%10 == 0:
		return noise(5000)
	}
	return append(noise(n), byte(n), byte(n>>8))
}

// TestKilled: after SIGKILL in the middle of a crawl over HTTP/1.1 and HTTP/2, the archive has each
// response that the client has received to its end, and the next process completes its files.
func TestKilled(t *testing.T) {
	t.Parallel()
	e2e.NeedWarcio(t)
	const half, workers = 500, 8
	p, dir := startProxy(t, nil)
	var mu sync.Mutex
	received := map[string][]byte{} // by URL
	var kill sync.Once
	var killed atomic.Bool
	var crawl sync.WaitGroup
	for _, h2 := range []bool{false, true} {
		origin := e2e.NewOrigin(t, "killed", "")
		if h2 {
			origin = e2e.NewOrigin2(t, "killed-h2", "")
		}
		numbers, client := make(chan int, half), p.Client(t, h2)
		for n := range half {
			origin.Handle(fmt.Sprintf("/%d", n), func(w http.ResponseWriter, _ *http.Request) { w.Write(crawlPage(n)) })
			numbers <- n
		}
		close(numbers)
		for range workers {
			crawl.Go(func() {
				for n := range numbers {
					url := origin.URL("https", fmt.Sprintf("/%d", n))
					body, err := fetch(client, url)
					if err != nil {
						if !killed.Load() {
							t.Errorf("%s: %v", url, err)
						}
						return
					}
					mu.Lock()
					received[url] = body
					enough := len(received) >= half // of the pages of both origins
					mu.Unlock()
					if enough {
						kill.Do(func() { killed.Store(true); p.Cmd.Process.Kill() })
					}
				}
			})
		}
	}
	crawl.Wait()
	<-p.Exited
	if len(received) >= 2*half {
		t.Fatal("the crawl has ended before the proxy was killed")
	}
	e2e.Command(t, "archive", "verify", "--dir", dir).Want(t, 0)
	p = p.Again(t)
	p.End(t)

	digests := map[string]string{}
	for _, r := range readArchive(t, dir) {
		digests[r.URL] = r.Digest
	}
	for url, body := range received {
		sum := sha256.Sum256(body)
		if want := warc.SHA256Digest(sum[:]); digests[url] != want {
			t.Errorf("%s: the archive has %q, want %s", url, digests[url], want)
		}
	}
	t.Logf("%d of %d pages received, %d archived", len(received), 2*half, len(digests))
}

// fetch reads a page to its end.
func fetch(c *http.Client, url string) ([]byte, error) {
	req, err := http.NewRequestWithContext(context.Background(), http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	resp, err := c.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("status %d", resp.StatusCode)
	}
	return io.ReadAll(resp.Body)
}
