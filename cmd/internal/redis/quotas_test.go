package redis

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"robotsproxy/cmd/internal/redis/redistest"
	"robotsproxy/policy"
	"robotsproxy/robots"
	"robotsproxy/robots/cache"
	"robotsproxy/robots/testkit"
)

// counting returns an Engine that counts by f, for a client lab-a with a quota, and hosts with budgets.
func counting(t *testing.T, f *replica, quota policy.Quota, hosts ...policy.Host) *policy.Engine {
	t.Helper()
	e, err := policy.New(policy.Options{Cache: &cache.Cache{}, Quotas: f, Hosts: hosts, Open: true, Clients: []policy.Client{
		{Name: "lab-a", Networks: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, Quota: quota},
	}})
	testkit.Must(t, err)
	return e
}

// requestTo returns a request of a client to a host.
func requestTo(client, host string) *policy.Request {
	return &policy.Request{Client: client, Target: robots.Target{Origin: robots.Origin{Scheme: "http", Host: host, Port: 80}, PathQuery: "/"}}
}

// takes returns how many of n requests, each to one of several engines in turn and all at once, were taken.
func takes(t *testing.T, n int, r *policy.Request, engines ...*policy.Engine) (taken int) {
	t.Helper()
	var all sync.WaitGroup
	var mu sync.Mutex
	for i := range n {
		all.Go(func() {
			_, err := engines[i%len(engines)].Take(t.Context(), r)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				taken++
			case !errors.Is(err, policy.ErrQuota) && !errors.Is(err, policy.ErrHeld):
				t.Error(err)
			}
		})
	}
	all.Wait()
	return taken
}

func budgetOf(requests, bytes int64, per time.Duration) policy.Budget {
	return policy.Budget{Quota: policy.Quota{Requests: requests, Bytes: bytes}, Per: per}
}

// TestQuotasAreShared: replicas that take requests at the same time take no more than the quota of a client, or than the budget of a
// host, and what one has given back or received without asking is known to all soon.
func TestQuotasAreShared(t *testing.T) {
	t.Parallel()
	testkit.AwayFromMidnight()
	s := redistest.Start(t)
	settled(t, s.URL())
	one, two := run(t, s.URL(), 2), run(t, s.URL(), 2)
	together(t, one, two)
	const most = 50
	hosts := []policy.Host{{Match: "*.test", Budget: budgetOf(most, 1000, time.Hour)}}
	a, b := counting(t, one, policy.Quota{Requests: most}, hosts...), counting(t, two, policy.Quota{Requests: most}, hosts...)
	for _, r := range []*policy.Request{requestTo("lab-a", "free.example"), requestTo("127.0.0.9", "a.test"), requestTo("127.0.0.9", "b.test")} {
		if taken := takes(t, 4*most, r, a, b); taken != most {
			t.Errorf("%s at %s: %d of %d were taken", r.Client, r.Origin.Host, taken, most)
		}
	}
	// What a quota refuses is in no budget, and the other way round.
	for _, host := range []string{"a.test", "c.test"} {
		if taken := takes(t, 5, requestTo("lab-a", host), a, b); taken != 0 {
			t.Errorf("at %s, %d were taken of a client without a quota", host, taken)
		}
	}
	if used := a.Budgets("c.test"); len(used) != 1 || used[0].Used != (policy.Use{}) {
		t.Errorf("%+v", used)
	}
	ticket, err := a.Take(t.Context(), requestTo("127.0.0.9", "d.test"))
	testkit.Must(t, err)
	ticket.GiveBack()
	ticket.AddBytes(7)
	a.CountFetch(robots.Target{Origin: requestTo("", "d.test").Origin, PathQuery: "/robots.txt"})
	a.TellStore(t.Context())
	if taken := takes(t, most, requestTo("127.0.0.9", "d.test"), b); taken != most-1 {
		t.Errorf("%d were taken beside one fetch", taken)
	}
	if used := b.Budgets("d.test"); len(used) != 1 || used[0].Used != (policy.Use{Requests: most, Bytes: 7}) || time.Until(used[0].Next) < 59*time.Minute {
		t.Errorf("%+v", used)
	}
}

// TestQuotasOfAnOutage: what a replica has used while the server was unavailable is counted when it is back, and no more than its
// share of what was left.
func TestQuotasOfAnOutage(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	settled(t, s.URL())
	f, other := run(t, s.URL(), 2), run(t, s.URL(), 2)
	together(t, f, other)
	hosts := []policy.Host{{Match: "*.test", Budget: budgetOf(9, 0, time.Hour)}}
	here, there := counting(t, f, policy.Quota{}, hosts...), counting(t, other, policy.Quota{}, hosts...)
	r := requestTo("", "a.test")
	if n := takes(t, 1, r, here); n != 1 {
		t.Fatal("the first was not taken")
	}
	s.Stop()
	testkit.Eventually(t, "alone", func() bool {
		_, err := f.Take(t.Context(), 0, nil)
		return err != nil && f.Standing().StoreAway
	})
	// Of the eight that are left, two replicas have four each.
	if n := takes(t, 20, r, here); n != 4 {
		t.Errorf("%d were taken while the server was away", n)
	}
	s.Continue()
	together(t, f, other)
	here.TellStore(t.Context())
	if n := takes(t, 20, r, there); n != 4 {
		t.Errorf("%d were taken after that of nine, five of which were used", n)
	}
}

