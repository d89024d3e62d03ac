package prom

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"robotsproxy/cmd/internal/bolt"
	"robotsproxy/cmd/internal/notary"
	"robotsproxy/cmd/internal/redis"
	"robotsproxy/policy"
	"robotsproxy/policy/audit"
	"robotsproxy/policy/audit/snapshot"
	"robotsproxy/policy/memory"
	"robotsproxy/policy/pace"
	"robotsproxy/policy/stops"
	"robotsproxy/proxy"
	"robotsproxy/proxy/archive"
	"robotsproxy/proxy/egress"
	"robotsproxy/proxy/inbound"
	"robotsproxy/proxy/mitm"
	"robotsproxy/robots"
	"robotsproxy/robots/cache"
	"robotsproxy/robots/fetch"
	"robotsproxy/robots/testkit"
)

// noFile is a Fetcher that finds no robots.txt anywhere.
type noFile struct{}

func (noFile) Fetch(_ context.Context, r fetch.Request) *fetch.Result {
	o := r.Origin
	return &fetch.Result{URL: o.String() + "/robots.txt", Status: 404, Fetched: time.Now(), MaxAge: -1}
}

// A testProxy is a proxy that does not listen, and the metrics of all its parts.
type testProxy struct {
	metrics *Metrics
	cache   *cache.Cache
	pacer   *pace.Pacer
}

// fleetStats returns the Stats of a replica.
func fleetStats() StoreStats {
	return StoreStats{Stats: redis.Stats{
		Times: 1, Replicas: 3, Expected: 3, RoundTrips: []redis.Trips{{Within: time.Millisecond, Count: 1}, {Count: 1}}, Failures: map[string]uint64{"timed-out": 0},
	}}
}

// newTestProxy makes a Metrics of real packages, for one of several replicas.
func newTestProxy(t testing.TB) testProxy { return newTestProxyWith(t, fleetStats) }

// newTestProxyWith is newTestProxy with a store, or without one if store is nil.
func newTestProxyWith(t testing.TB, store func() StoreStats) testProxy {
	t.Helper()
	dir, log := t.TempDir(), slog.New(slog.DiscardHandler)
	o := Options{Version: "v1.2.3", Revision: "abc", Fetches: NewStopwatch(), Ready: func() error { return nil }, Monitor: func() bool { return false }, Quotas: someQuotas, Clients: func() []string { return []string{"lab-a"} }, Exceptions: func() (e Exceptions) { return }, Stops: someStops}
	authority, err := mitm.LoadOrCreate(dir)
	testkit.Must(t, err)
	client, err := egress.New(egress.Options{})
	testkit.Must(t, err)
	t.Cleanup(client.Close)
	robotsCache, err := cache.New(cache.Options{Fetcher: o.Fetches.Time(noFile{})})
	testkit.Must(t, err)
	running, stop := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- robotsCache.Run(running) }()
	t.Cleanup(func() {
		stop()
		testkit.Must(t, <-ended)
	})
	snapshots, err := snapshot.Open(snapshot.Options{Dir: filepath.Join(dir, "snapshots"), Log: log})
	testkit.Must(t, err)
	evidence, err := audit.Open(audit.Options{File: filepath.Join(dir, "audit.jsonl"), Snapshots: snapshots, Log: log})
	testkit.Must(t, err)
	t.Cleanup(func() { evidence.Close() })
	state, err := bolt.Open(bolt.Options{File: filepath.Join(dir, "state.db"), Log: log})
	testkit.Must(t, err)
	t.Cleanup(state.Close)
	engine, err := policy.New(policy.Options{Cache: robotsCache, Pace: pace.Limits{PerSecond: 1, Burst: 1, MaxConcurrent: 1, MaxWait: time.Minute, MaxQueue: 1}})
	testkit.Must(t, err)
	pacer := pace.New(pace.Options{})
	handler, err := proxy.New(proxy.Options{
		Rules: proxy.Rules{Engine: engine, Egress: client, Authority: authority},
		Pacer: pacer, Audit: evidence, Keep: evidence.SaveSnapshot, Begin: evidence.Begin, Ready: evidence.Refusal, Log: log,
	})
	testkit.Must(t, err)
	o.Handler, o.Authority, o.Egress, o.Cache, o.Pace = handler.Stats, authority.Stats, client.Stats, robotsCache.Stats, pacer.Stats
	o.TDMRep = robotsCache.Stats
	o.Checkpoints = func() []notary.Place { return []notary.Place{{Name: "state"}} }
	o.Audit, o.Archive, o.Snapshots, o.State = evidence.Stats, func() (s archive.Stats) { return }, snapshots.Stats, state.Stats
	o.Store = store
	o.ListenTLS = func() time.Time { return time.Unix(2_000_000_000, 0) }
	o.Reloads = func() (uint64, uint64, time.Time, error) { return 2, 1, time.Unix(1_700_000_000, 0), nil }
	m, err := New(o)
	testkit.Must(t, err)
	return testProxy{m, robotsCache, pacer}
}

