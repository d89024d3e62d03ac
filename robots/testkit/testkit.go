// Package testkit is what the tests of all packages share: waiting, and peers that may be missing.
// Only tests import it. It needs the standard library alone.
package testkit

import (
	"os"
	"testing"
	"time"
)

// Patience bounds every wait of a test for something that has to happen. Nothing that works comes
// near it, so a test that fails by it has found a fault, and not a slow machine.
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

// Must fails the test if there is an error.
func Must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Missing ends a test whose peer, a program that it needs, is not on this machine: the test is
// skipped, or fails with REQUIRE_PEERS=1.
func Missing(t testing.TB, peer string) {
	t.Helper()
	if os.Getenv("REQUIRE_PEERS") == "1" {
		t.Fatalf("%s is not on this machine, and REQUIRE_PEERS=1 asks for it", peer)
	}
	t.Skipf("%s is not on this machine", peer)
}