// TestRunTellsUses: Run tells the server what it does not know, once a second and at the end.
func TestRunTellsUses(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	settled(t, s.URL())
	f, err := patient(Options{URL: s.URL(), Replicas: 1, Log: slog.New(slog.DiscardHandler)})
	testkit.Must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	told, ended := make(chan struct{}, 100), make(chan error)
	hooks := Hooks{Clocks: (&replica{}).sent, Recheck: func() {}, BackOff: (&replica{}).pause, Tell: func(ctx context.Context) {
		if ctx.Err() != nil {
			t.Error("told when it is too late")
		}
		told <- struct{}{}
	}}
	go func() { ended <- f.Run(ctx, hooks) }()
	<-told
	cancel()
	testkit.Must(t, <-ended)
	f.Close()
	if len(told) == 0 {
		t.Error("not told at the end")
	}
}

// TestBuckets: what the script counts, and for how long. It has the clock of the server.
func TestBuckets(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	settled(t, s.URL())
	f := run(t, s.URL(), 1)
	together(t, f)
	admin := client(t, s.URL())
	// One bucket lasts for the whole test.
	m := policy.Meter{Name: "budget:a.test", Width: 24 * time.Hour, Span: 48 * time.Hour}
	key := meterPrefix + m.Name
	const day = 24 * 60 * 60 * 1000
	testkit.AwayFromMidnight()
	server, err := admin.Time(t.Context()).Result()
	testkit.Must(t, err)
	present := (server.UnixMilli()/day + 1) * day
	at := func(days int64) string { return fmt.Sprint(present + days*day) }
	for _, c := range []struct {
		name   string
		stored map[string]string
		untold []policy.Bucket
		limit  policy.Quota
		want   string
	}{
		{"nothing", nil, nil, policy.Quota{}, "true 0:1/0"},
		{"old buckets do not count", map[string]string{at(-3): "5 5", at(-2): "4 4", at(-1): "3 3"}, nil, policy.Quota{}, "true -2:4/4 -1:3/3 0:1/0"},
		{"one that ends later is part of the present one", map[string]string{at(1): "5 5", at(9): "1 1"}, nil, policy.Quota{}, "true 0:7/6"},
		{"what was not told", map[string]string{at(0): "5 5"},
			[]policy.Bucket{{End: present - 3*day, Use: policy.Use{Requests: 9}}, {End: present - day, Use: policy.Use{Bytes: 2}}, {End: present, Use: policy.Use{Requests: -2}}}, policy.Quota{}, "true -1:0/2 0:4/5"},
		{"more was given back than there was", map[string]string{at(0): "2 5"}, []policy.Bucket{{End: present, Use: policy.Use{Requests: -3}}}, policy.Quota{}, "true 0:1/5"},
		{"all was given back", map[string]string{at(-1): "1 0"}, []policy.Bucket{{End: present - day, Use: policy.Use{Requests: -1}}}, policy.Quota{}, "true 0:1/0"},
		{"the last request", map[string]string{at(-1): "3 0", at(0): "1 0"}, nil, policy.Quota{Requests: 5}, "true -1:3/0 0:2/0"},
		{"one too many", map[string]string{at(-1): "3 0", at(0): "2 0"}, nil, policy.Quota{Requests: 5}, "false -1:3/0 0:2/0"},
		{"too many bytes", map[string]string{at(-1): "3 10"}, nil, policy.Quota{Requests: 5, Bytes: 10}, "false -1:3/10"},
		{"fields and values of somebody else", map[string]string{
			"r:lab-a": "5", at(0) + "0000000": "1 1", "x": "1 1", at(-1): "-1 1", at(0): "1e9 1", "12.5": "1 1", at(1): "99999999999999999999 1",
		}, nil, policy.Quota{}, "true 0:1/0"},
	} {
		admin.Del(t.Context(), key)
		if c.stored != nil {
			testkit.Must(t, admin.HSet(t.Context(), key, c.stored).Err())
		}
		count, err := f.Take(t.Context(), 1, []policy.Charge{{Meter: m, Limit: c.limit, Untold: c.untold}})
		if err != nil || len(count.Used) != 1 {
			t.Fatalf("%s: %+v, %v", c.name, count, err)
		}
		got := fmt.Sprint(count.Taken)
		for _, b := range count.Used[0] {
			got += fmt.Sprintf(" %d:%d/%d", (b.End-present)/day, b.Requests, b.Bytes)
		}
		if got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
		if n := admin.HLen(t.Context(), key).Val(); n != int64(len(count.Used[0])) {
			t.Errorf("%s: %d fields are stored", c.name, n)
		}
		if left := admin.PTTL(t.Context(), key).Val(); count.Taken && (left <= m.Span || left > m.Span+m.Width) {
			t.Errorf("%s: kept for %v", c.name, left)
		}
		if away := count.Now.Sub(server); away < -time.Millisecond || away > testkit.Patience {
			t.Errorf("%s: %v after it was asked for the time", c.name, away)
		}
	}
}