// zeroOptions are the Options of a proxy without traffic.
func zeroOptions() Options {
	return Options{
		Version: "v1.2.3", Revision: "abc", Fetches: NewStopwatch(),
		Ready:       func() error { return nil },
		Monitor:     func() bool { return false },
		Handler:     func() (s proxy.Stats) { return },
		Authority:   func() (s mitm.Stats) { return },
		Egress:      func() (s egress.Stats) { return },
		Cache:       func() (s cache.Stats) { return },
		TDMRep:      func() (s cache.Stats) { return },
		Pace:        func() (s pace.Stats) { return },
		Audit:       func() (s audit.Stats) { return },
		Checkpoints: func() (all []notary.Place) { return },
		Archive:     func() (s archive.Stats) { return },
		Snapshots:   func() (s snapshot.Stats) { return },
		Quotas:      func() (all []policy.ClientUse) { return },
		Clients:     func() []string { return nil },
		Exceptions:  func() Exceptions { return Exceptions{Expired: 109, Next: time.Unix(110, 0)} },
		Stops:       someStops,
	}
}

// someStops are three pauses, of which one is for all hosts, and one cool-down.
func someStops() []stops.Stop {
	return []stops.Stop{{Kind: stops.Paused}, {Kind: stops.Paused, Host: "a.test"}, {Kind: stops.Paused, Host: "b.test"}, {Kind: stops.CoolDown, Host: "a.test", Client: "lab-a"}}
}

// someQuotas are those of clients with and without quotas.
func someQuotas() []policy.ClientUse {
	return []policy.ClientUse{
		{Client: policy.Client{Name: "free"}, Used: policy.Use{Requests: 1}},
		{Client: policy.Client{Name: "lab-a", Quota: policy.Quota{Requests: 8, Bytes: 4}}, Used: policy.Use{Requests: 2, Bytes: 5}},
	}
}

// Every number of a Stats is exported under its name.
func TestStatsAreExported(t *testing.T) {
	m, err := New(numbered())
	testkit.Must(t, err)
	got := map[string]float64{}
	families := scrape(t, m)
	trips := families["robotsproxy_store_round_trip_seconds"].Metric[0].Histogram
	if b := trips.Bucket; len(b) == 0 || b[0].GetUpperBound() != 0.001 || b[0].GetCumulativeCount() != 62 || trips.GetSampleCount() != 63 || trips.GetSampleSum() != 64 {
		t.Errorf("round trips: %v", trips)
	}
	for name, f := range families {
		for labels, n := range series(f) {
			if labels != "" {
				labels = " " + labels
			}
			got[name+labels] = n
		}
	}
	for name, n := range numbers {
		if was, ok := got["robotsproxy_"+name]; !ok || was != n {
			t.Errorf("%s is %v (%v), want %v", name, was, ok, n)
		}
	}
}

