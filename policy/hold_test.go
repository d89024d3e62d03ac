package policy_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"robotsproxy/policy"
	"robotsproxy/policy/hours"
	"robotsproxy/policy/pace"
	"robotsproxy/policy/usage"
	"robotsproxy/robots/cache"
	"robotsproxy/robots/fetch"
	"robotsproxy/robots/testkit"
)

// schedules parses hours, each of which must be open.
func schedules(t *testing.T, texts ...string) (all []*hours.Schedule) {
	t.Helper()
	for _, text := range texts {
		s, err := hours.Parse(text)
		testkit.Must(t, err)
		all = append(all, s)
	}
	return all
}

// A fetchCount counts the fetches of a file.
type fetchCount struct {
	answers
	n *int
}

func (f fetchCount) Fetch(ctx context.Context, r fetch.Request) *fetch.Result {
	*f.n++
	return f.answers.Fetch(ctx, r)
}

// TestHours: requests are sent within the hours of their host, and wait for them no longer than they may.
func TestHours(t *testing.T) {
	const text = "User-agent: *\nDisallow: /private\nVisit-time: 0600-0845\n"
	for _, c := range []struct {
		name   string
		hours  []string
		robots bool

		// at is the time of a Saturday, in UTC, at which path is requested. known says that robots.txt was fetched before.
		at, path string
		known    bool

		// want is the reason, and for a request that is held back or waits, until when.
		want    string
		fetches int
	}{
		{name: "open", hours: []string{"00:00-05:00"}, at: "04:59", path: "/", want: "no-rule", fetches: 1},
		{name: "closed", hours: []string{"00:00-05:00"}, at: "05:00", path: "/", want: "hours until Sun 00:00"},
		{name: "closed, and robots.txt is known", hours: []string{"00:00-05:00"}, at: "05:00", path: "/", known: true, want: "hours until Sun 00:00", fetches: 1},
		{name: "a disallowed URL is disallowed at all times", hours: []string{"00:00-05:00"}, at: "05:00", path: "/private", known: true, want: "rule", fetches: 1},
		{name: "/robots.txt, which is known", hours: []string{"00:00-05:00"}, at: "05:00", path: "/robots.txt", known: true, want: "robots-txt", fetches: 1},
		{name: "/robots.txt, which is not", hours: []string{"00:00-05:00"}, at: "05:00", path: "/robots.txt", want: "hours until Sun 00:00"},
		{name: "the hours begin soon", hours: []string{"05:00-06:00"}, at: "04:59", path: "/", want: "no-rule at Sat 05:00", fetches: 1},
		{name: "the hours do not begin soon", hours: []string{"05:00-06:00"}, at: "04:58", path: "/", want: "hours until Sat 05:00"},
		{name: "all hours must be open", hours: []string{"00:00-05:00", "Sun"}, at: "04:59", path: "/", want: "hours until Sun 00:00"},
		{name: "and never are", hours: []string{"Sat", "Sun"}, at: "04:59", path: "/", want: "hours"},
		{name: "hours in turn", hours: []string{"05:00-07:00", "04:00-06:00", "05:30-08:00"}, at: "04:00", path: "/", want: "hours until Sat 05:30"},
		{name: "Visit-time", robots: true, at: "06:00", path: "/", want: "no-rule", fetches: 1},
		{name: "outside of it", robots: true, at: "08:45", path: "/", want: "hours until Sun 06:00", fetches: 1},
		{name: "Visit-time counts where the entry says so", at: "08:45", path: "/", want: "no-rule", fetches: 1},
		{name: "hours and Visit-time", hours: []string{"08:00-10:00"}, robots: true, at: "08:45", path: "/", known: true, want: "hours until Sun 08:00", fetches: 1},
		{name: "neither is open", hours: []string{"22:00-24:00"}, robots: true, at: "09:00", path: "/", known: true, want: "hours", fetches: 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := 0
				known, err := cache.New(cache.Options{Fetcher: fetchCount{file(text), &n}})
				testkit.Must(t, err)
				o := policy.Options{Cache: known, Pace: pace.Limits{PerSecond: 1, Burst: 1, MaxConcurrent: 1, MaxWait: time.Minute}}
				e, err := policy.New(o)
				testkit.Must(t, err)
				if c.known {
					e.Decide(t.Context(), ask("FooBot", "/"))
				}
				o.Hosts = []policy.Host{{Match: "*", Hours: schedules(t, c.hours...), RobotsHours: c.robots}}
				e, err = e.Renew(o)
				testkit.Must(t, err)
				at, err := time.Parse("15:04", c.at)
				testkit.Must(t, err)
				time.Sleep(at.Sub(at.Truncate(24 * time.Hour)))
				r := ask("FooBot", c.path)
				d := e.Decide(t.Context(), r)
				got := string(d.Reason)
				switch {
				case !d.Retry.IsZero():
					got += " until " + d.Retry.UTC().Format("Mon 15:04")
				case !d.Pace.NotBefore.IsZero():
					got += " at " + d.Pace.NotBefore.UTC().Format("Mon 15:04")
				}
				if got != c.want || n != c.fetches {
					t.Errorf("%s after %d fetches, want %s after %d", got, n, c.want, c.fetches)
				}
				if held := (*policy.HoldError)(nil); d.Reason == policy.ReasonHours && (!errors.As(d.Err, &held) || held.Detail == "" || !held.Until.Equal(d.Retry)) {
					t.Errorf("the error is %v", d.Err)
				}
			})
		})
	}
}

