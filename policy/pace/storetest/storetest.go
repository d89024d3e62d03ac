// Package storetest tests implementations of pace.Store, and Pacers that share one. It is
// for tests only.
package storetest

import (
	"testing"

	"robotsproxy/policy/pace"
)

// Store tests Stores that share their data. open returns the given number of connected
// Stores with an empty key space. It closes them at the end of the test.
func Store(t *testing.T, open func(t *testing.T, n int) []pace.Store) {
	for name, test := range map[string]func(*testing.T, []pace.Store){
		"nobody is alone":                           notAlone,
		"a gap between a slot's end and the next":   gaps,
		"a burst, and then by the rate":             bursts,
		"a new gap counts from the last slot":       newGap,
		"a new limit lets nothing more out":         newLimit,
		"too late a slot is not reserved":           tooLate,
		"what was sent counts":                      sentElsewhere,
		"what was sent before all empties a bucket": sentElsewhereBefore,
		"concurrency slots are shared":              concurrencyLimit,
		"a lease is kept for the next slot":         keptLease,
		"anybody may have an unused slot":           unusedSlot,
		"unless there is a later one":               unusedSlotBefore,
		"a slot given up for the next":              givenUp,
		"a page shares the slot of a fetch":         sharedSlot,
		"a page gives up the slot of a fetch":       sharedSlotGivenUp,
		"back-offs are shared":                      backOffs,
		"of two back-offs the later and the longer": twoBackOffs,
		"a back-off of one of several hosts":        separateBackOff,
		"two limiters":                              twoLimiters,
		"no limiter waits for a client's own":       ownLimiter,
		"keys and limiters are separate":            separate,
		"many at once":                              concurrent,
		"a caller that has left":                    callerLeft,
	} {
		t.Run(name, func(t *testing.T) { test(t, open(t, 3)) })
	}
}
