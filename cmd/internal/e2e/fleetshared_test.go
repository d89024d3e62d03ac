package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"robotsproxy/cmd/internal/redis/redistest"
)

// What one replica learns of a site all know: its robots.txt, which is fetched once,
// that it was purged, and that the site wants to be left alone. And each has the very
// robots.txt that its decisions rested on, whoever fetched it.
func TestFleetSharesWhatItLearns(t *testing.T) {
	t.Parallel()
	const text = "User-agent: *\nDisallow: /old\n"
	o := newOrigin(t, "shared", text)
	for _, path := range []string{"/old", "/new", "/page"} {
		o.handle(path, textPage("text/plain", path))
	}
	o.handle("/busy", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "3")
		w.WriteHeader(http.StatusTooManyRequests)
	})
	f := startFleet(t, redistest.Start(t), 3, outOfTheWay)
	f.awaitStore(t, 1, patience)
	var all sync.WaitGroup
	for i, p := range f.replicas {
		for n := range 5 {
			client := p.client(t, false)
			all.Go(func() {
				path, old := []string{"/page", "/old"}[n%2], n%2 == 1
				if got := get(t, client, o.url("http", fmt.Sprintf("%s?%d", path, n))); (got.Status == http.StatusForbidden) != old {
					t.Errorf("r%d: %s is answered with %d", i, path, got.Status)
				}
			})
		}
	}
	all.Wait()
	if n := o.fetches("http"); n != 1 {
		t.Errorf("robots.txt was fetched %d times", n)
	}
	for _, p := range f.replicas {
		sum := awaitRecord(t, p.audit, o.url("http", "/old?1")).RobotsSHA256
		if out := command(t, "audit", "snapshot", sum, "-c", p.config).want(t, 0); out.stdout != text {
			t.Errorf("the robots.txt of a decision is %q", out.stdout)
		}
	}

	o.handle("/robots.txt", textPage("text/plain", "User-agent: *\nDisallow: /new\n"))
	api[struct{}](t, f.replicas[0], "POST", "purge", fmt.Sprintf(`{"origin":"http://%s"}`, o.hostport("http")), 200)
	for i, p := range f.replicas {
		client := p.client(t, false)
		eventually(t, patience, fmt.Sprintf("r%d has heard of the purge", i), func() bool {
			return get(t, client, o.url("http", "/old")).Status == http.StatusOK
		})
		if got := get(t, client, o.url("http", "/new")); got.Status != http.StatusForbidden {
			t.Errorf("r%d: /new is answered with %d", i, got.Status)
		}
	}
	if n := o.fetches("http"); n != 2 {
		t.Errorf("robots.txt was fetched %d times, want once more after the purge", n)
	}

	get(t, f.replicas[0].client(t, false), o.url("http", "/busy"))
	for i, p := range f.replicas {
		client := p.client(t, false)
		all.Go(func() {
			if got := get(t, client, o.url("http", fmt.Sprintf("/page?%d", i))); got.Status != http.StatusOK {
				t.Errorf("r%d: %v", i, got)
			}
		})
	}
	all.Wait()
	var told time.Time
	for _, h := range o.pages("http") {
		if h.Path == "/busy" {
			told = h.At
		} else if !told.IsZero() && h.At.Sub(told) < 3*time.Second {
			t.Errorf("%s arrived %v after the site wanted to be left alone for 3 s", h.Path, h.At.Sub(told))
		}
	}
}

// How many requests a host has at once is the fleet's, and what a replica held that has
// died is free after a while.
func TestFleetKeepsOneMaxConcurrent(t *testing.T) {
	t.Parallel()
	const most, clients = 2, 4
	var mu sync.Mutex // guards what follows
	now, peak := 0, 0
	release := make(chan struct{})
	o := newOrigin(t, "places", "")
	o.handle("/page", func(http.ResponseWriter, *http.Request) {
		mu.Lock()
		now++
		peak = max(peak, now)
		mu.Unlock()
		<-time.After(50 * time.Millisecond)
		mu.Lock()
		now--
		mu.Unlock()
	})
	o.handle("/held", heldPage("application/octet-stream", "first\n", "second\n", release))
	defer close(release)
	f := startFleet(t, redistest.Start(t), 3, outOfTheWay.with(settings{"pace.max_concurrent": most, "pace.adaptive": false}))
	f.awaitStore(t, 1, patience)
	var all sync.WaitGroup
	for i, p := range f.replicas {
		for n := range clients {
			client := p.client(t, false)
			all.Go(func() {
				for k := range 5 {
					if got := get(t, client, o.url("http", fmt.Sprintf("/page?%d.%d.%d", i, n, k))); got.Status != http.StatusOK {
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

	dies, lives := f.replicas[2], f.replicas[0].client(t, false)
	for range most {
		inFlight(t, dies, o, "http", false)
	}
	dies.wantCode = 128 + 9
	dies.cmd.Process.Kill()
	<-dies.exited
	began := time.Now()
	if got := get(t, lives, o.url("http", "/page")); got.Status != http.StatusOK {
		t.Errorf("after a replica has died: %v", got)
	}
	if took := time.Since(began); took < time.Second || took > 15*time.Second {
		t.Errorf("its places were free after %v, want about ten seconds", took)
	}
}

// The audits of a fleet are read together.
func TestFleetAuditsAreReadTogether(t *testing.T) {
	t.Parallel()
	o := newOrigin(t, "audits", "User-agent: *\nDisallow: /private\n")
	o.handle("/page", textPage("text/plain", "a"))
	f := startFleet(t, redistest.Start(t), 3, outOfTheWay)
	var files []string
	for _, p := range f.replicas {
		client := p.client(t, false)
		get(t, client, o.url("http", "/page"))
		get(t, client, o.url("http", "/private"))
		awaitRecord(t, p.audit, o.url("http", "/private"))
		files = append(files, p.audit)
	}
	command(t, append([]string{"audit", "verify"}, files...)...).want(t, 0)
	report := command(t, append([]string{"audit", "report", "--format", "csv"}, files...)...).want(t, 0).stdout
	for _, name := range []string{"r0", "r1", "r2"} {
		if !strings.Contains(report, name) {
			t.Errorf("the report does not speak of %s:\n%s", name, report)
		}
	}
}
