package policy_test

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"robotsproxy/policy"
	"robotsproxy/policy/stops"
	"robotsproxy/robots"
)

// A coolingSite sends requests of clients to hosts that answer as they are told.
type coolingSite struct {
	t     *testing.T
	e     *policy.Engine
	table *stops.Table
	began []stops.Stop
}

func newCoolingSite(t *testing.T, c policy.CoolDown, entries ...policy.Host) *coolingSite {
	s := &coolingSite{t: t, table: stops.New()}
	s.e = engine(t, file(""), policy.Options{
		CoolDown: c, Hosts: entries, Stops: s.table, CooledDown: func(stop stops.Stop) { s.began = append(s.began, stop) },
	})
	return s
}

func requestOf(client, host, path string) policy.Request {
	return policy.Request{Client: client, Target: robots.Target{Origin: robots.Origin{Scheme: "https", Host: host, Port: 443}, PathQuery: path}, UserAgent: "FooBot"}
}

// begin begins a request, or returns "held for TIME".
func (s *coolingSite) begin(client, host string) (policy.Attempt, string) {
	s.t.Helper()
	r := requestOf(client, host, "/page")
	d := s.e.Decide(s.t.Context(), r)
	err := d.Err
	var a policy.Attempt
	if d.Verdict == policy.Allow {
		if a, err = s.e.Attempt(&r, &d); err == nil {
			err = s.e.MaySend(&r, &d)
		}
	}
	if err == nil {
		return a, ""
	}
	held, ok := errors.AsType[*policy.HoldError](err)
	if !ok || held.Reason != policy.ReasonCoolDown {
		s.t.Fatalf("%+v, %v", d, err)
	}
	a.End()
	return a, fmt.Sprint("held for ", time.Until(held.Until))
}

// ask sends requests with these answers. A request without an answer has the status 0. The result is the first that is not sent.
func (s *coolingSite) ask(client, host string, statuses ...int) string {
	s.t.Helper()
	for _, status := range statuses {
		a, held := s.begin(client, host)
		if held != "" {
			return held
		}
		if status > 0 {
			a.Answered(status)
		}
		a.End()
	}
	return ""
}

func times(n, status int) []int { return slices.Repeat([]int{status}, n) }

var minutes = policy.CoolDown{After: 3, Within: time.Minute, Statuses: []int{401, 403, 429, 503}, Pause: 10 * time.Minute}

// TestCoolDown: which answers stop a client at a host.
func TestCoolDown(t *testing.T) {
	for _, c := range []struct {
		name string
		sent []int
		held bool
	}{
		{"three in a row", []int{403, 403, 403}, true},
		{"of several statuses", []int{401, 429, 503}, true},
		{"two are not enough", []int{403, 403}, false},
		{"2xx between them", []int{403, 403, 206, 403, 403}, false},
		{"3xx between them", []int{403, 403, 304, 403, 403}, false},
		{"other errors between them", []int{403, 404, 403, 500, 403}, true},
		{"no answer between them", []int{403, 0, 403, 0, 403}, true},
		{"statuses that do not count", []int{404, 451, 500, 404, 410}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newCoolingSite(t, minutes)
				if got := s.ask("a", "site.test", c.sent...); got != "" {
					t.Fatal(got)
				}
				want, stops := "", 0
				if c.held {
					want, stops = "held for 10m0s", 1
				}
				if got := s.ask("a", "site.test", 200); got != want || len(s.began) != stops {
					t.Errorf("%q, want %q; %v", got, want, s.began)
				}
				if got := s.ask("b", "site.test", 200) + s.ask("a", "other.test", 200); got != "" {
					t.Errorf("another client, or host: %s", got)
				}
			})
		})
	}
}

func TestCoolDownCountsWithinATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newCoolingSite(t, minutes)
		for range 10 {
			s.ask("a", "site.test", 403)
			time.Sleep(31 * time.Second)
		}
		if got := s.ask("a", "site.test", 403); got != "" {
			t.Fatal(got)
		}
		time.Sleep(28 * time.Second)
		s.ask("a", "site.test", 403)
		if got := s.ask("a", "site.test", 200); got != "held for 10m0s" {
			t.Errorf("%q", got)
		}
	})
}

