package operations

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"robotsproxy/cmd/internal/e2e"
	"robotsproxy/policy/audit/checkpoint"
	"robotsproxy/robots/testkit"
)

// All replicas share what one learns of a site: its robots.txt, which is fetched once, a
// purge, and a back-off. Each replica stores the robots.txt that its decisions are based
// on, whoever has fetched it.
func TestFleetSharesWhatItLearns(t *testing.T) {
	t.Parallel()
	const text = "User-agent: *\nDisallow: /old\n"
	o := e2e.NewOrigin(t, "shared", text)
	for _, path := range []string{"/old", "/new", "/page"} {
		o.Handle(path, e2e.TextPage("text/plain", path))
	}
	o.Handle("/busy", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "1")
		w.WriteHeader(http.StatusTooManyRequests)
	})
	f := startFleet(t, storeURL(t), 3, e2e.Unpaced)
	f.awaitStore(t, 1)
	f.askForOldAndNew(t, o)
	if n := o.Fetches("http"); n != 1 {
		t.Errorf("robots.txt was fetched %d times", n)
	}
	for _, p := range f.replicas {
		sum := e2e.AwaitRecord(t, p.Audit, o.URL("http", "/old?1")).RobotsSHA256
		if out := e2e.Command(t, "audit", "snapshot", sum, "-c", p.Config).Want(t, 0); out.Stdout != text {
			t.Errorf("the robots.txt of a decision is %q", out.Stdout)
		}
	}

	o.Handle("/robots.txt", e2e.TextPage("text/plain", "User-agent: *\nDisallow: /new\n"))
	e2e.API[struct{}](t, f.replicas[0], "POST", "purge", fmt.Sprintf(`{"origin":"http://%s"}`, o.Hostport("http")), 200)
	for i, p := range f.replicas {
		client := p.Client(t, false)
		testkit.Eventually(t, fmt.Sprintf("r%d has heard of the purge", i), func() bool {
			return e2e.Get(t, client, o.URL("http", "/old")).Status == http.StatusOK
		})
		if got := e2e.Get(t, client, o.URL("http", "/new")); got.Status != http.StatusForbidden {
			t.Errorf("r%d: /new is answered with %d", i, got.Status)
		}
	}
	if n := o.Fetches("http"); n != 2 {
		t.Errorf("robots.txt was fetched %d times, want once more after the purge", n)
	}
	t.Run("pause", func(t *testing.T) {
		testkit.Long(t, "real clock")
		f.wantLeftAlone(t, o, time.Second)
	})
}

// askForOldAndNew makes several clients of each replica request, at once, pages that are first
// allowed or disallowed.
func (f *fleet) askForOldAndNew(t *testing.T, o *e2e.Origin) {
	t.Helper()
	var all sync.WaitGroup
	for i, p := range f.replicas {
		for n := range 5 {
			client := p.Client(t, false)
			all.Go(func() {
				path, old := []string{"/page", "/old"}[n%2], n%2 == 1
				if got := e2e.Get(t, client, o.URL("http", fmt.Sprintf("%s?%d", path, n))); (got.Status == http.StatusForbidden) != old {
					t.Errorf("r%d: %s is answered with %d", i, path, got.Status)
				}
			})
		}
	}
	all.Wait()
}

// wantLeftAlone asks one replica for a page that demands a back-off, and again if the back-off ends
// before all have heard of it. Then it asks each replica for another page.
func (f *fleet) wantLeftAlone(t *testing.T, o *e2e.Origin, pause time.Duration) {
	t.Helper()
	client := f.replicas[0].Client(t, false)
	testkit.Eventually(t, "all replicas have heard of the back-off", func() bool {
		e2e.Get(t, client, o.URL("http", "/busy"))
		over := time.Now().Add(pause)
		for _, p := range f.replicas {
			for e2e.API[e2e.APIHost](t, p, "GET", "hosts/"+o.Name, "", 200).Pace.PausedUntil.IsZero() {
				if time.Now().After(over) {
					return false
				}
			}
		}
		return true
	})
	var all sync.WaitGroup
	for i, p := range f.replicas {
		client := p.Client(t, false)
		all.Go(func() {
			if got := e2e.Get(t, client, o.URL("http", fmt.Sprintf("/page?%d", i))); got.Status != http.StatusOK {
				t.Errorf("r%d: %v", i, got)
			}
		})
	}
	all.Wait()
	var told time.Time
	for _, h := range o.Pages("http") {
		if h.Path == "/busy" {
			told = h.At
		} else if !told.IsZero() && h.At.Sub(told) < pause {
			t.Errorf("%s arrived %v after the site wanted to be left alone for %v", h.Path, h.At.Sub(told), pause)
		}
	}
}

