package audit

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"robotsproxy/cmd/internal/e2e"
	"robotsproxy/robots/testkit"
)

// TestArchiveKilled: after SIGKILL in the middle of a crawl over HTTP/1.1 and HTTP/2, the archive has each
// response that the client has received to its end, and the next process completes its files.
func TestArchiveKilled(t *testing.T) {
	t.Parallel()
	for _, form := range forms {
		t.Run(form, func(t *testing.T) {
			t.Parallel()
			e2e.NeedWarcio(t)
			const pages = 1000
			c := newCrawl(t, pages)
			p, dir := startProxy(t, e2e.Settings{"archive.compress": form})
			c.run(t, p, pages/2, func() { p.Kill(t) })
			before := c.answered()
			if len(before) < pages/2 || len(before) == pages {
				t.Fatalf("%d pages were received before the kill", len(before))
			}
			e2e.Command(t, "archive", "verify", "--dir", dir).Want(t, 0)
			p = p.Again(t)
			c.run(t, p, 0, nil)
			p.End(t)
			c.wantArchived(t, dir, pages)
		})
	}
}

// TestArchiveReloads: reloads and a shutdown during a crawl leave whole files with all that the client has received.
func TestArchiveReloads(t *testing.T) {
	t.Parallel()
	e2e.NeedWarcio(t)
	const pages, changes = 500, 40
	c := newCrawl(t, pages)
	p, dir := startProxy(t, nil)
	crawled := make(chan struct{})
	go func() {
		defer close(crawled)
		for {
			select {
			case <-p.Exited:
				return
			default:
				c.round(t, p)
			}
		}
	}()
	for n := 0; n < changes || len(c.answered()) < pages; n++ {
		p.Rewrite(t, e2e.Unpaced.With(e2e.Settings{
			"archive.dir": dir, "pace.adaptive": false, "identity.from": fmt.Sprintf("n%d@foo.example", n),
			"archive.compress": forms[n%2], "archive.prefix": fmt.Sprintf("p%d", n%3), "archive.max_file": []string{"1MiB", "2MiB"}[n/2%2],
			"archive.dedup": n%5 != 0, "archive.secrets": []string{"drop", "keep"}[n/3%2], "archive.on_error": []string{"refuse", "continue"}[n/4%2],
			"archive.max_age": []string{"0s", "1h"}[n/5%2], "audit.query_strings": []string{"keep", "drop"}[n/7%2], "audit.clients": []string{"name", "hash", "drop"}[n/2%3],
			"archive.max_body": []string{"1MiB", "1GiB"}[n/8%2], "archive.include": []string{"all", "2xx"}[n/6%2], "archive.max_total_size": []string{"auto", "1GiB"}[n/9%2],
		}))
		p.Signal(t, syscall.SIGHUP)
		testkit.Eventually(t, fmt.Sprint("reload ", n), func() bool { return strings.Count(p.Stderr.String(), "configuration reloaded") > n })
	}
	p.End(t)
	testkit.Within(t, "the crawl ends", crawled)
	c.wantArchived(t, dir, pages)
}

// A crawl fetches pages over HTTP/1.1 and HTTP/2, each until it was answered.
type crawl struct {
	urls []string
	got  sync.Map // the SHA-256 of what was answered completely, by URL
}

// newCrawl starts two origins with n pages, small and large ones, of which some are equal.
func newCrawl(t *testing.T, n int) *crawl {
	t.Helper()
	c := new(crawl)
	for i := range n {
		c.urls = append(c.urls, fmt.Sprintf("/%d", i))
	}
	for _, o := range []struct {
		*e2e.Origin
		scheme string
	}{{e2e.NewOrigin(t, "one", ""), "http"}, {e2e.NewOrigin2(t, "two", ""), "https"}} {
		for i := range n {
			if (i%2 == 0) != (o.scheme == "http") {
				continue
			}
			text := fmt.Sprintf("page %d\n", i/2/5*5) // five are equal
			size := 100 + i
			if i%50 < 2 {
				size = 400_000
			}
			o.Handle(c.urls[i], e2e.ChunkedPage([]byte(strings.Repeat(text, size/len(text))), 10_000))
			c.urls[i] = o.URL(o.scheme, c.urls[i])
		}
	}
	return c
}

// answered returns the SHA-256 of what was answered completely, by URL.
func (c *crawl) answered() map[string]string {
	all := map[string]string{}
	c.got.Range(func(url, sum any) bool { all[url.(string)] = sum.(string); return true })
	return all
}

// run fetches the pages that have no answer yet. After some answers it calls end.
func (c *crawl) run(t *testing.T, p *e2e.Proxy, after int64, end func()) {
	t.Helper()
	client := p.Client(t, true)
	defer client.CloseIdleConnections()
	next := make(chan string)
	var count atomic.Int64
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for url := range next {
				resp, err := client.Get(url)
				if err != nil {
					continue
				}
				body, err := io.ReadAll(resp.Body)
				resp.Body.Close()
				if err != nil || resp.StatusCode != http.StatusOK {
					continue
				}
				c.got.Store(url, e2e.Digest(body))
				if count.Add(1) == after {
					end()
				}
			}
		})
	}
	for _, url := range c.urls {
		if _, ok := c.got.Load(url); !ok {
			next <- url
		}
	}
	close(next)
	all.Wait()
}

// round fetches all pages once more.
func (c *crawl) round(t *testing.T, p *e2e.Proxy) {
	again := &crawl{urls: c.urls}
	again.run(t, p, 0, nil)
	for url, sum := range again.answered() {
		c.got.Store(url, sum)
	}
}

// wantArchived checks that the archive has what was answered, which must be at least n pages. Each record has the whole
// page, or says that it was cut off.
func (c *crawl) wantArchived(t *testing.T, dir string, n int) {
	t.Helper()
	all, answered := readArchive(t, dir), c.answered()
	found := map[string]bool{}
	for _, r := range all {
		if r.Type != "response" && r.Type != "revisit" || r.Truncated != "" {
			continue
		}
		found[r.URL] = true
		if want, ok := answered[r.URL]; ok && r.Digest != "sha256:"+want {
			t.Errorf("%s %s: the archive has %q, want %s", r.Type, r.URL, r.Digest, want)
		}
		if r.Type == "revisit" && all[r.Refers].Digest != r.Digest {
			t.Errorf("revisit of %s refers to %+v", r.URL, all[r.Refers])
		}
	}
	for url := range answered {
		if !found[url] {
			t.Errorf("%s: the archive has no record of the whole page", url)
		}
	}
	if len(answered) < n {
		t.Errorf("%d pages were received, want %d", len(answered), n)
	}
}
