package daemon

import (
	"errors"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"robotsproxy/cmd/internal/admin"
	"robotsproxy/cmd/internal/config"
	"robotsproxy/cmd/internal/prom"
	"robotsproxy/cmd/internal/redis"
	"robotsproxy/policy/audit"
)

func TestReplicaName(t *testing.T) {
	const server = "redis://127.0.0.1"
	for _, c := range []struct {
		name  string
		store config.Store
		host  string
		want  string
	}{
		{"on its own", config.Store{}, "web", ""},
		{"on its own, with a name", config.Store{Replica: "a"}, "web", "a"},
		{"of a fleet", config.Store{Redis: server}, "web-1.example", "web-1.example"},
		{"of a fleet, with a name", config.Store{Redis: server, Replica: "a"}, "web", "a"},
		{"a host without a name", config.Store{Redis: server}, "", "unnamed"},
		{"a host of a strange name", config.Store{Redis: server}, "my máy\n", "my-m-y-"},
		{"a host of a long name", config.Store{Redis: server}, strings.Repeat("é", 100), strings.Repeat("-", 64)},
	} {
		got := replicaName(c.store, func() (string, error) {
			if c.host == "" {
				return "", errors.New("none")
			}
			return c.host, nil
		})
		if got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

// A statsOnly is a fleet that has nothing but these.
type statsOnly struct {
	fleet
	stats  redis.Stats
	robots redis.RobotsStats
}

func (s statsOnly) Stats() redis.Stats { return s.stats }

func (s statsOnly) RobotsStats() redis.RobotsStats { return s.robots }

// The state of the store is shown correctly.
func TestFleetIsShown(t *testing.T) {
	h := &Daemon{}
	h.Active.Store(&generation{audit: audit.Options{Replica: "proxy-1"}})
	if h.adminStore() != nil || h.storeStats() != nil {
		t.Error("a proxy on its own shows a store")
	}
	since := time.Now()
	h.fleet = statsOnly{robots: redis.RobotsStats{Loads: 16, Saves: 17, Claims: 18, Waits: 19, Purges: 20, Heard: 21, Lost: 22, Failures: 23}, stats: redis.Stats{
		StoreAway: true, Returning: true, Cause: redis.TimedOut, Since: since, Times: 4, Replicas: 3, Expected: 5, Members: []redis.Member{{Name: "proxy-2"}}, Guard: time.Minute, Left: 2, Held: 6,
		Reserved: 7, Late: 8, Full: 9, Dropped: 10, Outages: 11, Failures: map[string]uint64{"x": 12},
		RoundTrips: []redis.Trips{{Within: time.Millisecond, Count: 13}, {Count: 14}}, RoundTripTime: 15 * time.Second,
	}}
	if diff := cmp.Diff(admin.Store{
		Replica: "proxy-1", StoreAway: true, Returning: true, Why: "no reply within 1 s", Since: since, Times: 4, Members: 3, Expected: 5,
		Replicas: []redis.Member{{Name: "proxy-2"}}, Guard: time.Minute,
	}, h.adminStore()()); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(prom.StoreStats{
		Stats: h.fleet.Stats(), Robots: h.fleet.RobotsStats(),
	}, h.storeStats()()); diff != "" {
		t.Error(diff)
	}
}

// TestReadyAfterTheStore checks that a replica takes no requests before it has tried its store once:
// until then it fetches each robots.txt for itself.
func TestReadyAfterTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		evidence, err := audit.Open(audit.Options{File: filepath.Join(t.TempDir(), "audit.jsonl"), Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		defer evidence.Close()
		for _, c := range []struct {
			name  string
			stats redis.Stats
			after time.Duration
			ready bool
		}{
			{"not asked yet", redis.Stats{StoreAway: true, Cause: redis.Starting}, 0, false},
			{"joining", redis.Stats{StoreAway: true, Returning: true, Cause: redis.Starting}, 1999 * time.Millisecond, false},
			{"for too long", redis.Stats{StoreAway: true, Returning: true, Cause: redis.Starting}, 2 * time.Second, true},
			{"away", redis.Stats{StoreAway: true, Cause: redis.Refused}, 0, true},
			{"shared", redis.Stats{Cause: redis.Starting}, 0, true},
		} {
			c.stats.Since = time.Now().Add(-c.after)
			d := &Daemon{fleet: statsOnly{stats: c.stats}, evidence: evidence}
			if err := d.ready(); (err == nil) != c.ready {
				t.Errorf("%s: %v", c.name, err)
			}
		}
		if err := (&Daemon{evidence: evidence}).ready(); err != nil {
			t.Errorf("without a store: %v", err)
		}
	})
}

// docs/metrics.md has each cause that a call of the store may fail by.
func TestPageNamesTheCauses(t *testing.T) {
	f, err := redis.Open(redis.Options{URL: "redis://127.0.0.1:1", Replicas: 1, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	page, err := os.ReadFile("../../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	row := regexp.MustCompile("(?m)^\\| `robotsproxy_store_errors_total` \\| counter \\| `cause` \\| (.*) \\|$").FindSubmatch(page)
	if row == nil {
		t.Fatal("docs/metrics.md has no row of robotsproxy_store_errors_total")
	}
	var told []string
	for _, name := range regexp.MustCompile("`([a-z-]+)`").FindAllSubmatch(row[1], -1) {
		told = append(told, string(name[1]))
	}
	slices.Sort(told)
	if diff := cmp.Diff(slices.Sorted(maps.Keys(f.Stats().Failures)), told); diff != "" {
		t.Errorf("counted (-) and in docs/metrics.md (+):\n%s", diff)
	}
}