// The concurrency limit of a host applies to the whole fleet. Slots of a replica that has
// died become free after a while.
func TestFleetKeepsOneMaxConcurrent(t *testing.T) {
	testkit.Long(t, "real clock")
	t.Parallel()
	const most, clients = 2, 4
	var mu sync.Mutex // guards what follows
	now, peak := 0, 0
	release := make(chan struct{})
	o := e2e.NewOrigin(t, "places", "")
	o.Handle("/page", func(http.ResponseWriter, *http.Request) {
		mu.Lock()
		now++
		peak = max(peak, now)
		mu.Unlock()
		<-time.After(50 * time.Millisecond)
		mu.Lock()
		now--
		mu.Unlock()
	})
	o.Handle("/held", e2e.HeldPage("application/octet-stream", "first\n", "second\n", release))
	defer close(release)
	f := startFleet(t, storeURL(t), 3, e2e.Unpaced.With(e2e.Settings{"pace.max_concurrent": most, "pace.adaptive": false}))
	f.awaitStore(t, 1)
	var all sync.WaitGroup
	for i, p := range f.replicas {
		for n := range clients {
			client := p.Client(t, false)
			all.Go(func() {
				for k := range 3 {
					if got := e2e.Get(t, client, o.URL("http", fmt.Sprintf("/page?%d.%d.%d", i, n, k))); got.Status != http.StatusOK {
						t.Errorf("%v", got)
					}
				}
			})
		}
	}
	all.Wait()
	if peak != most {
		t.Errorf("%d requests at once, want %d", peak, most)
	}

	dies, lives := f.replicas[2], f.replicas[0].Client(t, false)
	for range most {
		e2e.InFlight(t, dies, o, "http", false)
	}
	dies.WantCode = 128 + 9
	dies.Cmd.Process.Kill()
	<-dies.Exited
	began := time.Now()
	if got := e2e.Get(t, lives, o.URL("http", "/page")); got.Status != http.StatusOK {
		t.Errorf("after a replica has died: %v", got)
	}
	if took := time.Since(began); took < time.Second {
		t.Errorf("its places were free after %v, want about ten seconds", took)
	}
}

// The audits of a fleet can be read together. Each replica has the checkpoints of the others, so that they show what somebody
// does to one of them.
func TestFleetAuditsAreReadTogether(t *testing.T) {
	t.Parallel()
	o := e2e.NewOrigin(t, "audits", "User-agent: *\nDisallow: /private\n")
	o.Handle("/page", e2e.TextPage("text/plain", "a"))
	f := startFleet(t, storeURL(t), 3, e2e.Unpaced.With(e2e.Settings{"audit.checkpoint": map[string]int{"lines": 1}}))
	var files []string
	for _, p := range f.replicas {
		for range 5 {
			e2e.Get(t, p.Client(t, false), o.URL("http", "/other"))
		}
	}
	for i, p := range f.replicas {
		client := p.Client(t, false)
		testkit.Eventually(t, "the replica has the checkpoints of the others", func() bool {
			e2e.Get(t, client, o.URL("http", "/other"))
			others := map[string]bool{}
			for _, note := range checkpoint.Notes([]byte(e2e.ReadText(t, filepath.Join(p.State, "checkpoints")))) {
				// The keys of the others are not known here.
				c, _ := checkpoint.Open(note, nil)
				others[c.Origin] = others[c.Origin] || c.Seq >= 5
			}
			return others[fmt.Sprintf("robotsproxy/r%d", (i+1)%3)] && others[fmt.Sprintf("robotsproxy/r%d", (i+2)%3)]
		})
		e2e.Get(t, client, o.URL("http", "/page"))
		e2e.Get(t, client, o.URL("http", "/private"))
		e2e.AwaitRecord(t, p.Audit, o.URL("http", "/private"))
		files = append(files, p.Audit)
	}
	for _, p := range f.replicas {
		p.End(t)
	}
	verify := func(exit int, want string, files ...string) {
		t.Helper()
		if out := e2e.Command(t, append([]string{"audit", "verify"}, files...)...).Want(t, exit); !strings.Contains(out.Stdout+out.Stderr, want) {
			t.Errorf("%s%s, want %q", out.Stdout, out.Stderr, want)
		}
	}
	verify(0, "lines are covered by a checkpoint of ", files...)
	verify(1, "expected the audits of robotsproxy/r0, robotsproxy/r1, robotsproxy/r2: robotsproxy/r1 is not here", files[0], files[2])
	text := [3]string{e2e.ReadText(t, files[0]), e2e.ReadText(t, files[1]), e2e.ReadText(t, files[2])}
	copied := filepath.Join(t.TempDir(), "copy.jsonl")
	e2e.WriteFile(t, copied, text[0])
	verify(1, "are audits of the same proxy: name only one of them", append(files, copied)...)
	e2e.WriteFile(t, files[1], text[2])
	e2e.WriteFile(t, files[2], text[1])
	verify(1, "the files may have been swapped", files...)
	e2e.WriteFile(t, files[2], text[2])
	e2e.WriteFile(t, files[1], strings.Join(strings.SplitAfter(text[1], "\n")[:3], ""))
	for _, name := range []string{"audit.tree", "checkpoints", "checkpoint.key"} {
		testkit.Must(t, os.Remove(filepath.Join(f.replicas[1].State, name)))
	}
	verify(1, "of which robotsproxy/r1 made a checkpoint at ", files...)
	e2e.WriteFile(t, files[1], text[1])
	report := e2e.Command(t, append([]string{"audit", "report", "--format", "csv"}, files...)...).Want(t, 0).Stdout
	for _, name := range []string{"r0", "r1", "r2"} {
		if !strings.Contains(report, name) {
			t.Errorf("the report does not speak of %s:\n%s", name, report)
		}
	}
}