// TestCoolDownIsProbed: after the time one request goes first, and the time doubles until one is answered well.
func TestCoolDownIsProbed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newCoolingSite(t, minutes)
		s.ask("a", "site.test", times(3, 403)...)
		for _, want := range []time.Duration{10 * time.Minute, 20 * time.Minute, 40 * time.Minute} {
			if got := s.ask("a", "site.test", 200); got != fmt.Sprint("held for ", want) {
				t.Fatalf("%q, want %v", got, want)
			}
			time.Sleep(want)
			probe, held := s.begin("a", "site.test")
			if held != "" {
				t.Fatalf("the probe is %s", held)
			}
			if got := s.ask("a", "site.test", 200); got != "held for 5s" {
				t.Errorf("beside the probe: %q", got)
			}
			probe.Answered(429)
			probe.End()
		}
		time.Sleep(80 * time.Minute)
		for _, status := range []int{0, 404} {
			if got := s.ask("a", "site.test", status); got != "" {
				t.Errorf("a probe after one without a result: %q", got)
			}
		}
		probe, _ := s.begin("a", "site.test")
		probe.Answered(200)
		if got := s.ask("a", "site.test", 403, 403, 200, 403, 403, 403, 200); got != "held for 10m0s" {
			t.Errorf("after a probe that was served: %q", got)
		}
		probe.End()
		if n := len(s.began); n != 5 || !slices.Equal(s.began[0].Statuses, []int{403}) || !slices.Equal(s.began[1].Statuses, []int{429}) {
			t.Errorf("%d stops: %v", n, s.began)
		}
	})
}

func TestCoolDownLastsADayAtMost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newCoolingSite(t, minutes)
		s.ask("a", "site.test", times(3, 403)...)
		var last time.Duration
		for range 12 {
			last = time.Until(s.began[len(s.began)-1].Until)
			time.Sleep(last)
			s.ask("a", "site.test", 403)
		}
		if last != 24*time.Hour {
			t.Errorf("the last one lasts %v", last)
		}
	})
}

// TestCoolDownOfAllClients: when two clients are stopped, or the proxy's own fetches are refused, all are.
func TestCoolDownOfAllClients(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newCoolingSite(t, minutes)
		s.ask("a", "site.test", times(3, 403)...)
		time.Sleep(time.Minute)
		// Its robots.txt is served to everybody.
		s.e.FetchAnswered(requestOf("", "site.test", "/").Origin, 200)
		s.ask("b", "site.test", times(3, 429)...)
		for _, client := range []string{"a", "b", "c"} {
			if got := s.ask(client, "site.test", 200); got != "held for 10m0s" {
				t.Errorf("%s: %q", client, got)
			}
		}
		if last := s.began[len(s.began)-1]; last.Client != "" || !slices.Equal(last.Statuses, []int{403, 429}) {
			t.Errorf("%+v", last)
		}
		if err := s.e.MayFetch(fileOf(requestOf("", "site.test", "/").Origin)); err == nil {
			t.Error("robots.txt may be fetched")
		}
		time.Sleep(10 * time.Minute)
		probe, _ := s.begin("c", "site.test")
		if got := s.ask("a", "site.test", 200); got != "held for 5s" {
			t.Errorf("beside the probe: %q", got)
		}
		probe.Answered(200)
		probe.End()
		if got := s.ask("c", "site.test", 200, 200) + s.ask("a", "site.test", 200, 200) + s.ask("b", "site.test", 200, 200); got != "" {
			t.Errorf("after the probe: %q", got)
		}
		// One of them alone stops nobody else later.
		s.ask("a", "site.test", times(3, 403)...)
		time.Sleep(10 * time.Minute)
		s.ask("b", "site.test", times(3, 403)...)
		if got := s.ask("c", "site.test", 200); got != "" {
			t.Errorf("one after the other: %q", got)
		}
		for range 3 {
			s.e.FetchAnswered(requestOf("", "robots.test", "/").Origin, 503)
		}
		if got := s.ask("c", "robots.test", 200); got != "held for 10m0s" {
			t.Errorf("after refused fetches: %q", got)
		}
	})
}

// TestCoolDownAndFetch: one refusal of the proxy's own fetch is enough to stop all, if a client is stopped.
func TestCoolDownAndFetch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newCoolingSite(t, minutes)
		s.e.FetchAnswered(requestOf("", "site.test", "/").Origin, 403)
		if got := s.ask("b", "site.test", 200); got != "" {
			t.Errorf("before a client is stopped: %q", got)
		}
		s.ask("a", "site.test", times(3, 403)...)
		s.e.FetchAnswered(requestOf("", "site.test", "/").Origin, 404)
		if got := s.ask("b", "site.test", 404); got != "" {
			t.Errorf("after another status: %q", got)
		}
		s.e.FetchAnswered(requestOf("", "site.test", "/").Origin, 403)
		if got := s.ask("b", "site.test", 200); got != "held for 10m0s" {
			t.Errorf("after a refusal: %q", got)
		}
	})
}

