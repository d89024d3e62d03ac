package e2e

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.etcd.io/bbolt"
)

func (p *proxy) stateDB() string { return filepath.Join(p.state, "state.db") }

// again starts serve anew on the state and configuration of p, which has ended.
func (p *proxy) again(t testing.TB) *proxy {
	t.Helper()
	next := launch(t, p.house)
	next.awaitReady(t)
	next.ca = p.ca
	t.Cleanup(func() { next.end(t) })
	return next
}

// robotsFetches is how often the origin was asked for its robots.txt.
func robotsFetches(o *origin) int { return len(o.arrivals("http")) - len(o.pages("http")) }

// awaitKept waits until the file has the origin's robots.txt, committed.
func awaitKept(t testing.TB, p *proxy, o *origin) {
	t.Helper()
	awaitState(t, p, "robots", "http://"+o.hostport("http"))
}

// awaitState waits until the file has the key: nothing says so from without, so
// copies are looked into.
func awaitState(t testing.TB, p *proxy, bucket, key string) {
	t.Helper()
	copied := filepath.Join(t.TempDir(), "copy.db")
	eventually(t, patience, "state.db has "+key, func() bool {
		octets, err := os.ReadFile(p.stateDB())
		if err != nil || len(octets) == 0 {
			return false
		}
		writeFile(t, copied, string(octets))
		db, err := bbolt.Open(copied, 0o600, &bbolt.Options{ReadOnly: true, Timeout: time.Second})
		if err != nil {
			return false // copied while it was written to
		}
		defer db.Close()
		kept := false
		if err := db.View(func(tx *bbolt.Tx) error {
			b := tx.Bucket([]byte(bucket))
			kept = b != nil && b.Get([]byte(key)) != nil
			return nil
		}); err != nil {
			t.Error(err)
		}
		return kept
	})
}

// visitBoth asks for an allowed and for a forbidden page, both with a query, and
// holds their records against the one robots.txt.
func visitBoth(t testing.TB, p *proxy, o *origin, query string) (fetched string) {
	t.Helper()
	client := p.client(t, false)
	if got := get(t, client, o.url("http", "/a?"+query)); got.Status != http.StatusOK {
		t.Errorf("%v\n%s", got, got.Body)
	}
	wantOwn(t, get(t, client, o.url("http", "/private/x?"+query)), http.StatusForbidden, "http_request_denied")
	r := onlyRecord(t, p.audit, o.url("http", "/private/x?"+query))
	wantBlocked(t, r, "rule", http.StatusForbidden)
	wantFile(t, r, o, "http", slowRobots)
	if r := awaitRecord(t, p.audit, o.url("http", "/a?"+query)); r.Decision != "allow" {
		t.Errorf("%+v", r)
	}
	return r.RobotsFetched
}

func newVisited(t testing.TB, label string) *origin {
	t.Helper()
	o := newOrigin(t, label, slowRobots)
	o.handle("/a", textPage("text/plain", "a"))
	return o
}

// What is fresh is not fetched anew after a restart, however the process ended;
// and an origin that fails is not tried sooner.
func TestRestartFetchesNothingFresh(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(t *testing.T, p *proxy, origins ...*origin){
		"SIGTERM": func(t *testing.T, p *proxy, _ ...*origin) { p.end(t) },
		"kill -9": func(t *testing.T, p *proxy, origins ...*origin) {
			for _, o := range origins {
				awaitKept(t, p, o)
			}
			p.signal(t, syscall.SIGKILL)
			within(t, patience, "serve ends", p.exited)
		},
	} {
		t.Run(name, func(t *testing.T) {
			o, none, failing := newVisited(t, "restart"), newOrigin(t, "restart-none", ""), newOrigin(t, "restart-fails", "")
			none.handle("/a", textPage("text/plain", "a"))
			none.handle("/robots.txt", http.NotFound)
			failing.handle("/robots.txt", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) })
			p := startProxy(t, outOfTheWay.with(settings{"robots.unreachable_retry": "5m"}))
			var first string
			for i := range 3 {
				fetched := visitBoth(t, p, o, itoa(i))
				if i == 0 {
					first = fetched
				}
				if fetched != first {
					t.Errorf("start %d: robots.txt is said to be fetched %s, first %s", i, fetched, first)
				}
				if got := get(t, p.client(t, false), none.url("http", "/a?"+itoa(i))); got.Status != http.StatusOK {
					t.Errorf("start %d: %v", i, got)
				}
				wantOwn(t, get(t, p.client(t, false), failing.url("http", "/a?"+itoa(i))), http.StatusForbidden, "http_request_denied")
				wantBlocked(t, onlyRecord(t, p.audit, failing.url("http", "/a?"+itoa(i))), "unreachable", http.StatusForbidden)
				end(t, p, o, none, failing)
				p = p.again(t)
			}
			for _, o := range []*origin{o, none, failing} {
				if n := robotsFetches(o); n != 1 {
					t.Errorf("%s: robots.txt was fetched %d times, want once", o.Name, n)
				}
			}
			if strings.Contains(p.stderr.String(), "set aside") {
				t.Errorf("the log:\n%s", p.stderr)
			}
		})
	}
}