// numbered is a source of stats in which each number is different.
func numbered() Options {
	o := zeroOptions()
	o.Ready, o.Quotas = func() error { return errors.New("no") }, someQuotas
	o.Handler = func() proxy.Stats {
		return proxy.Stats{
			Stats: inbound.Stats{
				Conns: inbound.Flow{Open: 2, Total: 3}, MaxConns: 4, Failed: 5, Answered: 6, Closed: 7, Evicted: 107,
				Intercepted: inbound.Flow{Open: 8, Total: 9}, Unused: 10,
				Faults: map[mitm.Fault]uint64{mitm.FaultClosed: 14},
			},
			Requests: inbound.Flow{Open: 1}, PassedThrough: inbound.Flow{Open: 11, Total: 12}, Upgraded: inbound.Flow{Open: 13},
			Memory: memory.Stats{Limit: 73, InUse: 74, Bodies: 75, Refused: 76, Closed: 78, Unread: 77},
		}
	}
	o.Checkpoints = func() []notary.Place {
		return []notary.Place{{Name: "tsa", Newest: time.Unix(108, 0), Err: errors.New("away")}, {Name: "state", Newest: time.Unix(109, 0)}}
	}
	o.Authority = func() mitm.Stats {
		return mitm.Stats{NotAfter: time.Unix(15, 5e8), Leaves: 16, Minted: 17, Failed: map[mitm.Fault]uint64{mitm.FaultUntrusted: 18}}
	}
	o.Egress = func() egress.Stats {
		return egress.Stats{
			Origins: egress.Peers{Open: 19, Dialed: map[egress.DialResult]uint64{egress.OutcomeDNS: 20}},
			Parent:  egress.Peers{Open: 21, Dialed: map[egress.DialResult]uint64{egress.OutcomeTLS: 22}},
		}
	}
	o.Cache = func() cache.Stats {
		return cache.Stats{Entries: 23, Bytes: 24, Hits: 25, Misses: 26, Fetching: 27, Fetches: map[cache.FetchOutcome]uint64{cache.FetchedOwnFailure: 28}}
	}
	o.Archive = func() archive.Stats {
		return archive.Stats{Err: errors.New("full"), Records: 201, Revisits: 202, Truncated: 203, Failures: 204, Left: 205, Spooled: 206, Space: audit.Space{Bytes: 207}}
	}
	o.Audit = func() audit.Stats {
		return audit.Stats{
			Err: errors.New("full"), Waiting: 29, Lag: 1500 * time.Millisecond, Unsynced: 31, Lines: 32, Bytes: 33, Failures: 34, Lost: 35, Rotations: 36, Counted: 1035,
		}
	}
	o.Snapshots = func() snapshot.Stats {
		return snapshot.Stats{Bytes: 37, Saved: 38, SaveFailed: 39, SyncFailed: 40, PruneFailed: 41, MaxBytes: 73, Refused: 74, Unindexed: 75}
	}
	o.TDMRep = func() cache.Stats {
		return cache.Stats{Entries: 80, Bytes: 81, Hits: 82, Misses: 83, Fetching: 84, Fetches: map[cache.FetchOutcome]uint64{cache.FetchedNoFile: 85}}
	}
	o.State = func() bolt.Stats { return bolt.Stats{Bytes: 42, Pending: 43, Failures: 44, Damaged: 45, Lost: 46} }
	o.ListenTLS = func() time.Time { return time.Unix(47, 0) }
	o.Store = func() StoreStats {
		return StoreStats{
			Stats: redis.Stats{
				StoreAway: true, Times: 51, Replicas: 52, Expected: 53, Guard: 108 * time.Second,
				Members: []redis.Member{{Config: "a", Version: "1"}, {Config: "b", Version: "1"}, {Config: "c", Version: "1"}}, Left: 54, Held: 55, Reserved: 56, Late: 57, Full: 58, Dropped: 59, Outages: 60,
				Failures:   map[string]uint64{"timed-out": 61},
				RoundTrips: []redis.Trips{{Within: time.Millisecond, Count: 62}, {Count: 63}}, RoundTripTime: 64 * time.Second,
			},
			Robots: redis.RobotsStats{Loads: 65, Saves: 68, Claims: 69, Waits: 70, Purges: 71, Heard: 72, Lost: 66, Failures: 67},
		}
	}
	o.Reloads = func() (uint64, uint64, time.Time, error) { return 48, 49, time.Unix(50, 0), errors.New("line 3") }
	return o
}

