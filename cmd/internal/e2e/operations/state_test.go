package operations

import (
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"robotsproxy/cmd/internal/e2e"
	"robotsproxy/robots/testkit"
)

// robotsFetches returns how often the origin's robots.txt was requested.
func robotsFetches(o *e2e.Origin) int { return len(o.Arrivals("http")) - len(o.Pages("http")) }

// awaitKept waits until the file contains the origin's robots.txt, committed.
func awaitKept(t testing.TB, p *e2e.Proxy, o *e2e.Origin) {
	t.Helper()
	e2e.AwaitState(t, p, "robots", "robotsproxy http://"+o.Hostport("http"))
}

// visitBoth requests an allowed and a disallowed page, both with a query, and checks that
// their records are based on the same robots.txt.
func visitBoth(t testing.TB, p *e2e.Proxy, o *e2e.Origin, query string) (fetched string) {
	t.Helper()
	client := p.Client(t, false)
	if got := e2e.Get(t, client, o.URL("http", "/a?"+query)); got.Status != http.StatusOK {
		t.Errorf("%v\n%s", got, got.Body)
	}
	e2e.WantOwn(t, e2e.Get(t, client, o.URL("http", "/private/x?"+query)), http.StatusForbidden, "http_request_denied")
	r := e2e.OnlyRecord(t, p.Audit, o.URL("http", "/private/x?"+query))
	e2e.WantBlocked(t, r, "rule", http.StatusForbidden)
	e2e.WantFile(t, r, o, "http", e2e.SlowRobots)
	if r := e2e.AwaitRecord(t, p.Audit, o.URL("http", "/a?"+query)); r.Decision != "allow" {
		t.Errorf("%+v", r)
	}
	return r.RobotsFetched
}

func newVisited(t testing.TB, label string) *e2e.Origin {
	t.Helper()
	o := e2e.NewOrigin(t, label, e2e.SlowRobots)
	o.Handle("/a", e2e.TextPage("text/plain", "a"))
	return o
}

// A restart fetches no fresh file again, however the process ended, and does not retry a
// failing origin sooner.
func TestRestartFetchesNothingFresh(t *testing.T) {
	testkit.Long(t, "real clock")
	t.Parallel()
	for name, end := range map[string]func(t *testing.T, p *e2e.Proxy, origins ...*e2e.Origin){
		"SIGTERM": func(t *testing.T, p *e2e.Proxy, _ ...*e2e.Origin) { p.End(t) },
		"kill -9": func(t *testing.T, p *e2e.Proxy, origins ...*e2e.Origin) {
			for _, o := range origins {
				awaitKept(t, p, o)
			}
			p.Signal(t, syscall.SIGKILL)
			testkit.Within(t, "serve ends", p.Exited)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o, none, failing := newVisited(t, "restart"), e2e.NewOrigin(t, "restart-none", ""), e2e.NewOrigin(t, "restart-fails", "")
			none.Handle("/a", e2e.TextPage("text/plain", "a"))
			none.Handle("/robots.txt", http.NotFound)
			failing.Handle("/robots.txt", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) })
			p := e2e.StartProxy(t, e2e.Unpaced.With(e2e.Settings{"robots.unreachable_retry": "5m"}))
			var first string
			for i := range 3 {
				fetched := visitBoth(t, p, o, strconv.Itoa(i))
				if i == 0 {
					first = fetched
				}
				if fetched != first {
					t.Errorf("start %d: robots.txt is said to be fetched %s, first %s", i, fetched, first)
				}
				if got := e2e.Get(t, p.Client(t, false), none.URL("http", "/a?"+strconv.Itoa(i))); got.Status != http.StatusOK {
					t.Errorf("start %d: %v", i, got)
				}
				e2e.WantOwn(t, e2e.Get(t, p.Client(t, false), failing.URL("http", "/a?"+strconv.Itoa(i))), http.StatusForbidden, "http_request_denied")
				e2e.WantBlocked(t, e2e.OnlyRecord(t, p.Audit, failing.URL("http", "/a?"+strconv.Itoa(i))), "unreachable", http.StatusForbidden)
				end(t, p, o, none, failing)
				p = p.Again(t)
			}
			for _, o := range []*e2e.Origin{o, none, failing} {
				if n := robotsFetches(o); n != 1 {
					t.Errorf("%s: robots.txt was fetched %d times, want once", o.Name, n)
				}
			}
			if strings.Contains(p.Stderr.String(), "set aside") {
				t.Errorf("the log:\n%s", p.Stderr)
			}
		})
	}
}

