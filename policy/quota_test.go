package policy_test

import (
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
		{Name: "lab-a", Networks: here, PerDay: 3}, {Name: "lab-b", Networks: here, PerDay: 3}, {Name: "free", Networks: here},
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
			if last, err = e.Take("lab-a"); err != nil {
				t.Fatal(err)
			}
		}
		_, err := e.Take("lab-a")
		if asked := e.CheckQuota("lab-a"); asked == nil || asked.Error() != err.Error() {
			t.Errorf("CheckQuota: %v, and Take: %v", asked, err)
		}
		over, ok := errors.AsType[*policy.QuotaError](err)
		if !ok || !errors.Is(err, policy.ErrQuota) || over.PerDay != 3 || time.Until(over.Until) != time.Minute {
			t.Fatalf("%v, until %v", err, over)
		}
		for name, err := range map[string]error{"another client": second(e.Take("lab-b")), "one without a quota": second(e.Take("free")), "a stranger": second(e.Take("127.0.0.9"))} {
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		last.GiveBack()
		for range 2 {
			if err := e.CheckQuota("lab-a"); err != nil {
				t.Errorf("CheckQuota after one was given back: %v", err)
			}
		}
		if last, err = e.Take("lab-a"); err != nil {
			t.Errorf("after one was given back: %v", err)
		}
		if _, err := e.Take("lab-a"); err == nil {
			t.Error("one more than was given back")
		}
		<-time.After(time.Minute)
		last.GiveBack() // yesterday's
		for range 3 {
			if _, err := e.Take("lab-a"); err != nil {
				t.Errorf("the next day: %v", err)
			}
		}
		if _, err := e.Take("lab-a"); err == nil {
			t.Error("yesterday's was given back to today")
		}
	})
}

func second(_ policy.Ticket, err error) error { return err }

func TestQuotaOfManyAtOnce(t *testing.T) {
	testkit.AwayFromMidnight()
	e := counting(t)
	var all sync.WaitGroup
	granted := make(chan policy.Ticket, 50)
	for range cap(granted) {
		all.Go(func() {
			if ticket, err := e.Take("lab-a"); err == nil {
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
		"a negative quota":       {PerDay: -1},
	} {
		c.Name, c.Networks = "lab-a", here
		if _, err := policy.New(policy.Options{Cache: &cache.Cache{}, Clients: []policy.Client{c}}); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
}
