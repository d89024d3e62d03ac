package robotstxt

import (
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"robotsproxy/cmd/internal/e2e"
	"robotsproxy/robots/testkit"
)

// A crawl runs curl behind runs of one state directory.
type crawl struct {
	*e2e.Setup
	curl  string
	flags []string // of run
}

func newCrawl(t *testing.T, own e2e.Settings, flags ...string) *crawl {
	curl := e2e.NeedPeer(t, "curl")
	return &crawl{e2e.NewSetup(t, e2e.Unpaced.With(own)), curl, flags}
}

// args returns the arguments of a run that fetches URLs.
func (c *crawl) args(urls ...string) []string {
	all := append([]string{"run", "-c", c.Config}, c.flags...)
	return append(append(all, "--", c.curl, "-q", "-sS", "-f"), urls...)
}

// run fetches URLs in a run. status is the exit status of curl: 22 after a refusal.
func (c *crawl) run(t *testing.T, status int, urls ...string) {
	t.Helper()
	e2e.Command(t, c.args(urls...)...).Want(t, status)
}

// fetches counts the fetches of an origin's robots.txt.
func fetches(o *e2e.Origin, scheme string) int { return len(o.Arrivals(scheme)) - len(o.Pages(scheme)) }

func wantFetches(t *testing.T, o *e2e.Origin, scheme string, n int) {
	t.Helper()
	if got := fetches(o, scheme); got != n {
		t.Errorf("%s: robots.txt was fetched %d times, want %d", scheme, got, n)
	}
}

// wantEvidence checks that the audit of the last run has the robots.txt of each decision, and that the decisions can be
// made again.
func (c *crawl) wantEvidence(t *testing.T, text string, urls ...string) {
	t.Helper()
	audit := func(args ...string) string {
		t.Helper()
		return e2e.Command(t, append([]string{"audit", args[0], "--state", c.State, "--run", "last"}, args[1:]...)...).Want(t, 0).Stdout
	}
	if got := audit("verify"); !strings.Contains(got, "robots  1 snapshot unchanged\n") {
		t.Errorf("audit verify:\n%s", got)
	}
	if got := audit("snapshot", e2e.Digest([]byte(text))); got != text {
		t.Errorf("the snapshot is %q", got)
	}
	runs, err := filepath.Glob(filepath.Join(c.State, "runs", "*", "audit.jsonl"))
	testkit.Must(t, err)
	records := e2e.ReadAudit(t, slices.Max(runs))
	if len(records) != len(urls) {
		t.Fatalf("%d records, want %d", len(records), len(urls))
	}
	for _, r := range records {
		if r.RobotsSHA256 != e2e.Digest([]byte(text)) || r.RobotsAgent != "curl" || !slices.Contains(urls, r.URL) {
			t.Errorf("record %+v", r)
		}
		if got := audit("explain", r.ID); !strings.Contains(got, "the same") {
			t.Errorf("audit explain:\n%s", got)
		}
	}
}

// TestRunsShareRobotsTxt: of several runs of one state directory, the first one fetches a robots.txt. The audit of the last
// one is complete.
func TestRunsShareRobotsTxt(t *testing.T) {
	t.Parallel()
	testkit.AwayFromMidnight()
	for _, flags := range [][]string{nil, {"--confine"}} {
		t.Run(strings.Join(append(flags, "runs"), " "), func(t *testing.T) {
			t.Parallel()
			if flags != nil {
				e2e.NeedConfinement(t)
			}
			const text = "User-agent: *\nDisallow: /private/\n"
			o := e2e.NewOrigin(t, "shared", text)
			o.Handle("/a", e2e.TextPage("text/plain", "a"))
			c := newCrawl(t, nil, flags...)
			urls := []string{o.URL("http", "/a"), o.URL("https", "/a"), o.URL("http", "/private/a"), o.URL("https", "/private/a")}
			const runs = 5
			for range runs {
				c.run(t, 22, urls...)
			}
			c.wantEvidence(t, text, urls...)
			for _, scheme := range e2e.Schemes {
				e2e.WantPolite(t, o, scheme, runs, 0)
			}
		})
	}
}

