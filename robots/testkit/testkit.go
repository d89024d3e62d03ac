// Package testkit has what the tests of all packages share: waiting, skipping tests without
// their peers, and listeners. Only tests import it. It needs only the standard library, without
// net/http: linking that takes longer than many of the tests.
package testkit

import (
	"flag"
	"fmt"
	"net"
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Waiters is how many tests of a package run in parallel if they mostly wait.
const Waiters = 8

// SetParallel lets Waiters tests run in parallel, unless -parallel sets another number. The
// TestMain of a package whose tests mostly wait calls it before it runs them.
func SetParallel() {
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if !given {
		// Setting it fails for no number.
		flag.Set("test.parallel", strconv.Itoa(Waiters))
	}
}

// Long skips a test under -short: one that needs real peers, much memory or many rounds, or
// waits for the real clock. why says which.
func Long(t testing.TB, why string) {
	t.Helper()
	if testing.Short() {
		t.Skip("left out by -short: " + why)
	}
}

// Rounds returns how often a test repeats what proves more with each repetition: n times, and a
// tenth of that under -short.
func Rounds(n int) int {
	if testing.Short() {
		return n / 10
	}
	return n
}

// Heap returns how many bytes of the heap are in use.
func Heap() int {
	var m runtime.MemStats
	runtime.GC()
	// The second collection empties pools.
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}

// Patience is the timeout of every wait of a test for something that must happen. Working code
// needs far less, so that a test that exceeds it has found a fault and not a slow machine.
const Patience = 30 * time.Second

// Eventually polls until holds returns true, and fails the test after Patience.
func Eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	deadline := time.After(Patience)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("not within %v: %s", Patience, what)
		}
	}
}

// Within receives from ch, and fails the test after Patience.
func Within[T any](t testing.TB, what string, ch <-chan T) T {
	t.Helper()
	select {
	case v := <-ch:
		return v
	case <-time.After(Patience):
		t.Fatalf("not within %v: %s", Patience, what)
		panic("unreachable")
	}
}

// AtMost measures up to three times, until the result is at most most, and fails the test if none
// is: a busy machine can stand still for seconds, but hardly each time.
func AtMost(t testing.TB, most time.Duration, measure func() time.Duration) {
	t.Helper()
	var all []time.Duration
	for range 3 {
		took := measure()
		if all = append(all, took); took <= most {
			return
		}
	}
	t.Errorf("took %v, want at most %v", all, most)
}

// Must fails the test if err is not nil.
func Must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// AwayFromMidnight waits until midnight UTC has passed, if it is less than Patience away. Tests
// of daily counts and names call it first.
func AwayFromMidnight() {
	const day = 24 * time.Hour
	now := time.Now()
	if left := now.Truncate(day).Add(day).Sub(now); left < Patience {
		<-time.After(left)
	}
}

// Missing ends a test that needs a program, peer, which this machine lacks: it skips the test,
// or fails it with REQUIRE_PEERS=1.
func Missing(t testing.TB, peer string) {
	t.Helper()
	if os.Getenv("REQUIRE_PEERS") == "1" {
		t.Fatalf("%s is not on this machine, and REQUIRE_PEERS=1 asks for it", peer)
	}
	t.Skipf("%s is not on this machine", peer)
}

// WriteProgram writes an executable file. No process that is started meanwhile inherits the open
// file: until it executed its own program, nobody could execute this one (text file busy,
// golang.org/issue/22315).
func WriteProgram(name string, text []byte) error {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	return os.WriteFile(name, text, 0o755)
}

// TakesSignal skips a test whose child traps sig if the tests themselves were started with sig
// ignored, as by nohup: a child inherits that, and a shell cannot trap such a signal.
func TakesSignal(t testing.TB, sig os.Signal) {
	t.Helper()
	if signal.Ignored(sig) {
		t.Skipf("the tests were started with %v ignored", sig)
	}
}

// ComplexFile returns a robots.txt that takes more than robots.MaxEffort steps to match against
// a long path of "a".
func ComplexFile() string {
	var b strings.Builder
	for i := range 9000 {
		fmt.Fprintf(&b, "User-agent: *\nUser-agent: a%d\nDisallow: /*a*a*a*a*%d\n", i, i)
	}
	return b.String()
}

// DeadEnd returns an address and port of this machine that refuse connections until the test ends:
// the port belongs to an open connection, so that nobody else can listen on it.
func DeadEnd(t testing.TB, ip string) string {
	t.Helper()
	l, err := net.Listen("tcp", net.JoinHostPort(ip, "0"))
	Must(t, err)
	t.Cleanup(func() { l.Close() })
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(ip)}}
	c, err := d.Dial("tcp", l.Addr().String())
	Must(t, err)
	t.Cleanup(func() { c.Close() })
	return c.LocalAddr().String()
}

// ListenTwice listens on the same port of two addresses. A port that is free on one address may
// be taken on the other.
func ListenTwice(t testing.TB, one, other string) (first, second net.Listener) {
	t.Helper()
	for tries := 10; ; tries-- {
		first, err := net.Listen("tcp", net.JoinHostPort(one, "0"))
		Must(t, err)
		_, port, _ := net.SplitHostPort(first.Addr().String())
		if second, err = net.Listen("tcp", net.JoinHostPort(other, port)); err == nil {
			return first, second
		}
		first.Close()
		if tries == 0 {
			t.Fatal(err)
		}
	}
}
