package redis

import (
	"bytes"
	"context"
	"flag"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"robotsproxy/cmd/internal/redis/redistest"
	"robotsproxy/policy/pace"
	"robotsproxy/policy/pace/storetest"
	"robotsproxy/robots/testkit"
)

// Tests wait for their own servers and use little processor time.
func TestMain(m *testing.M) {
	flag.Set("test.parallel", "24") // unless -parallel says otherwise
	goleak.VerifyTestMain(m)
}

// A replica is a running Fleet, with the calls of its Hooks and its log.
type replica struct {
	*Fleet
	log *lines

	checks atomic.Int64 // calls of Recheck

	mu     sync.Mutex // guards the fields below
	clocks []pace.Clock
	pauses map[string]pace.BackOff
}

// lines is a log buffer.
type lines struct {
	mu  sync.Mutex // guards buf
	buf bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// An opener is Open or a substitute.
type opener func(Options) (*Fleet, error)

// stillTime is how long a call may take by [forStill].
const stillTime = 3 * time.Second

// patient is for tests whose server does not hang. A pause of the machine for a second or
// two must not count as an outage.
func patient(o Options) (*Fleet, error) { return open(o, 10*time.Second, 10*time.Second) }

// forStill is for tests whose server hangs.
func forStill(o Options) (*Fleet, error) { return open(o, stillTime, stillTime*2/3) }

// run opens a Fleet that tolerates pauses and runs it until the test ends.
func run(t testing.TB, url string, replicas int) *replica {
	t.Helper()
	return runBy(t, patient, url, replicas)
}

func runBy(t testing.TB, open opener, url string, replicas int) *replica {
	t.Helper()
	r, stop := startBy(t, open, url, replicas)
	t.Cleanup(stop)
	return r
}

// start is run with a function that stops it.
func start(t testing.TB, url string, replicas int) (r *replica, stop func()) {
	t.Helper()
	return startBy(t, patient, url, replicas)
}

func startBy(t testing.TB, open opener, url string, replicas int) (r *replica, stop func()) {
	t.Helper()
	return startWith(t, open, url, replicas, Hooks{})
}

// startWith is startBy with the optional ones of the hooks.
func startWith(t testing.TB, open opener, url string, replicas int, h Hooks) (r *replica, stop func()) {
	t.Helper()
	r = &replica{log: &lines{}}
	var err error
	r.Fleet, err = open(Options{URL: url, Replicas: replicas, Log: slog.New(slog.NewTextHandler(r.log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	h.Clocks, h.Recheck, h.BackOff = r.sent, r.recheck, r.pause
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx, h) }()
	return r, sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
		r.Close()
	})
}

func (r *replica) sent(_, since time.Time) []pace.Clock {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []pace.Clock
	for _, c := range r.clocks {
		if since.IsZero() || !c.Sent.Before(since) {
			all = append(all, c)
		}
	}
	return all
}

func (r *replica) pause(key string, b pace.BackOff) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.pauses == nil {
		r.pauses = make(map[string]pace.BackOff)
	}
	r.pauses[key] = b
}

func (r *replica) recheck() { r.checks.Add(1) }

// together waits until each replica sees the given number of others.
func together(t testing.TB, all ...*replica) {
	t.Helper()
	testkit.Eventually(t, "all share", func() bool {
		for _, r := range all {
			if s := r.Stats(); s.StoreAway || s.Replicas != len(all) {
				return false
			}
		}
		return true
	})
}

// settled empties a server and marks it as shared, so that no replica waits for reports
// of others.
func settled(t testing.TB, url string) {
	t.Helper()
	c := client(t, url)
	if err := c.FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	if err := c.Set(t.Context(), epochKey, "before", 0).Err(); err != nil {
		t.Fatal(err)
	}
	if err := c.ZAdd(t.Context(), replicasKey, redis.Z{Score: 1, Member: "before"}).Err(); err != nil {
		t.Fatal(err)
	}
}

// client returns a separate connection of the test.
func client(t testing.TB, url string) *redis.Client {
	t.Helper()
	o, err := redis.ParseURL(url)
	if err != nil {
		t.Fatal(err)
	}
	c := redis.NewClient(o)
	t.Cleanup(func() { c.Close() })
	return c
}

// sharing returns a function that gives a test the stores of three replicas, which share
// the server at the URL and have no state.
func sharing(t *testing.T, url string) func(*testing.T, int) []pace.Store {
	settled(t, url)
	all := []*replica{run(t, url, 3), run(t, url, 3), run(t, url, 3)}
	together(t, all...)
	admin := client(t, url)
	return func(t *testing.T, n int) []pace.Store {
		if n != len(all) {
			t.Fatalf("%d replicas are asked for", n)
		}
		var stores []pace.Store
		for _, r := range all {
			r.held.all.Clear()
			r.counts.usually.mean.Store(0)
			r.counts.usually.spread.Store(0)
			// After everything that the previous test has reported:
			r.Report(pace.Report{Key: r.id, BackOff: pace.BackOff{Until: time.Now().Add(time.Minute)}})
			testkit.Eventually(t, "all is told", func() bool { return admin.Exists(t.Context(), paceKey(r.id)).Val() == 1 })
			stores = append(stores, r)
		}
		for _, kind := range []string{"pace:", "places:", "clock:"} {
			keys, err := admin.Keys(t.Context(), keyPrefix+kind+"*").Result()
			if err != nil {
				t.Fatal(err)
			}
			if len(keys) > 0 {
				admin.Del(t.Context(), keys...)
			}
		}
		return stores
	}
}

func TestStoreOnServers(t *testing.T) {
	t.Parallel()
	for _, bin := range redistest.Binaries(t) {
		t.Run(bin[strings.LastIndexByte(bin, '/')+1:], func(t *testing.T) {
			s := redistest.StartBinary(t, bin)
			storetest.Store(t, sharing(t, s.URL()))
		})
	}
}

// TestStoreOnMiniredis needs the processors for itself, because it runs the scripts in
// this process.
func TestStoreOnMiniredis(t *testing.T) {
	s := miniredis.RunT(t)
	storetest.Store(t, sharing(t, "redis://"+s.Addr()))
}
