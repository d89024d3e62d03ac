package audit

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

func TestFairShare(t *testing.T) {
	for _, c := range []struct {
		name        string
		wanted      []int
		total, want int
	}{
		{"nobody", nil, 10, 99},
		{"enough for all", []int{3, 7}, 10, 99},
		{"one wants too much", []int{20}, 10, 5},
		{"small ones get all, the others and a new one the same", []int{100, 1, 2, 50}, 10, 2},
		{"all alike", []int{5, 5, 5, 5}, 10, 2},
		{"more clients than places", []int{1, 1, 1}, 2, 1},
		{"nothing is left", []int{4, 5}, -3, 1},
	} {
		if got := fairShare(slices.Clone(c.wanted), c.total, 99); got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
	}
}

// TestFairLimit lets clients ask again and again, one after the other, and checks what each gets.
func TestFairLimit(t *testing.T) {
	now := time.Unix(1_000_000_000, 0)
	f := FairLimit{PerSecond: 100, Burst: 400}
	second := func(passed time.Duration, wanted ...int) (got []int) {
		now = now.Add(passed)
		for i, n := range wanted {
			got = append(got, 0)
			for range n {
				if f.Take(fmt.Sprint("10.0.0.", i), 1, now) {
					got[i]++
				}
			}
		}
		return got
	}
	for _, c := range []struct {
		name   string
		passed time.Duration
		wanted []int
		want   []int
	}{
		{"a burst of one", time.Second, []int{400, 1}, []int{400, 0}},
		{"the rate after that, of which a part is left for a new one", time.Second, []int{400, 1}, []int{49, 1}},
		{"many at once, as the second before", time.Second, []int{400, 400, 400, 400, 10}, []int{74, 74, 2, 0, 0}},
		{"then each gets its share, and who wants less gets all", time.Second, []int{400, 400, 400, 400, 10}, []int{18, 18, 18, 18, 10}},
		{"also beside a new one", time.Second, []int{400, 400, 400, 400, 10, 2}, []int{21, 21, 21, 21, 10, 2}},
		{"after a break they are remembered", 2 * time.Second, []int{0, 0, 0, 0, 10, 400}, []int{0, 0, 0, 0, 10, 43}},
		{"and another second", time.Second, []int{0, 0, 0, 0, 10, 400}, []int{0, 0, 0, 0, 10, 43}},
		{"but less and less", time.Second, []int{0, 0, 0, 0, 10, 400}, []int{0, 0, 0, 0, 10, 53}},
		{"after a long one all is as at first", time.Minute, []int{400, 1}, []int{400, 0}},
	} {
		if got := second(c.passed, c.wanted...); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
	for range 400 {
		if !f.Take("lab", 1, now) {
			t.Fatal("strangers have used what a client of the configuration may have")
		}
	}
}

// TestFairLimitIsBounded checks that the memory of a FairLimit does not grow with the number of clients.
func TestFairLimitIsBounded(t *testing.T) {
	f := FairLimit{PerSecond: 1, Burst: 1}
	for i := range 2 * maxFairClients {
		f.Take(fmt.Sprint("client ", i), 1, time.Unix(1, 0))
	}
	if n := len(f.named.demand); n != maxFairClients+1 {
		t.Errorf("%d clients are counted apart", n)
	}
}