// TestCoolDownEnds: a cool-down that is over is forgotten after a probe that is not refused, or a day later. Tunnels do not probe.
func TestCoolDownEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct {
			name string
			end  func(s *coolingSite)
			want string
		}{
			{"a 404", func(s *coolingSite) { s.ask("a", "site.test", 404) }, ""},
			{"a refusal", func(s *coolingSite) { s.ask("a", "site.test", 403) }, "held for 20m0s"},
			{"no answer", func(s *coolingSite) { _, _ = s.begin("a", "site.test") }, "held for 5s"},
			{"a day", func(s *coolingSite) { time.Sleep(25 * time.Hour); _, _ = s.begin("a", "site.test") }, ""},
			{"a tunnel", func(s *coolingSite) {
				r := requestOf("a", "site.test", "/")
				r.Method = http.MethodConnect
				d := s.e.DecideTunnel(t.Context(), r)
				if _, err := s.e.Attempt(&r, &d); err != nil {
					t.Error(err)
				}
			}, ""},
		} {
			s := newCoolingSite(t, minutes)
			s.ask("a", "site.test", times(3, 403)...)
			time.Sleep(10 * time.Minute)
			c.end(s)
			if got := s.ask("a", "site.test", 200); got != c.want {
				t.Errorf("%s: %q, want %q", c.name, got, c.want)
			}
		}
	})
}

// TestCoolDownOfRequestsUnderWay: requests that were under way when a stop began do not lengthen it, and are not sent if they still wait.
func TestCoolDownOfRequestsUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newCoolingSite(t, minutes)
		var underWay []policy.Attempt
		for range 9 {
			a, _ := s.begin("a", "site.test")
			underWay = append(underWay, a)
		}
		time.Sleep(time.Second)
		r := requestOf("a", "site.test", "/page")
		d := s.e.Decide(t.Context(), r)
		for _, a := range underWay {
			a.Answered(403)
			a.End()
		}
		if got := s.ask("a", "site.test", 200); got != "held for 10m0s" || len(s.began) != 1 || s.e.MaySend(&r, &d) == nil {
			t.Errorf("%q, %v, %v", got, s.began, s.e.MaySend(&r, &d))
		}
	})
}

// TestCoolDownOfEntries: an entry of hosts has its own, or none, and a reload keeps what has begun.
func TestCoolDownOfEntries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newCoolingSite(t, minutes, policy.Host{Match: "off.test", CoolDown: &policy.CoolDown{}},
			policy.Host{Match: "hasty.test", CoolDown: &policy.CoolDown{After: 1, Within: time.Second, Statuses: []int{404}, Pause: time.Second}},
			policy.Host{Match: "paced.test"})
		if got := s.ask("a", "off.test", times(9, 403)...); got != "" {
			t.Errorf("off: %q", got)
		}
		if got := s.ask("a", "hasty.test", 403, 404, 200); got != "held for 1s" {
			t.Errorf("an own one: %q", got)
		}
		if got := s.ask("a", "paced.test", 403, 403, 403, 403); got != "held for 10m0s" {
			t.Errorf("an entry without one: %q", got)
		}
		s.ask("a", "site.test", 403, 403)
		e, err := s.e.Renew(policy.Options{Cache: stopped{}, CoolDown: minutes})
		if err != nil {
			t.Fatal(err)
		}
		s.e = e
		r := requestOf("a", "paced.test", "/page")
		if _, err := e.Attempt(&r, new(policy.Decision)); err == nil {
			t.Error("the reload has ended a stop")
		}
		r = requestOf("a", "site.test", "/page")
		a, err := e.Attempt(&r, new(policy.Decision))
		if a.Answered(403); err != nil || e.MaySend(&r, new(policy.Decision)) == nil {
			t.Errorf("the reload has ended a row: %v", err)
		}
	})
}

func TestCoolDownsThatAreNone(t *testing.T) {
	for _, c := range []policy.CoolDown{
		{After: 101, Within: 1, Statuses: []int{403}, Pause: 1}, {After: -1}, {After: 1, Statuses: []int{403}, Pause: 1},
		{After: 1, Within: 1, Pause: 1}, {After: 1, Within: 1, Statuses: []int{403}}, {After: 1, Within: 1, Statuses: []int{403}, Pause: 25 * time.Hour},
	} {
		for _, o := range []policy.Options{{CoolDown: c}, {Hosts: []policy.Host{{Match: "*", CoolDown: &c}}}} {
			o.Cache = stopped{}
			if _, err := policy.New(o); err == nil || !strings.Contains(err.Error(), "cool-down") {
				t.Errorf("%+v: %v", c, err)
			}
		}
	}
}

// TestRowsAreBounded: a client that is refused at very many hosts does not make the proxy forget the row of another.
func TestRowsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newCoolingSite(t, minutes)
		s.ask("b", "site.test", 403, 403)
		d := new(policy.Decision)
		for i := range 25_000 {
			r := requestOf("a", fmt.Sprintf("host-%d.test", i), "/")
			a, err := s.e.Attempt(&r, d)
			if err != nil {
				t.Fatal(err)
			}
			a.Answered(403)
		}
		s.ask("b", "site.test", 403)
		if got := s.ask("b", "site.test", 200); got != "held for 10m0s" {
			t.Errorf("%q", got)
		}
	})
}

// fileOf returns the target of an origin's robots.txt.
func fileOf(o robots.Origin) robots.Target { return robots.Target{Origin: o, PathQuery: "/robots.txt"} }
