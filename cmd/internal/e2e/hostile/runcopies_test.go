package hostile

import (
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"robotsproxy/cmd/internal/e2e"
	"robotsproxy/robots"
	"robotsproxy/robots/testkit"
)

// TestRunsWithLargeRobotsTxt: sites with large robots.txt files, more than the runs of a state directory keep, take a limited
// part of the disk. Runs for an honest site beside them lose no evidence, and fetch its file at most once each.
func TestRunsWithLargeRobotsTxt(t *testing.T) {
	testkit.Long(t, "volume")
	t.Parallel()
	curl := e2e.NeedPeer(t, "curl")
	const rules = "User-agent: *\nDisallow: /private/\n"
	honest, large := e2e.NewOrigin(t, "honest", rules), e2e.NewOrigin(t, "large", rules+strings.Repeat("#", robots.MaxBytes-len(rules)))
	for _, o := range []*e2e.Origin{honest, large} {
		o.Handle("/a", e2e.TextPage("text/plain", "a"))
	}
	h := e2e.NewSetup(t, e2e.Unpaced)
	const sites, batch, limit = 320, 80, 128 << 20
	args := []string{curl, "-q", "-sS", "-f"}
	for i := range sites {
		name := fmt.Sprintf("s%d.%s", i, large.Name)
		e2e.Names.Point(name, large.Ip)
		args = append(args, fmt.Sprintf("http://%s:%d/a", name, large.Ports["http"]))
	}
	for i := range sites / batch {
		crawl := e2e.Prepare(t, h.RunArgs(append(args[:4:4], args[4+i*batch:4+(i+1)*batch]...)...)...)
		var beside sync.WaitGroup
		beside.Go(func() { e2e.Finish(t, crawl).Want(t, 0) })
		e2e.Command(t, h.RunArgs(curl, "-q", "-sS", "-f", honest.URL("http", "/a"), honest.URL("http", "/private/a"))...).Want(t, 22)
		beside.Wait()
	}
	if n := len(large.Pages("http")); n != sites {
		t.Errorf("%d pages of the large sites arrived, want %d", n, sites)
	}
	e2e.Command(t, h.RunArgs(curl, "-q", "-sS", "-f", honest.URL("http", "/a"))...).Want(t, 0)
	if got := e2e.Command(t, "audit", "verify", "--state", h.State, "--run", "last").Want(t, 0); !strings.Contains(got.Stdout, "1 snapshot unchanged") {
		t.Errorf("the audit of the honest run:\n%s", got.Stdout)
	}
	runs := sites/batch + 1
	fetched := len(honest.Arrivals("http")) - len(honest.Pages("http"))
	for _, hit := range honest.Pages("http") {
		if hit.Path != "/a" {
			t.Errorf("%s arrived", hit.Path)
		}
	}
	if fetched < 1 || fetched > runs || len(honest.Pages("http")) != runs {
		t.Errorf("%d runs fetched robots.txt %d times and %d pages", runs, fetched, len(honest.Pages("http")))
	}
	var total int64
	testkit.Must(t, filepath.WalkDir(filepath.Join(h.State, "robots"), func(_ string, d fs.DirEntry, err error) error {
		testkit.Must(t, err)
		info, err := d.Info()
		if err == nil && !d.IsDir() {
			total += info.Size()
		}
		return err
	}))
	if total > limit || total < limit/2 {
		t.Errorf("%d MiB are kept of %d MiB", total>>20, sites*robots.MaxBytes>>20)
	}
}
