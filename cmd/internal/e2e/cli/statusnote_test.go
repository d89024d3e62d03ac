package cli

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"robotsproxy/cmd/internal/e2e"
	"robotsproxy/robots/testkit"
)

// Where no status line can be shown, run reports the first long wait for a robots.txt, and the first one for a slot.
func TestRunNotesLongWaits(t *testing.T) {
	testkit.Long(t, "real clock")
	t.Parallel()
	curl := e2e.NeedPeer(t, "curl")
	for _, c := range []struct {
		status      string
		robots, all int // lines about a wait for the robots.txt, and about any wait
	}{
		{"auto", 1, 2},
		{"never", 0, 0},
	} {
		t.Run(c.status, func(t *testing.T) {
			t.Parallel()
			o := e2e.NewOrigin(t, "slow", "")
			o.Handle("/robots.txt", func(w http.ResponseWriter, r *http.Request) {
				select {
				case <-time.After(11 * time.Second):
				case <-r.Context().Done():
				}
				e2e.TextPage("text/plain", "User-agent: *\nCrawl-delay: 11\n")(w, r)
			})
			o.Handle("/a", e2e.TextPage("text/plain", "a"))
			h := e2e.NewSetup(t, e2e.Settings{"robots.max_crawl_delay": "1m", "pace.adaptive": false})
			args := append([]string{"run", "--status", c.status}, h.RunArgs(curl, "-q", "-sS", o.URL("http", "/a?1"), o.URL("http", "/a?2"), o.URL("http", "/a?3"))[1:]...)
			out := e2e.Command(t, args...).Want(t, 0)
			lines := strings.Count(out.Stderr, "robotsproxy: waiting for ")
			if n := strings.Count(out.Stderr, "robotsproxy: waiting for "+o.URL("http", "/robots.txt")+";"); n != c.robots || lines != c.all {
				t.Errorf("%d lines about waits, %d about that for the robots.txt; want %d and %d:\n%s", lines, n, c.all, c.robots, out.Stderr)
			}
			e2e.WantPolite(t, o, "http", 3, 11*time.Second)
		})
	}
}
