package redis

import (
	"context"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"robotsproxy/cmd/internal/redis/redistest"
	"robotsproxy/policy/pace"
	"robotsproxy/robots/testkit"
)

// load sends requests at each replica until the test ends. A replica that gets an error
// must report itself as alone.
func load(t *testing.T, all ...*replica) {
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	for _, r := range all {
		for i := range 8 {
			wg.Go(func() {
				a := benchAsk("host" + string(rune('a'+i)) + ".test")
				a.MaxWait = time.Millisecond
				for ctx.Err() == nil {
					if r.Standing().StoreAway {
						<-time.After(time.Millisecond)
						continue
					}
					turn, err := r.Reserve(ctx, a)
					if err != nil && ctx.Err() == nil && !r.Standing().StoreAway {
						t.Errorf("Reserve: %v, and not alone", err)
					}
					r.Report(pace.Report{Key: a.Key, Lease: turn.Lease})
					<-time.After(2 * time.Millisecond)
				}
			})
		}
	}
	t.Cleanup(func() { cancel(); wg.Wait() })
}

// goesAlone fails unless each replica becomes alone with its share of the rate and for
// that cause, and logs so once.
func goesAlone(t *testing.T, cause Cause, all ...*replica) {
	t.Helper()
	for _, r := range all {
		began := time.Now()
		testkit.Eventually(t, "alone", func() bool { return r.Standing().StoreAway })
		t.Logf("alone after %v", time.Since(began))
		if s := r.Standing(); s.Slowdown != float64(r.replicas) || s.Since.IsZero() {
			t.Errorf("Standing = %+v", s)
		}
		testkit.Eventually(t, "the cause is "+cause.String(), func() bool { return r.Stats().Cause == cause })
		testkit.Eventually(t, "logged", func() bool { return strings.Contains(r.log.String(), cause.String()) })
		if n := strings.Count(r.log.String(), `cause="`+cause.String()); n != 1 {
			t.Errorf("logged %d times: %s", n, r.log)
		}
	}
}

// comesBack fails unless each replica shares the rate again by itself.
func comesBack(t *testing.T, all ...*replica) {
	t.Helper()
	began := time.Now()
	together(t, all...)
	t.Logf("back after %v", time.Since(began))
	for _, r := range all {
		if s := r.Standing(); s.Slowdown != 1 || !s.Since.IsZero() {
			t.Errorf("Standing = %+v", s)
		}
		testkit.Eventually(t, "logged", func() bool { return strings.Count(r.log.String(), "store connected") == 2 })
		if _, err := r.Reserve(t.Context(), benchAsk("fresh.test")); err != nil {
			t.Errorf("Reserve: %v", err)
		}
	}
}

// fleet runs three replicas at the URL that tolerate pauses under load.
func fleet(t *testing.T, s *redistest.Server, url string) []*replica {
	t.Helper()
	return fleetBy(t, patient, s, url)
}

func fleetBy(t *testing.T, open opener, s *redistest.Server, url string) []*replica {
	t.Helper()
	settled(t, s.URL())
	all := []*replica{runBy(t, open, url, 3), runBy(t, open, url, 3), runBy(t, open, url, 3)}
	together(t, all...)
	load(t, all...)
	return all
}

func TestServerKilled(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	all := fleet(t, s, s.URL())
	s.Kill()
	goesAlone(t, Refused, all...)
	s.Restart() // and it is empty
	comesBack(t, all...)
}

func TestServerStopped(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	all := fleetBy(t, forStill, s, s.URL())
	s.Stop()
	defer s.Continue()
	goesAlone(t, TimedOut, all...)
	s.Continue()
	comesBack(t, all...)
}

// BenchmarkAlone measures how soon a replica is alone when its store is stopped or hangs.
func BenchmarkAlone(b *testing.B) {
	const promised = 2 * time.Second // docs/fleet.md
	for _, c := range []struct {
		name     string
		open     opener
		end      func(*redistest.Server)
		promised time.Duration
	}{
		{"killed", patient, (*redistest.Server).Kill, promised},
		{"stopped", forStill, (*redistest.Server).Stop, promised - callTime + stillTime}, // forStill waits for stillTime
	} {
		b.Run(c.name, func(b *testing.B) {
			for b.Loop() {
				s := redistest.Start(b)
				r, stop := startBy(b, c.open, s.URL(), 1)
				together(b, r)
				began := time.Now()
				c.end(s)
				testkit.Eventually(b, "alone", func() bool { return r.Standing().StoreAway })
				took := time.Since(began)
				stop()
				s.Kill()
				b.ReportMetric(float64(took.Milliseconds()), "ms-until-alone")
				if took > c.promised {
					b.Errorf("alone after %v, promised is %v", took, c.promised)
				}
			}
		})
	}
}

