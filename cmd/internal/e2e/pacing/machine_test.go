package pacing

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"robotsproxy/cmd/internal/e2e"
)

// delayed is a robots.txt with a Crawl-delay of a second.
const delayed = "User-agent: *\nCrawl-delay: 1\n"

// arrivals returns the requests that arrived at o by all schemes. A page that follows the fetch of a robots.txt belongs to
// the same slot, so the fetch is left out.
func arrivals(o *e2e.Origin) (all []e2e.Hit) {
	for _, scheme := range []string{"http", "https"} {
		all = append(all, o.Arrivals(scheme)...)
	}
	slices.SortFunc(all, func(a, b e2e.Hit) int { return a.At.Compare(b.At) })
	var slots []e2e.Hit
	for i, h := range all {
		if h.Path == "/robots.txt" && i+1 < len(all) && all[i+1].Scheme == h.Scheme && all[i+1].Path != "/robots.txt" {
			continue
		}
		slots = append(slots, h)
	}
	return slots
}

// Runs of one state directory keep one pace, one after the other and at once, and with a serve beside them.
func TestRunsShareThePace(t *testing.T) {
	t.Parallel()
	curl := e2e.NeedPeer(t, "curl")
	o := e2e.NewOrigin(t, "runs", delayed)
	o.Handle("/a", e2e.TextPage("text/plain", "a"))
	h := e2e.NewSetup(t, nil)
	run := func(scheme string, i int) {
		out := e2e.Command(t, h.RunArgs(curl, "-q", "-sS", o.URL(scheme, fmt.Sprint("/a?", i)))...).Want(t, 0)
		if out.Stdout != "a" {
			t.Errorf("run %d printed %q", i, out.Stdout)
		}
	}
	for i := range 3 {
		run([]string{"http", "https"}[i%2], i)
	}
	p := e2e.StartSetup(t, h)
	var all sync.WaitGroup
	for i := range 2 {
		all.Go(func() { run("http", 3+i) })
		all.Go(func() {
			if got := e2e.Get(t, p.Client(t, false), o.URL("https", fmt.Sprint("/a?", 5+i))); got.Status != http.StatusOK {
				t.Errorf("%v", got)
			}
		})
	}
	all.Wait()
	slots := arrivals(o)
	if n := len(o.Pages("http")) + len(o.Pages("https")); n != 7 {
		t.Errorf("%d pages arrived, want 7", n)
	}
	e2e.WantGaps(t, slots, time.Second)
}

// A run that is killed leaves its pace to the next one. Another state directory has a pace of its own: its run, which waits
// for nothing longer than a second, is not refused.
func TestAKilledRunLeavesItsPace(t *testing.T) {
	t.Parallel()
	curl := e2e.NeedPeer(t, "curl")
	o := e2e.NewOrigin(t, "killedrun", "User-agent: *\nCrawl-delay: 5\n")
	arrived := make(chan struct{}, 1)
	o.Handle("/held", func(_ http.ResponseWriter, r *http.Request) {
		arrived <- struct{}{}
		<-r.Context().Done()
	})
	o.Handle("/a", e2e.TextPage("text/plain", "a"))
	h, apart := e2e.NewSetup(t, nil), e2e.NewSetup(t, e2e.Settings{"pace.max_wait": "1s"})
	cmd := e2e.Prepare(t, h.RunArgs(curl, "-q", "-sS", o.URL("http", "/held"))...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	<-arrived
	if err := cmd.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	cmd.Wait() // its error is the kill
	e2e.Command(t, h.RunArgs(curl, "-q", "-sS", o.URL("http", "/a?next"))...).Want(t, 0)
	e2e.WantGaps(t, arrivals(o), 5*time.Second)
	out := e2e.Command(t, apart.RunArgs(curl, "-q", "-sS", "-f", o.URL("http", "/a?apart"))...).Want(t, 0)
	if !strings.Contains(out.Stderr, "robotsproxy: the pace is shared only with processes that have the state directory "+apart.State+"\n") {
		t.Errorf("%s", out.Stderr)
	}
}

// A serve and a run keep one pace after somebody has truncated or removed the file that they share.
func TestTheSharedPaceIsDamaged(t *testing.T) {
	t.Parallel()
	curl := e2e.NeedPeer(t, "curl")
	for name, damage := range map[string]func(file string) error{
		"truncated": func(file string) error { return os.Truncate(file, 0) },
		"removed":   os.Remove,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := e2e.NewOrigin(t, name, "User-agent: *\nCrawl-delay: 5\n")
			o.Handle("/a", e2e.TextPage("text/plain", "a"))
			h := e2e.NewSetup(t, nil)
			p := e2e.StartSetup(t, h)
			get := func(page string) {
				if got := e2e.Get(t, p.Client(t, false), o.URL("http", page)); got.Status != http.StatusOK {
					t.Errorf("%v", got)
				}
			}
			get("/a?0")
			time.Sleep(2 * time.Second) // the run is then earlier than the gap to the request of the serve, and no other one may be
			if err := damage(filepath.Join(h.State, "pace")); err != nil {
				t.Fatal(err)
			}
			e2e.Command(t, h.RunArgs(curl, "-q", "-sS", o.URL("http", "/a?1"))...).Want(t, 0)
			get("/a?2")
			e2e.WantGaps(t, o.Pages("http")[1:], 5*time.Second)
		})
	}
}