// TestRunsShareTDMRep: the same holds for a tdmrep.json.
func TestRunsShareTDMRep(t *testing.T) {
	t.Parallel()
	testkit.AwayFromMidnight()
	const path = "/.well-known/tdmrep.json"
	o := e2e.NewOrigin(t, "sharedtdm", "User-agent: *\nDisallow: /private/\n")
	o.Handle("/a", e2e.TextPage("text/plain", "a"))
	o.Handle(path, e2e.TextPage("application/json", `[{"location": "/", "tdm-reservation": 1}]`))
	c := newCrawl(t, e2e.Settings{"usage.tdmrep": true, "usage.purposes": []string{"tdm"}})
	for range 3 {
		c.run(t, 0, o.URL("http", "/a"))
		got := e2e.Command(t, "audit", "verify", "--state", c.State, "--run", "last").Want(t, 0).Stdout
		if !strings.Contains(got, "tdmrep  1 snapshot unchanged\n") {
			t.Errorf("audit verify:\n%s", got)
		}
	}
	fetched := slices.DeleteFunc(o.Arrivals("http"), func(h e2e.Hit) bool { return h.Path != path })
	if len(fetched) != 1 || len(o.Pages("http")) != 4 {
		t.Errorf("tdmrep.json was fetched %d times, and %d pages", len(fetched), len(o.Pages("http"))-len(fetched))
	}
}

// TestRunsAtOnce: runs that begin at once may each fetch a robots.txt, and later ones do not.
func TestRunsAtOnce(t *testing.T) {
	t.Parallel()
	o := e2e.NewOrigin(t, "atonce", "User-agent: *\nDisallow: /private/\n")
	o.Handle("/a", e2e.TextPage("text/plain", "a"))
	c := newCrawl(t, nil)
	const runs = 6
	var all sync.WaitGroup
	for range runs {
		cmd := e2e.Prepare(t, c.args(o.URL("http", "/a"))...)
		all.Go(func() {
			if out := e2e.Finish(t, cmd); out.Code != 0 {
				t.Errorf("status %d: %s", out.Code, out.Stderr)
			}
		})
	}
	all.Wait()
	if n := fetches(o, "http"); n < 1 || n > runs {
		t.Errorf("%d fetches", n)
	}
	before := fetches(o, "http")
	c.run(t, 0, o.URL("http", "/a"))
	wantFetches(t, o, "http", before)
}

// TestRunsApart: a copy serves neither another User-Agent nor another state directory.
func TestRunsApart(t *testing.T) {
	t.Parallel()
	o := e2e.NewOrigin(t, "apart", "User-agent: *\nDisallow: /private/\n")
	o.Handle("/a", e2e.TextPage("text/plain", "a"))
	c := newCrawl(t, nil)
	for i, flags := range [][]string{nil, {"-A", "FooBot/1.0"}, {"-A", "BarBot/1.0"}, {"--state", t.TempDir()}} {
		c.flags = flags
		for range 2 {
			c.run(t, 0, o.URL("http", "/a"))
			wantFetches(t, o, "http", i+1)
		}
	}
	c.flags = []string{"-A", "FooBot/2.0"} // the same crawler
	c.run(t, 0, o.URL("http", "/a"))
	wantFetches(t, o, "http", 4)
}

// TestRunsWithOtherTimes: each run applies its own robots.max_age.
func TestRunsWithOtherTimes(t *testing.T) {
	testkit.Long(t, "the real clock")
	t.Parallel()
	o := e2e.NewOrigin(t, "times", "User-agent: *\nDisallow: /private/\n")
	o.Handle("/a", e2e.TextPage("text/plain", "a"))
	c := newCrawl(t, nil)
	second := newCrawl(t, e2e.Settings{"state_dir": c.State, "robots.max_age": "1s", "robots.min_age": "1s"})
	for _, scheme := range e2e.Schemes {
		second.run(t, 0, o.URL(scheme, "/a"))
		<-time.After(time.Second)
		c.run(t, 0, o.URL(scheme, "/a"))
		wantFetches(t, o, scheme, 1)
		second.run(t, 0, o.URL(scheme, "/a"))
		wantFetches(t, o, scheme, 2)
	}
}

