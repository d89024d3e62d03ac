package policy_test

import (
	"context"
	"errors"
	"net/netip"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"robotsproxy/policy"
	"robotsproxy/policy/pace"
	"robotsproxy/robots/cache"
	"robotsproxy/robots/testkit"
)

func counting(t *testing.T) *policy.Engine {
	here := []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	return engine(t, file(""), policy.Options{Open: true, Clients: []policy.Client{
		{Name: "lab-a", Networks: here, Quota: policy.Quota{Requests: 3}}, {Name: "lab-b", Networks: here, Quota: policy.Quota{Requests: 3}}, {Name: "free", Networks: here},
	}})
}

// TestQuota: the days are UTC's; what was given back may be taken again.
func TestQuota(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := counting(t)
		<-time.After(23*time.Hour + 59*time.Minute) // synctest begins at midnight UTC
		var last policy.Ticket
		for range 3 {
			var err error
			if last, err = e.Take(t.Context(), by("lab-a")); err != nil {
				t.Fatal(err)
			}
		}
		_, err := e.Take(t.Context(), by("lab-a"))
		if asked := e.CheckTake(t.Context(), by("lab-a")); asked == nil || asked.Error() != err.Error() {
			t.Errorf("CheckTake: %v, and Take: %v", asked, err)
		}
		over, ok := errors.AsType[*policy.QuotaError](err)
		if !ok || !errors.Is(err, policy.ErrQuota) || over.Quota.Requests != 3 || time.Until(over.Until) != time.Minute {
			t.Fatalf("%v, until %v", err, over)
		}
		for name, err := range map[string]error{"another client": second(e.Take(t.Context(), by("lab-b"))), "one without a quota": second(e.Take(t.Context(), by("free"))), "a stranger": second(e.Take(t.Context(), by("127.0.0.9")))} {
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		last.GiveBack()
		for range 2 {
			if err := e.CheckTake(t.Context(), by("lab-a")); err != nil {
				t.Errorf("CheckTake after one was given back: %v", err)
			}
		}
		if last, err = e.Take(t.Context(), by("lab-a")); err != nil {
			t.Errorf("after one was given back: %v", err)
		}
		if _, err := e.Take(t.Context(), by("lab-a")); err == nil {
			t.Error("one more than was given back")
		}
		<-time.After(time.Minute)
		last.GiveBack() // yesterday's
		for range 3 {
			if _, err := e.Take(t.Context(), by("lab-a")); err != nil {
				t.Errorf("the next day: %v", err)
			}
		}
		if _, err := e.Take(t.Context(), by("lab-a")); err == nil {
			t.Error("yesterday's was given back to today")
		}
	})
}

func second(_ policy.Ticket, err error) error { return err }

// by is a request of a client to a host without a budget.
func by(client string) *policy.Request { return &policy.Request{Client: client} }

func TestQuotaOfManyAtOnce(t *testing.T) {
	testkit.AwayFromMidnight()
	e := counting(t)
	var all sync.WaitGroup
	granted := make(chan policy.Ticket, 50)
	for range cap(granted) {
		all.Go(func() {
			if ticket, err := e.Take(t.Context(), by("lab-a")); err == nil {
				granted <- ticket
			}
		})
	}
	all.Wait()
	if n := len(granted); n != 3 {
		t.Errorf("%d were let through, want 3", n)
	}
}