// numbers are the metrics of numbered.
var numbers = map[string]float64{
	"ready": 0, "inflight_requests": 1, "client_connections": 2, "client_connections_accepted_total": 3, "client_connections_limit": 4,
	"client_accept_errors_total": 5, "client_connections_refused_total how=answered": 6, "client_connections_refused_total how=closed": 7, "client_connections_refused_total how=evicted": 107,
	"memory_limit_bytes": 73, "memory_used_bytes": 74, "memory_bodies_bytes": 75, "memory_refused_requests_total": 76, "memory_refused_connections_total": 78, "memory_unread_bodies_total": 77,
	"tunnels kind=intercepted": 8, "tunnels_opened_total kind=intercepted": 9, "tunnels_unused_total": 10,
	"tunnels kind=unopened": 11, "tunnels_opened_total kind=unopened": 12, "upgraded_connections": 13,
	"client_tls_failures_total cause=left where=listen": 14, "ca_not_after_timestamp_seconds": 15.5,
	"client_quota_used_ratio client=lab-a of=requests": 0.25, "client_quota_used_ratio client=lab-a of=bytes": 1.25,
	"leaf_certificates": 16, "leaf_certificates_minted_total": 17, "client_tls_failures_total cause=untrusted where=tunnel": 18,
	"egress_connections to=origin": 19, "egress_dials_total outcome=dns to=origin": 20,
	"egress_connections to=parent": 21, "egress_dials_total outcome=tls to=parent": 22,
	"robots_cache_entries": 23, "robots_cache_bytes": 24, "robots_cache_hits_total": 25, "robots_cache_misses_total": 26,
	"robots_inflight_fetches": 27, "robots_fetches_total outcome=ours": 28,
	"tdmrep_cache_entries": 80, "tdmrep_cache_bytes": 81, "tdmrep_cache_hits_total": 82, "tdmrep_cache_misses_total": 83,
	"tdmrep_inflight_fetches": 84, "tdmrep_fetches_total outcome=no-file": 85,
	"archive_healthy": 0, "archive_records_total": 201, "archive_revisits_total": 202, "archive_truncated_total": 203, "archive_errors_total": 204,
	"archive_lost_responses_total": 205, "archive_incomplete_bytes": 206, "archive_disk_bytes": 207,
	"audit_healthy": 0, "audit_unwritten_lines": 29, "audit_lag_seconds": 1.5, "audit_unsynced_lines": 31, "audit_lines_total": 32,
	"audit_bytes_total": 33, "audit_errors_total": 34, "audit_lost_records_total": 35, "audit_rotations_total": 36, "audit_checkpoint_timestamp_seconds to=tsa": 108, "audit_checkpoint_timestamp_seconds to=state": 109,
	"audit_checkpoint_overdue to=tsa": 1, "audit_checkpoint_overdue to=state": 0, "audit_counted_refusals_total": 1035,
	"snapshots_bytes": 37, "snapshots_kept_total": 38, "snapshots_errors_total operation=keep": 39,
	"snapshots_errors_total operation=sync": 40, "snapshots_errors_total operation=prune": 41,
	"snapshots_max_bytes": 73, "snapshots_errors_total operation=full": 74, "snapshots_errors_total operation=index": 75,
	"state_bytes": 42, "state_pending_bytes": 43, "state_errors_total": 44, "state_damaged_total": 45, "state_lost_entries_total": 46,
	"listen_tls_not_after_timestamp_seconds": 47, "reloads_total outcome=ok": 48, "reloads_total outcome=failed": 49,
	"reload_last_success_timestamp_seconds": 50, "reload_last_successful": 0,
	"store_up": 0, "pace_times_slower": 51, "store_members": 52, "hosts_expired_entries": 109, "all_paused": 1, "stops kind=paused": 2, "stops kind=cool-down": 1, "hosts_next_expiry_timestamp_seconds": 110, "store_expected_members": 53, "store_configurations": 3, "store_versions": 1, "store_clock_guard_seconds": 108, "store_left_shares": 54, "store_places": 55,
	"store_reservations_total outcome=given": 56, "store_reservations_total outcome=late": 57, "store_reservations_total outcome=full": 58,
	"store_dropped_reports_total": 59, "store_outages_total": 60, "store_errors_total cause=timed-out": 61,
	"store_robots_total operation=load": 65, "store_robots_lost_total": 66, "store_robots_errors_total": 67,
	"store_robots_total operation=save": 68, "store_robots_total operation=claim": 69, "store_robots_total operation=wait": 70,
	"store_robots_total operation=purge": 71, "store_robots_total operation=heard": 72,
}

func TestStopwatch(t *testing.T) {
	h := newTestProxy(t)
	o, err := robots.ParseOrigin("http", "a.test")
	testkit.Must(t, err)
	for range 3 { // one fetch
		_, err = h.cache.Lookup(t.Context(), cache.Query{Origin: o}, robots.Standard())
		testkit.Must(t, err)
	}
	families := scrape(t, h.metrics)
	if n := families["robotsproxy_robots_fetch_duration_seconds"].GetMetric()[0].GetHistogram().GetSampleCount(); n != 1 {
		t.Errorf("%d fetches measured, want 1", n)
	}
	if n := series(families["robotsproxy_robots_fetches_total"])["outcome=no-file"]; n != 1 {
		t.Errorf("%v fetches that found no file, want 1", n)
	}
	if hits, misses := series(families["robotsproxy_robots_cache_hits_total"])[""], series(families["robotsproxy_robots_cache_misses_total"])[""]; hits != 2 || misses != 1 {
		t.Errorf("%v hits and %v misses, want 2 and 1", hits, misses)
	}
}