// A damaged state.db is renamed, the proxy logs that and continues.
func TestDamagedState(t *testing.T) {
	testkit.Long(t, "real clock")
	t.Parallel()
	for name, spoil := range map[string]func(t *testing.T, file string, data []byte){
		"noise": func(t *testing.T, file string, data []byte) {
			e2e.WriteFile(t, file, strings.Repeat("x", len(data)))
		},
		"cut": func(t *testing.T, file string, data []byte) {
			e2e.WriteFile(t, file, string(data[:len(data)/2]))
		},
		"no file": func(t *testing.T, file string, _ []byte) { os.Remove(file); os.Mkdir(file, 0o700) },
		"its pages": func(t *testing.T, file string, data []byte) {
			clear(data[8192:])
			e2e.WriteFile(t, file, string(data))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := newVisited(t, "damaged")
			p := e2e.StartProxy(t, e2e.Unpaced)
			visitBoth(t, p, o, "before")
			p.End(t)
			data, err := os.ReadFile(p.StateDB())
			if err != nil {
				t.Fatal(err)
			}
			spoil(t, p.StateDB(), data)
			for i, fetches := range []int{2, 2} {
				p = p.Again(t)
				visitBoth(t, p, o, strconv.Itoa(i))
				if n := robotsFetches(o); n != fetches {
					t.Errorf("start %d: robots.txt was fetched %d times, want %d", i, n, fetches)
				}
				if said := strings.Contains(p.Stderr.String(), "set aside"); said != (i == 0) {
					t.Errorf("start %d: the log:\n%s", i, p.Stderr)
				}
				p.End(t)
			}
			if aside, err := filepath.Glob(p.StateDB() + ".damaged-*"); err != nil || len(aside) != 1 {
				t.Errorf("set aside: %v, %v", aside, err)
			}
		})
	}
}

// state.db is emptied while a proxy has it mapped: no request fails.
func TestStateEmptiedWhileServing(t *testing.T) {
	t.Parallel()
	o := newVisited(t, "emptied")
	p := e2e.StartProxy(t, e2e.Unpaced)
	visitBoth(t, p, o, "before")
	awaitKept(t, p, o)
	if err := os.Truncate(p.StateDB(), 0); err != nil {
		t.Fatal(err)
	}
	other := newVisited(t, "emptied")
	visitBoth(t, p, other, "after")
	testkit.Eventually(t, "it is set aside", func() bool { return strings.Contains(p.Stderr.String(), "set aside") })
	visitBoth(t, p, o, "after")
	p.End(t)
	p = p.Again(t)
	visitBoth(t, p, other, "again")
	if n := robotsFetches(other); n != 1 {
		t.Errorf("robots.txt was fetched %d times, want once", n)
	}
}

// A second serve with the same state directory reports the conflict. A run works.
func TestSecondServe(t *testing.T) {
	t.Parallel()
	o := newVisited(t, "second")
	p := e2e.StartProxy(t, e2e.Unpaced)
	visitBoth(t, p, o, "first")
	h := e2e.NewSetup(t, e2e.Unpaced.With(e2e.Settings{"state_dir": p.State, "audit.file": filepath.Join(t.TempDir(), "audit.jsonl")}))
	out := e2e.Command(t, "serve", "-c", h.Config).Want(t, 1)
	want := "robotsproxy: state directory " + p.State + ": in use by another robotsproxy (" + p.StateDB() + " is locked): stop it, or choose another directory with --state or state_dir\n"
	if out.Stderr != want {
		t.Errorf("it says %q, want %q", out.Stderr, want)
	}
	e2e.Command(t, h.RunArgs("true")...).Want(t, 0)
	visitBoth(t, p, o, "second")
	if n := robotsFetches(o); n != 1 {
		t.Errorf("robots.txt was fetched %d times, want once", n)
	}
	p.End(t)
	p.Again(t)
}
