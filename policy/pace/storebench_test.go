package pace_test

import (
	"testing"

	"robotsproxy/policy/pace"
	"robotsproxy/policy/pace/storetest"
)

// BenchmarkWaitShared measures what a Store costs in this package, without the Store's
// own time.
func BenchmarkWaitShared(b *testing.B) {
	storetest.Requests(b, pace.New(pace.Options{Store: storetest.NewMemory(1).Join()}))
}