// A run gets its turn beside a serve whose clients always have requests waiting for the concurrency slots of the host.
func TestARunBesideABusyServe(t *testing.T) {
	t.Parallel()
	curl := e2e.NeedPeer(t, "curl")
	o := e2e.NewOrigin(t, "busy", "")
	o.Handle("/a", func(http.ResponseWriter, *http.Request) { time.Sleep(200 * time.Millisecond) })
	h := e2e.NewSetup(t, e2e.Unpaced.With(e2e.Settings{"pace.max_concurrent": 2}))
	p := e2e.StartSetup(t, h)
	const clients, each = 6, 15
	var all sync.WaitGroup
	for range clients {
		client := p.Client(t, false)
		all.Go(func() {
			for range each {
				if got := e2e.Get(t, client, o.URL("http", "/a")); got.Status != http.StatusOK {
					t.Errorf("%v", got)
				}
			}
		})
	}
	e2e.Command(t, h.RunArgs(curl, "-q", "-sS", o.URL("http", "/a?run"))...).Want(t, 0)
	all.Wait()
	switch pages := o.Pages("http"); {
	case len(pages) != clients*each+1:
		t.Errorf("%d pages arrived", len(pages))
	case slices.ContainsFunc(pages[len(pages)-clients:], func(h e2e.Hit) bool { return h.Path == "/a?run" }):
		t.Error("the run waited until the clients of the serve had no more requests")
	}
}

// On a full disk, runs keep one pace too.
func TestRunsOnAFullDisk(t *testing.T) {
	t.Parallel()
	curl := e2e.NeedPeer(t, "curl")
	disk := e2e.SmallDisk(t, "8m")
	o := e2e.NewOrigin(t, "fullruns", delayed)
	o.Handle("/a", e2e.TextPage("text/plain", "a"))
	h := e2e.NewSetup(t, e2e.Settings{"state_dir": filepath.Join(disk, "state")})
	run := func(i int) {
		audit := filepath.Join(h.Dir, fmt.Sprint("audit", i, ".jsonl")) // otherwise no request would be sent
		args := append([]string{"run", "-c", h.Config, "--audit", audit, "--"}, curl, "-q", "-sS", o.URL("http", fmt.Sprint("/a?", i)))
		e2e.Command(t, args...)
	}
	run(0)
	ballast := e2e.Fill(t, disk)
	for i := range 3 {
		run(1 + i)
	}
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	run(4)
	e2e.WantGaps(t, arrivals(o), time.Second)
	if n := len(o.Pages("http")); n < 2 {
		t.Errorf("%d pages arrived", n)
	}
}

// A loop of commands in a shell, each with a run of its own, keeps a Crawl-delay.
func TestALoopOfRuns(t *testing.T) {
	t.Parallel()
	curl, sh := e2e.NeedPeer(t, "curl"), e2e.NeedPeer(t, "sh")
	o := e2e.NewOrigin(t, "loop", delayed)
	o.Handle("/a", e2e.TextPage("text/plain", "a"))
	h := e2e.NewSetup(t, nil)
	const script = `for i in 1 2 3; do "$0" run -q -c "$1" -- "$2" -q -sS "$3?$i" & done; wait`
	cmd := exec.Command(sh, "-c", script, e2e.Binary(t), h.Config, curl, o.URL("http", "/a"))
	cmd.Env = e2e.CleanEnv("HOME=" + h.Dir)
	if out := e2e.Finish(t, cmd).Want(t, 0); out.Stdout != "aaa" {
		t.Errorf("stdout: %q, stderr: %s", out.Stdout, out.Stderr)
	}
	e2e.WantGaps(t, arrivals(o), time.Second)
}