// TestMaySend: hours that end while a request waits, and those of a fetch.
func TestMaySend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := engine(t, file(""), policy.Options{Hosts: []policy.Host{
			{Match: site.Host, Paths: []string{"/late"}, Hours: schedules(t, "00:00-02:00")},
			{Match: site.Host, Hours: schedules(t, "00:00-01:00")},
		}})
		r, late := ask("FooBot", "/"), ask("FooBot", "/late")
		for name, d := range map[string]policy.Decision{
			"request": e.Decide(t.Context(), r), "tunnel": e.DecideTunnel(t.Context(), r), "CONNECT": e.DecideConnect(r),
		} {
			if d.Verdict != policy.Allow {
				t.Fatalf("%s: %+v", name, d)
			}
		}
		d, dLate := e.Decide(t.Context(), r), e.Decide(t.Context(), late)
		may := func() string {
			_, limits := e.FetchLimits(fileOf(site))
			return fmt.Sprint(e.MaySend(&r, &d) == nil, e.MaySend(&late, &dLate) == nil, e.MayFetch(fileOf(site)) == nil, limits == nil)
		}
		for _, want := range []string{"true true true true", "false true false false", "false false false false"} {
			if got := may(); got != want {
				t.Errorf("at %s: %s, want %s", time.Now().UTC().Format("15:04"), got, want)
			}
			time.Sleep(time.Hour)
		}
		for name, d := range map[string]policy.Decision{"request": e.Decide(t.Context(), r), "tunnel": e.DecideTunnel(t.Context(), r)} {
			if d.Verdict != policy.Refuse || d.Reason != policy.ReasonHours {
				t.Errorf("%s: %+v", name, d)
			}
		}
		// The requests inside are refused.
		if d := e.DecideConnect(r); d.Verdict != policy.Allow || e.MaySend(&r, &d) == nil {
			t.Errorf("CONNECT: %+v", d)
		}
	})
}

// TestHoursOfForms: if forms of a path belong to several entries, the hours of all of them must be open.
func TestHoursOfForms(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := engine(t, file(""), policy.Options{Hosts: []policy.Host{
			{Match: "*", Paths: []string{"/a/"}, Hours: schedules(t, "00:00-02:00")},
			{Match: "*", Paths: []string{"/b/"}, Hours: schedules(t, "01:00-03:00")},
		}})
		for _, want := range []string{"true false false", "true true true", "false true false", "false false false"} {
			may := func(path string) bool {
				return e.Decide(t.Context(), ask("FooBot", path)).Verdict == policy.Allow
			}
			if got := fmt.Sprint(may("/a/x"), may("/b/x"), may("/a/../b/x")); got != want {
				t.Errorf("at %s: %s, want %s", time.Now().UTC().Format("15:04"), got, want)
			}
			time.Sleep(time.Hour)
		}
	})
}

// TestHoursOfAnIgnoredFile: hours apply although robots.txt does not, and before usage does.
func TestHoursOfAnIgnoredFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := engine(t, file(""), policy.Options{
			Usage: usage.Policy{Purposes: usage.SetOf(usage.TrainAI)},
			Hosts: []policy.Host{{Match: "*", Robots: policy.Ignore, Reason: "permitted", Hours: schedules(t, "Mon")}},
		})
		if d := e.Decide(t.Context(), ask("FooBot", "/")); d.Verdict != policy.Refuse || d.Reason != policy.ReasonHours {
			t.Errorf("%+v", d)
		}
	})
}