// A state.db that is damaged is set aside, which is said, and all goes on.
func TestDamagedState(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(t *testing.T, file string, octets []byte){
		"noise":   func(t *testing.T, file string, octets []byte) { writeFile(t, file, strings.Repeat("x", len(octets))) },
		"cut":     func(t *testing.T, file string, octets []byte) { writeFile(t, file, string(octets[:len(octets)/2])) },
		"no file": func(t *testing.T, file string, _ []byte) { os.Remove(file); os.Mkdir(file, 0o700) },
		"its pages": func(t *testing.T, file string, octets []byte) {
			clear(octets[8192:])
			writeFile(t, file, string(octets))
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := newVisited(t, "damaged")
			p := startProxy(t, outOfTheWay)
			visitBoth(t, p, o, "before")
			p.end(t)
			octets, err := os.ReadFile(p.stateDB())
			if err != nil {
				t.Fatal(err)
			}
			spoil(t, p.stateDB(), octets)
			for i, fetches := range []int{2, 2} {
				p = p.again(t)
				visitBoth(t, p, o, itoa(i))
				if n := robotsFetches(o); n != fetches {
					t.Errorf("start %d: robots.txt was fetched %d times, want %d", i, n, fetches)
				}
				if said := strings.Contains(p.stderr.String(), "set aside"); said != (i == 0) {
					t.Errorf("start %d: the log:\n%s", i, p.stderr)
				}
				p.end(t)
			}
			if aside, err := filepath.Glob(p.stateDB() + ".damaged-*"); err != nil || len(aside) != 1 {
				t.Errorf("set aside: %v, %v", aside, err)
			}
		})
	}
}

// It is emptied under a proxy that has it mapped: no request notices.
func TestStateEmptiedWhileServing(t *testing.T) {
	t.Parallel()
	o := newVisited(t, "emptied")
	p := startProxy(t, outOfTheWay)
	visitBoth(t, p, o, "before")
	awaitKept(t, p, o)
	if err := os.Truncate(p.stateDB(), 0); err != nil {
		t.Fatal(err)
	}
	other := newVisited(t, "emptied")
	visitBoth(t, p, other, "after")
	eventually(t, patience, "it is set aside", func() bool { return strings.Contains(p.stderr.String(), "set aside") })
	visitBoth(t, p, o, "after")
	p.end(t)
	p = p.again(t)
	visitBoth(t, p, other, "again")
	if n := robotsFetches(other); n != 1 {
		t.Errorf("robots.txt was fetched %d times, want once", n)
	}
}

// A second serve in the same state directory says what is wrong, and a run does
// not mind.
func TestSecondServe(t *testing.T) {
	t.Parallel()
	o := newVisited(t, "second")
	p := startProxy(t, outOfTheWay)
	visitBoth(t, p, o, "first")
	h := newHouse(t, outOfTheWay.with(settings{"state_dir": p.state, "audit.file": filepath.Join(t.TempDir(), "audit.jsonl")}))
	out := command(t, "serve", "-c", h.config).want(t, 1)
	want := "robotsproxy: state directory " + p.state + ": another robotsproxy serves from it (" + p.stateDB() + " is locked)\n"
	if out.stderr != want {
		t.Errorf("it says %q, want %q", out.stderr, want)
	}
	command(t, h.runArgs("true")...).want(t, 0)
	visitBoth(t, p, o, "second")
	if n := robotsFetches(o); n != 1 {
		t.Errorf("robots.txt was fetched %d times, want once", n)
	}
	p.end(t)
	p.again(t)
}