func TestServerRestarted(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	all := fleet(t, s, s.URL())
	s.Restart()
	for _, r := range all {
		testkit.Eventually(t, "alone", func() bool { return r.Standing().StoreAway })
	}
	comesBack(t, all...)
}

func TestStoreEmptied(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	all := fleet(t, s, s.URL())
	if err := client(t, s.URL()).FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	goesAlone(t, Emptied, all...)
	comesBack(t, all...)
}

func TestStoreEmptiedUnderNoLoad(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	settled(t, s.URL())
	r := run(t, s.URL(), 3)
	together(t, r)
	if err := client(t, s.URL()).FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	goesAlone(t, Emptied, r)
	together(t, r)
}

func TestPasswordWrongAtStart(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, "--requirepass", "right")
	r := run(t, "redis://:wrong@"+s.Addr, 3)
	goesAlone(t, Password, r)
	if strings.Contains(r.log.String(), "wrong@") {
		t.Errorf("the password is in the log: %s", r.log)
	}
	admin := client(t, "redis://:right@"+s.Addr)
	if err := admin.ConfigSet(t.Context(), "requirepass", "wrong").Err(); err != nil {
		t.Fatal(err)
	}
	together(t, r)
}

func TestPasswordChanged(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	all := fleet(t, s, s.URL())
	admin := client(t, s.URL())
	if err := admin.ConfigSet(t.Context(), "requirepass", "new").Err(); err != nil {
		t.Fatal(err)
	}
	if err := admin.Do(t.Context(), "CLIENT", "KILL", "SKIPME", "yes").Err(); err != nil {
		t.Fatal(err)
	}
	goesAlone(t, Password, all...)
	if err := admin.ConfigSet(t.Context(), "requirepass", "").Err(); err != nil {
		t.Fatal(err)
	}
	comesBack(t, all...)
}

func TestAccessListForbids(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	all := fleet(t, s, s.URL())
	admin := client(t, s.URL())
	admin.Do(t.Context(), "ACL", "SETUSER", "admin", "on", "nopass", "~*", "&*", "+@all")
	if err := admin.Do(t.Context(), "AUTH", "admin", "x").Err(); err != nil {
		t.Fatal(err)
	}
	if err := admin.Do(t.Context(), "ACL", "SETUSER", "default", "resetkeys", "~other:*").Err(); err != nil {
		t.Fatal(err)
	}
	goesAlone(t, Forbidden, all...)
	if err := client(t, "redis://admin:x@"+s.Addr).Do(t.Context(), "ACL", "SETUSER", "default", "~*").Err(); err != nil {
		t.Fatal(err)
	}
	comesBack(t, all...)
}

func TestServerFull(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	all := fleet(t, s, s.URL())
	admin := client(t, s.URL())
	if err := admin.ConfigSet(t.Context(), "maxmemory", "1").Err(); err != nil {
		t.Fatal(err)
	}
	goesAlone(t, Full, all...)
	if err := admin.ConfigSet(t.Context(), "maxmemory", "0").Err(); err != nil {
		t.Fatal(err)
	}
	comesBack(t, all...)
}

func TestServerIsAReplica(t *testing.T) {
	t.Parallel()
	s, other := redistest.Start(t), redistest.Start(t)
	all := fleet(t, s, s.URL())
	host, port, _ := net.SplitHostPort(other.Addr)
	admin := client(t, s.URL())
	if err := admin.ReplicaOf(t.Context(), host, port).Err(); err != nil {
		t.Fatal(err)
	}
	goesAlone(t, ReadOnly, all...)
	if err := admin.ReplicaOf(t.Context(), "NO", "ONE").Err(); err != nil {
		t.Fatal(err)
	}
	comesBack(t, all...)
}

