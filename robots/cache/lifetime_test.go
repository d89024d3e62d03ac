package cache

import (
	"testing"
	"time"
)

var usual = timing{minAge: time.Minute, maxAge: 24 * time.Hour, retry: 30 * time.Second, fetchTimeout: 20 * time.Second}

func TestTTL(t *testing.T) {
	for _, tc := range []struct {
		name string
		said time.Duration
		want time.Duration
	}{
		{"RFC 9309 2.4: none said, 24 hours", -1, 24 * time.Hour},
		{"RFC 9309 2.4: never more than 24 hours", 48 * time.Hour, 24 * time.Hour},
		{"RFC 9111 5.2.2.1: shortened", 2 * time.Hour, 2 * time.Hour},
		{"never less than MinAge", time.Second, time.Minute},
		{"no-store", 0, time.Minute},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := usual.ttl(tc.said); got != tc.want {
				t.Errorf("ttl(%v) = %v, want %v", tc.said, got, tc.want)
			}
		})
	}
}

func TestPlan(t *testing.T) {
	slow := usual
	slow.fetchTimeout = time.Hour
	for _, tc := range []struct {
		name           string
		clock          timing
		ttl            time.Duration
		refresh, until time.Duration
	}{
		{"a tenth before", usual, 24 * time.Hour, 24*time.Hour - 144*time.Minute, 24 * time.Hour},
		{"at least as long before as a fetch takes", usual, 2 * time.Minute, 99 * time.Second, 2 * time.Minute},
		{"not sooner than MinAge", usual, 70 * time.Second, time.Minute, 81 * time.Second},
		{"MinAge leaves no lead: used while the refresh is under way", usual, time.Minute, time.Minute, 81 * time.Second},
		{"a lead just long enough", usual, 81 * time.Second, time.Minute, 81 * time.Second},
		{"a fetch may take longer than the ttl", slow, time.Minute, time.Minute, time.Minute + time.Hour + time.Second},
	} {
		t.Run(tc.name, func(t *testing.T) {
			refresh, until := tc.clock.refreshTimes(tc.ttl)
			if refresh != tc.refresh || until != tc.until {
				t.Errorf("plan(%v) = %v, %v; want %v, %v", tc.ttl, refresh, until, tc.refresh, tc.until)
			}
		})
	}
}

// TestPlanBounds: the properties in the table hold for every ttl.
func TestPlanBounds(t *testing.T) {
	c := usual
	for ttl := c.minAge; ttl <= c.maxAge; ttl += 7 * time.Second {
		refresh, until := c.refreshTimes(ttl)
		switch {
		case refresh < c.minAge || refresh > ttl:
			t.Fatalf("ttl %v: refreshed after %v", ttl, refresh)
		case until < refresh+c.fetchTimeout:
			t.Fatalf("ttl %v: refreshed after %v, used only until %v", ttl, refresh, until)
		case until > c.maxAge+c.refreshLimit():
			t.Fatalf("ttl %v: used until %v", ttl, until)
		case until > ttl && refresh > c.minAge:
			t.Fatalf("ttl %v: used until %v although it could be refreshed before %v", ttl, until, refresh)
		}
	}
}

func TestBackoff(t *testing.T) {
	for _, tc := range []struct {
		name  string
		first time.Duration
		want  []time.Duration
	}{
		{"30 s doubling to 30 min", 30 * time.Second, []time.Duration{
			30 * time.Second, time.Minute, 2 * time.Minute, 4 * time.Minute, 8 * time.Minute,
			16 * time.Minute, 30 * time.Minute, 30 * time.Minute,
		}},
		{"a first wait over 30 min stays", time.Hour, []time.Duration{time.Hour, time.Hour}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := timing{retry: tc.first}
			var last time.Duration
			for i, want := range tc.want {
				if last = c.backoff(last); last != want {
					t.Fatalf("failure %d: %v, want %v", i+1, last, want)
				}
			}
		})
	}
}