// TestRunsAfterAFailure: a failed fetch is retried when its time has come, also by another run; at once if there was no
// connection, since this run may connect in another way.
func TestRunsAfterAFailure(t *testing.T) {
	testkit.Long(t, "the real clock")
	t.Parallel()
	o := e2e.NewOrigin(t, "failing", "")
	o.Handle("/robots.txt", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) })
	o.Handle("/a", e2e.TextPage("text/plain", "a"))
	c := newCrawl(t, nil)
	distrusting := newCrawl(t, e2e.Settings{"state_dir": c.State, "egress.extra_ca": nil})
	distrusting.run(t, 22, o.URL("https", "/a"))
	wantFetches(t, o, "https", 0)
	c.run(t, 22, o.URL("https", "/a"))
	c.run(t, 22, o.URL("https", "/a"))
	wantFetches(t, o, "https", 1)

	hasty := newCrawl(t, e2e.Settings{"state_dir": c.State, "robots.unreachable_retry": "1s"})
	hasty.run(t, 22, o.URL("http", "/a"))
	o.Handle("/robots.txt", e2e.TextPage("text/plain", "User-agent: *\nDisallow: /private/\n"))
	<-time.After(time.Second)
	c.run(t, 0, o.URL("http", "/a"))
	wantFetches(t, o, "http", 2)
}

// TestRunKilled: a run that is killed leaves what it has fetched.
func TestRunKilled(t *testing.T) {
	t.Parallel()
	o := e2e.NewOrigin(t, "killed", "User-agent: *\nDisallow: /private/\n")
	o.Handle("/a", e2e.TextPage("text/plain", "a"))
	c := newCrawl(t, nil)
	cmd := e2e.Prepare(t, c.RunArgs("sh", "-c", `"$0" -q -sS "$1"; exec sleep 60`, c.curl, o.URL("http", "/a"))...)
	testkit.StartGroup(t, cmd)
	testkit.Eventually(t, "the copy is written", func() bool {
		copies, err := filepath.Glob(filepath.Join(c.State, "robots", "*", "*.entry"))
		return err == nil && len(copies) == 1
	})
	testkit.Must(t, cmd.Process.Kill())
	_ = cmd.Wait() // says that it was killed
	c.run(t, 0, o.URL("http", "/a"))
	wantFetches(t, o, "http", 1)
}

// TestRunsOnAFullDisk: what the disk does not take is not kept, and hinders nothing.
func TestRunsOnAFullDisk(t *testing.T) {
	t.Parallel()
	o := e2e.NewOrigin(t, "full", "User-agent: *\nDisallow: /private/\n")
	o.Handle("/a", e2e.TextPage("text/plain", "a"))
	c := newCrawl(t, nil)
	disk := filepath.Join(c.State, "robots")
	testkit.Must(t, os.MkdirAll(disk, 0o700))
	e2e.MountSmallDisk(t, disk, "64k")
	ballast := e2e.Fill(t, disk)
	for n := range 2 {
		c.run(t, 0, o.URL("http", "/a"))
		wantFetches(t, o, "http", n+1)
	}
	logs, err := filepath.Glob(filepath.Join(c.State, "runs", "*", "proxy.log"))
	testkit.Must(t, err)
	for _, log := range logs {
		if text := e2e.ReadText(t, log); strings.Count(text, "fetched file not kept") != 1 {
			t.Errorf("the log says:\n%s", text)
		}
	}
	if left, err := filepath.Glob(filepath.Join(disk, "*", "*")); err != nil || len(left) > 0 {
		t.Errorf("half written files are left: %v, %v", left, err)
	}
	testkit.Must(t, os.Remove(ballast))
	for range 2 {
		c.run(t, 0, o.URL("http", "/a"))
		wantFetches(t, o, "http", 3)
	}
}