// TestManyBuckets: a key with far more buckets than the proxy makes is cut to the newest, and forgets nothing.
func TestManyBuckets(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	settled(t, s.URL())
	f := run(t, s.URL(), 1)
	together(t, f)
	admin := client(t, s.URL())
	all, now := make([]policy.Charge, 9), time.Now().UnixMilli()
	for i := range all {
		all[i] = policy.Charge{Meter: policy.Meter{Name: fmt.Sprintf("budget:h%d.test", i), Width: time.Minute, Span: 24 * time.Hour}}
		key, values := meterPrefix+all[i].Name, map[string]string{}
		for n := range 3000 {
			values[fmt.Sprint(now-int64(n))] = "1000000 10000000000"
		}
		testkit.Must(t, admin.HSet(t.Context(), key, values).Err())
	}
	count, err := f.Take(t.Context(), 1, all)
	testkit.Must(t, err)
	for i, used := range count.Used {
		requests := int64(0)
		for _, b := range used {
			requests += b.Requests
		}
		n := admin.HLen(t.Context(), meterPrefix+all[i].Name).Val()
		if len(used) != policy.MaxBuckets || n != policy.MaxBuckets || requests != 3_000_000_001 {
			t.Errorf("%d buckets with %d requests, %d are stored", len(used), requests, n)
		}
	}
}

// TestMeterOfTheWrongType: a key of another type is deleted, and what is told is counted once.
func TestMeterOfTheWrongType(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	settled(t, s.URL())
	f := run(t, s.URL(), 1)
	together(t, f)
	charge := func(name string) policy.Charge {
		return policy.Charge{Meter: policy.Meter{Name: name, Width: time.Hour, Span: time.Hour}}
	}
	a, b := charge("budget:a.test"), charge("budget:b.test")
	now := time.Now().UnixMilli()
	a.Untold = []policy.Bucket{{End: now, Use: policy.Use{Requests: 3}}}
	testkit.Must(t, client(t, s.URL()).Set(t.Context(), meterPrefix+b.Name, "x", 0).Err())
	count, err := f.Take(t.Context(), 1, []policy.Charge{a, b})
	if err != nil || !count.Taken || f.Stats().Outages > 0 {
		t.Fatalf("%+v, %v", count, err)
	}
	requests := int64(0)
	for _, bucket := range count.Used[0] {
		requests += bucket.Requests
	}
	if requests != 4 || len(count.Used[1]) != 1 {
		t.Errorf("%+v", count)
	}
}

// TestRepliesAboutMeters: a reply that the script does not give is an error.
func TestRepliesAboutMeters(t *testing.T) {
	good := []any{int64(1), int64(1000), "5:1:2,9:0:3"}
	last := policy.Bucket{End: 9, Use: policy.Use{Bytes: 3}}
	if count, err := countOf(good, 1); err != nil || !count.Taken || len(count.Used[0]) != 2 || count.Used[0][1] != last {
		t.Errorf("%+v, %v", count, err)
	}
	long := strings.TrimSuffix(strings.Repeat("5:1:2,", policy.MaxBuckets+1), ",")
	for name, reply := range map[string][]any{
		"nothing": nil, "no time": {int64(1)}, "no meter": {int64(1), int64(1000)}, "not text": {int64(1), int64(1000), int64(3)},
		"two numbers": {int64(1), int64(1000), "5:1"}, "four": {int64(1), int64(1000), "5:1:2:3"}, "no number": {int64(1), int64(1000), "5:1:x"},
		"negative": {int64(1), int64(1000), "5:-1:2"}, "too large": {int64(1), int64(1000), "5:9007199254740993:2"},
		"beyond int64": {int64(1), int64(1000), "5:99999999999999999999:2"}, "not in order": {int64(1), int64(1000), "9:1:2,5:1:2"},
		"an end": {int64(1), int64(1000), "9:1:2,"}, "too many": {int64(1), int64(1000), long},
	} {
		if count, err := countOf(reply, 1); err == nil {
			t.Errorf("%s: %+v", name, count)
		}
	}
}