// The first requests to a site wait as its Crawl-delay says, whatever the pace was before its
// robots.txt was known.
func TestFleetEstimatesByTheCrawlDelay(t *testing.T) {
	testkit.Long(t, "real clock")
	t.Parallel()
	const delay = time.Second
	f := startFleet(t, storeURL(t), 3, e2e.Settings{"pace.requests_per_second": 100_000})
	f.awaitStore(t, 1)
	var all sync.WaitGroup
	for range 3 { // sites
		o := e2e.NewOrigin(t, "estimate", "User-agent: *\nCrawl-delay: 1\n")
		o.Handle("/page", e2e.TextPage("text/plain", "a"))
		t.Cleanup(func() { e2e.WantGaps(t, slices.Concat(o.Pages("http"), o.Pages("https")), delay) })
		for i, p := range f.replicas {
			for _, scheme := range e2e.Schemes {
				client := p.Client(t, false)
				all.Go(func() {
					if got := e2e.Get(t, client, o.URL(scheme, "/page")); got.Status != http.StatusOK {
						t.Errorf("r%d: %v\n%s", i, got, got.Body)
					}
				})
			}
		}
	}
	all.Wait()
}

// Proxies that introduce themselves to sites as different crawlers may share a store, and one proxy may
// change its name between two runs: each robots.txt decides only for the crawler that it was given to.
func TestAgentsShareNoRobots(t *testing.T) {
	t.Parallel()
	o := e2e.NewOrigin(t, "agents", "")
	o.Handle("/robots.txt", func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.UserAgent(), "BotA/") {
			io.WriteString(w, "User-agent: *\nDisallow: /b\n")
		} else {
			io.WriteString(w, "User-agent: *\nDisallow: /a\n")
		}
	})
	o.Handle("/a", e2e.TextPage("text/plain", "a"))
	o.Handle("/b", e2e.TextPage("text/plain", "b"))
	ask := func(p *e2e.Proxy, path string, want int) {
		t.Helper()
		if got := e2e.Get(t, p.Client(t, false), o.URL("http", path)); got.Status != want {
			t.Errorf("%s: %v", path, got)
		}
	}
	own := e2e.Unpaced.With(e2e.Settings{"store.redis": storeURL(t), "store.replicas": 2})
	as := func(name string) e2e.Settings { return own.With(e2e.Settings{"identity.user_agent": name + "/1.0"}) }
	a, b := e2e.StartProxy(t, as("BotA")), e2e.StartProxy(t, as("BotB"))
	(&fleet{replicas: []*e2e.Proxy{a, b}}).awaitStore(t, 1)
	ask(a, "/a", http.StatusOK)
	ask(b, "/a", http.StatusForbidden)
	ask(b, "/b", http.StatusOK)
	ask(a, "/b", http.StatusForbidden)
	a.Rewrite(t, e2e.Unpaced.With(e2e.Settings{"identity.user_agent": "BotC/1.0"})) // with the state directory alone
	a = a.EndAgain(t)
	ask(a, "/a", http.StatusForbidden)
	if n := o.Fetches("http"); n != 3 {
		t.Errorf("robots.txt was fetched %d times, want once for each name", n)
	}
	for _, h := range o.Pages("http") {
		if (h.Path == "/a") != strings.HasPrefix(h.Header.Get("User-Agent"), "BotA/") {
			t.Errorf("%s arrived from %s", h.Path, h.Header.Get("User-Agent"))
		}
	}
}