// TestServerSlow: a slow server is not unavailable.
func TestServerSlow(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	f := forward(t, s.Addr)
	all := fleet(t, s, "redis://"+f.addr)
	f.delay.Store(int64(80 * time.Millisecond))
	<-time.After(time.Second)
	for _, r := range all {
		if r.Standing().StoreAway || r.Stats().Outages > 0 {
			t.Errorf("alone: %s", r.log)
		}
		turn, err := r.Reserve(t.Context(), benchAsk("slow.test"))
		if err != nil || !turn.Until.After(turn.At) {
			t.Errorf("Reserve = %+v, %v", turn, err)
		}
	}
}

// TestServerTooSlow: a server that exceeds callTime is unavailable.
func TestServerTooSlow(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	f := forward(t, s.Addr)
	all := fleetBy(t, forStill, s, "redis://"+f.addr)
	f.delay.Store(int64(stillTime + time.Second))
	goesAlone(t, TimedOut, all...)
	f.delay.Store(0)
	f.cut()
	comesBack(t, all...)
}

func TestServerFailsOver(t *testing.T) {
	t.Parallel()
	first, second := redistest.Start(t), redistest.Start(t)
	f := forward(t, first.Addr)
	all := fleet(t, first, "redis://"+f.addr)
	admin := client(t, second.URL())
	host, port, _ := net.SplitHostPort(first.Addr)
	if err := admin.ReplicaOf(t.Context(), host, port).Err(); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, "the replica has all", func() bool { return admin.Exists(t.Context(), epochKey).Val() == 1 })
	first.Kill()
	f.to.Store(&second.Addr)
	for _, r := range all {
		testkit.Eventually(t, "alone", func() bool { return r.Standing().StoreAway })
	}
	testkit.Eventually(t, "it says that it is a replica", func() bool { return all[0].Stats().Cause == ReadOnly })
	if err := admin.ReplicaOf(t.Context(), "NO", "ONE").Err(); err != nil {
		t.Fatal(err)
	}
	comesBack(t, all...)
}

// Old connections stay, and new ones lead to another server.
func TestAnotherServerAnswers(t *testing.T) {
	t.Parallel()
	first, second := redistest.Start(t), redistest.Start(t)
	settled(t, second.URL())
	f := forward(t, first.Addr)
	settled(t, first.URL())
	r := run(t, "redis://"+f.addr, 3)
	together(t, r)
	f.to.Store(&second.Addr)
	load(t, r) // the load needs more connections
	goesAlone(t, OtherServer, r)
	together(t, r)
	if n := client(t, second.URL()).ZCard(t.Context(), replicasKey).Val(); n != 1 {
		t.Errorf("%d replicas at the second server", n)
	}
}

// A forwarder leads to a server, and may be slow.
type forwarder struct {
	addr  string
	to    atomic.Pointer[string]
	delay atomic.Int64 // of each read from the client, in nanoseconds

	mu    sync.Mutex // guards conns
	conns map[net.Conn]bool
}

func forward(t *testing.T, to string) *forwarder {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f := &forwarder{addr: l.Addr().String(), conns: make(map[net.Conn]bool)}
	f.to.Store(&to)
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() { f.serve(c) })
		}
	})
	t.Cleanup(func() { l.Close(); f.cut(); wg.Wait() })
	return f
}

func (f *forwarder) serve(c net.Conn) {
	defer c.Close()
	up, err := net.Dial("tcp", *f.to.Load())
	if err != nil {
		return
	}
	defer up.Close()
	f.keep(c, true)
	defer f.keep(c, false)
	go func() {
		io.Copy(c, up)
		c.Close()
	}()
	buf := make([]byte, 64<<10)
	for {
		n, err := c.Read(buf)
		if err != nil {
			return
		}
		<-time.After(time.Duration(f.delay.Load()))
		if _, err := up.Write(buf[:n]); err != nil {
			return
		}
	}
}

func (f *forwarder) keep(c net.Conn, open bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if open {
		f.conns[c] = true
	} else {
		delete(f.conns, c)
	}
}

// cut closes all connections.
func (f *forwarder) cut() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for c := range f.conns {
		c.Close()
	}
}