func TestClientsThatAreNone(t *testing.T) {
	here := []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	for name, c := range map[string]policy.Client{
		"a negative rate":        {Pace: pace.Rate{PerSecond: -1}},
		"a negative burst":       {Pace: pace.Rate{Burst: -1}},
		"a negative asset burst": {AssetBurst: -1},
		"a negative quota":       {Quota: policy.Quota{Requests: -1}},
	} {
		c.Name, c.Networks = "lab-a", here
		if _, err := policy.New(policy.Options{Cache: &cache.Cache{}, Clients: []policy.Client{c}}); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
}

// TestQuotaOfBytes: bytes count when a request has ended, and the next one is refused when they have reached the quota.
func TestQuotaOfBytes(t *testing.T) {
	here := []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	e := engine(t, file(""), policy.Options{Clients: []policy.Client{{Name: "lab-a", Networks: here, Quota: policy.Quota{Bytes: 1000}}}})
	for _, n := range []int64{999, -5, 0} {
		ticket, err := e.Take(t.Context(), by("lab-a"))
		testkit.Must(t, err)
		ticket.AddBytes(n)
	}
	last, err := e.Take(t.Context(), by("lab-a"))
	testkit.Must(t, err)
	last.AddBytes(1)
	_, err = e.Take(t.Context(), by("lab-a"))
	if over, ok := errors.AsType[*policy.QuotaError](err); !ok || over.Used != (policy.Use{Requests: 4, Bytes: 1000}) || over.Error() != "daily quota of the client used up: 1000 bytes" {
		t.Errorf("%v", err)
	}
}

// A sharedQuota is a QuotaStore for tests. It has one bucket for each meter.
type sharedQuota struct {
	mu   sync.Mutex
	used map[string]policy.Use
	away bool
}

func (s *sharedQuota) Take(_ context.Context, requests int64, all []policy.Charge) (policy.Count, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.away {
		return policy.Count{}, errors.New("away")
	}
	if s.used == nil {
		s.used = map[string]policy.Use{}
	}
	reply := policy.Count{Taken: true, Now: time.Now()}
	for _, c := range all {
		for _, b := range c.Untold {
			s.used[c.Name] = s.used[c.Name].Plus(b.Use, 1)
		}
		reply.Taken = reply.Taken && !c.Limit.IsReached(s.used[c.Name])
	}
	for _, c := range all {
		if reply.Taken {
			s.used[c.Name] = s.used[c.Name].Plus(policy.Use{Requests: requests}, 1)
		}
		width := c.Width.Milliseconds()
		reply.Used = append(reply.Used, []policy.Bucket{{End: (reply.Now.UnixMilli()/width + 1) * width, Use: s.used[c.Name]}})
	}
	return reply, nil
}

func (s *sharedQuota) Replicas() int64 { return 3 }

// TestSharedQuota: processes that share a store count together. While it is away, each has its share of what was left.
func TestSharedQuota(t *testing.T) {
	here := []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	var store sharedQuota
	var all []*policy.Engine
	for range 3 {
		all = append(all, engine(t, file(""), policy.Options{
			Quotas: &store, Clients: []policy.Client{{Name: "lab-a", Networks: here, Quota: policy.Quota{Requests: 100}}},
		}))
	}
	taken := 0
	takeAll := func(most int) (n int) {
		for i := range most {
			ticket, err := all[i%len(all)].Take(t.Context(), by("lab-a"))
			if err != nil && !errors.Is(err, policy.ErrQuota) {
				t.Fatal(err)
			}
			if err == nil {
				n++
			}
			if i == 0 {
				ticket.GiveBack()
				n--
			}
		}
		return n
	}
	if taken += takeAll(41); taken != 40 {
		t.Fatalf("%d were taken of 40", taken)
	}
	store.away = true
	// Each knows what the others had taken when it asked last.
	n := takeAll(200)
	if n < 54 || n > 60+len(all) {
		t.Errorf("while the store was away, %d of the 60 that were left were taken", n)
	}
	store.away = false
	for _, e := range all {
		e.TellStore(t.Context())
	}
	if taken += n + takeAll(200); taken < 100 || taken > 100+len(all) {
		t.Errorf("%d were taken of 100", taken)
	}
	if _, err := all[0].Take(t.Context(), by("lab-a")); !errors.Is(err, policy.ErrQuota) {
		t.Errorf("%v", err)
	}
}

// TestQuotaOfAClientThatLeft: a request whose client leaves while the store counts it is given back.
func TestQuotaOfAClientThatLeft(t *testing.T) {
	here := []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	var store sharedQuota
	e := engine(t, file(""), policy.Options{
		Quotas: &store, Clients: []policy.Client{{Name: "lab-a", Networks: here, Quota: policy.Quota{Requests: 1}}},
	})
	left, leave := context.WithCancel(t.Context())
	leave()
	for range 2 {
		if _, err := e.Take(left, by("lab-a")); !errors.Is(err, context.Canceled) {
			t.Errorf("%v", err)
		}
	}
	if _, err := e.Take(t.Context(), by("lab-a")); err != nil || store.used["quota:lab-a"].Requests != 1 {
		t.Errorf("%+v, %v", store.used, err)
	}
}

// TestQuotasOfTheProcessBefore: what a process before this one has counted on this day counts on, and what it counted on another
// day does not.
func TestQuotasOfTheProcessBefore(t *testing.T) {
	here := []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	o := policy.Options{Clients: []policy.Client{{Name: "lab-a", Networks: here, Quota: policy.Quota{Requests: 2}}}}
	before := engine(t, file(""), o)
	if _, err := before.Take(t.Context(), by("lab-a")); err != nil {
		t.Fatal(err)
	}
	used := before.ChangedUses()
	for day, want := range map[int64]int{0: 1, -2: 2} {
		o.Used = []policy.MeterUse{used[0]}
		o.Used[0].Buckets = []policy.Bucket{used[0].Buckets[0]}
		o.Used[0].Buckets[0].End += day * (24 * time.Hour).Milliseconds()
		e, n := engine(t, file(""), o), 0
		for range 5 {
			if _, err := e.Take(t.Context(), by("lab-a")); err == nil {
				n++
			}
		}
		if n != want {
			t.Errorf("%d requests of a day %d later, want %d", n, day, want)
		}
	}
}
