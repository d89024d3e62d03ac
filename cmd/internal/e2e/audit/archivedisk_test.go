package audit

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"robotsproxy/cmd/internal/e2e"
	"robotsproxy/robots/testkit"
)

// originOfSizes starts an origin with the pages of complete.
func originOfSizes(t *testing.T, name string) *e2e.Origin {
	t.Helper()
	o, large := e2e.NewOrigin(t, name, ""), e2e.RandomBytes(1_000_000)
	o.Handle("/small", e2e.SizedPage(large[:10_000]))
	o.Handle("/large", e2e.SizedPage(large))
	o.Handle("/chunked", e2e.ChunkedPage(large, 100_000))
	o.Handle("/none", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	return o
}

// complete are the pages of originOfSizes, as statusAndSize returns them.
var complete = map[string]string{"/small": "200 10000", "/large": "200 1000000", "/chunked": "200 1000000", "/none": "204 0"}

// statusAndSize fetches a page; "broken": it got no whole response.
func statusAndSize(c *http.Client, url string) string {
	resp, err := c.Get(url)
	if err != nil {
		return "broken"
	}
	defer resp.Body.Close()
	n, err := io.Copy(io.Discard, resp.Body)
	if err != nil {
		return "broken"
	}
	return fmt.Sprintf("%d %d", resp.StatusCode, n)
}

// TestArchiveOnAFullDisk: on a disk without space, on_error: refuse breaks responses off and sends no further requests, and
// on_error: continue passes everything on. Nothing incomplete stays in the files, and with space everything is as
// before, also for an origin whose robots.txt could not be archived.
func TestArchiveOnAFullDisk(t *testing.T) {
	t.Parallel()
	e2e.NeedWarcio(t)
	for _, form := range forms {
		for _, goOn := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s continue=%t", form, goOn), func(t *testing.T) {
				t.Parallel()
				o, fresh := originOfSizes(t, "full"), originOfSizes(t, "fresh")
				disk := e2e.SmallDisk(t, "32m")
				dir := filepath.Join(disk, "archive")
				onError := map[bool]string{false: "refuse", true: "continue"}[goOn]
				p := e2e.StartProxy(t, e2e.Unpaced.With(e2e.Settings{"archive.dir": dir, "archive.compress": form, "archive.dedup": false, "archive.max_total_size": 0, "archive.on_error": onError}))
				c := p.Client(t, false)
				archived := map[string]int{} // complete answers while there was space, by path
				ask := func(of *e2e.Origin, path string) string { return statusAndSize(c, of.URL("http", path)) }
				all := func(of *e2e.Origin) {
					t.Helper()
					for path, want := range complete {
						if got := ask(of, path); got != want {
							t.Errorf("%s: %s, want %s", path, got, want)
						}
						archived[of.URL("http", path)]++
					}
				}
				all(o)
				ballast := e2e.Fill(t, disk)
				if got := ask(fresh, "/small"); goOn != (got == complete["/small"]) {
					t.Errorf("a fresh origin: %s", got)
				}
				for _, path := range []string{"/large", "/chunked", "/small", "/none"} {
					for range 3 {
						got := ask(o, path)
						if goOn != (got == complete[path]) {
							t.Errorf("%s without space: %s", path, got)
						}
					}
				}
				if p.Healthy(t) {
					t.Error("/healthz says that all is well")
				}
				testkit.Must(t, os.Remove(ballast))
				testkit.Eventually(t, "the proxy recovers", func() bool { return p.Healthy(t) })
				all(o)
				all(fresh)
				p.End(t)
				found := map[string]int{}
				for _, r := range readArchive(t, dir) {
					if r.Type == "response" && r.Truncated == "" {
						found[r.URL]++
					}
				}
				for url, n := range archived {
					if found[url] != n && !(goOn && found[url] > n) {
						t.Errorf("%s is archived %d times, want %d", url, found[url], n)
					}
				}
			})
		}
	}
}
