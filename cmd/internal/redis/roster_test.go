package redis

import (
	"strings"
	"testing"
	"time"

	"robotsproxy/cmd/internal/redis/redistest"
	"robotsproxy/policy/pace"
	"robotsproxy/robots/testkit"
)

// runNamed runs a replica that tells the others its name.
func runNamed(t *testing.T, url, name string, replicas int) (r *replica, stop func()) {
	open := func(o Options) (*Fleet, error) {
		o.Name = name
		return patient(o)
	}
	self := func() Member { return Member{Name: name, Version: "v1", Problems: []string{"disk"}} }
	return startWith(t, open, url, replicas, Hooks{Self: self})
}

// TestRoster: each replica has a number of its own, which it keeps, and knows of the others.
func TestRoster(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	settled(t, s.URL())
	var all []*replica
	var stops []func()
	for _, name := range []string{"a", "b", "c"} {
		r, stop := runNamed(t, s.URL(), name, 3)
		all, stops = append(all, r), append(stops, stop)
		defer stop()
		testkit.Eventually(t, name+" has a number", func() bool { return r.view.Load().number > 0 })
	}
	numbers := map[int]bool{}
	for _, r := range all {
		numbers[r.view.Load().number] = true
		testkit.Eventually(t, "all know all", func() bool { return len(r.Stats().Members) == 3 })
		for i, m := range r.Stats().Members {
			if want := string(rune('a' + i)); m.Name != want || m.Self != (want == r.name) || m.Version != "v1" || len(m.Problems) != 1 {
				t.Errorf("%s knows %+v, want %s", r.name, m, want)
			}
		}
	}
	if len(numbers) != 3 || !numbers[1] || !numbers[2] || !numbers[3] {
		t.Errorf("numbers are %v", numbers)
	}
	gone := all[1].view.Load().number
	stops[1]()
	next, stop := runNamed(t, s.URL(), "d", 3)
	defer stop()
	testkit.Eventually(t, "the successor has a number", func() bool { return next.view.Load().number > 0 })
	if n := next.view.Load().number; n != gone {
		t.Errorf("the successor has number %d, want %d, which is free", n, gone)
	}
	testkit.Eventually(t, "the others know it", func() bool {
		names := ""
		for _, m := range all[0].Stats().Members {
			names += m.Name
		}
		return names == "acd"
	})
	<-time.After(settledFor)
	s.Kill()
	testkit.Eventually(t, "they are alone", func() bool { return all[0].Standing().StoreAway && next.Standing().StoreAway })
	one, two := all[0].Standing().Turns, next.Standing().Turns
	if one.Of != 3 || two.Of != 3 || one.Number == two.Number || one.Guard < minGuard || one.From.Before(all[0].Standing().Since) {
		t.Errorf("turns are %+v and %+v", one, two)
	}
}

// TestTurnByName: a replica that has never met the others has a turn, the same after a restart.
func TestTurnByName(t *testing.T) {
	t.Parallel()
	seen := map[int]bool{}
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		turns := (&connection{name: name}).turns(enrolment{}, 3)
		if again := (&connection{name: name}).turns(enrolment{}, 3); turns != again || turns.Number < 0 || turns.Number > 2 {
			t.Errorf("%s: %+v, then %+v", name, turns, again)
		}
		seen[turns.Number] = true
	}
	if len(seen) == 1 {
		t.Errorf("all have the turn %v", seen)
	}
}

func TestGuard(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	for _, c := range []struct {
		name    string
		members []Member
		want    time.Duration
	}{
		{"nobody", nil, minGuard},
		{"one", []Member{{ClockAhead: time.Hour, ClockError: ms}}, minGuard},
		{"clocks that agree", []Member{{ClockAhead: -100 * ms, ClockError: ms}, {ClockAhead: -90 * ms, ClockError: ms}}, minGuard},
		{"clocks that differ", []Member{{ClockAhead: -100 * ms, ClockError: 2 * ms}, {ClockAhead: 200 * ms, ClockError: ms}}, 400 * ms},
		{"clocks that differ by the most", []Member{{}, {ClockAhead: maxGuard}}, maxGuard},
		{"a clock of another day", []Member{{}, {ClockAhead: 24 * time.Hour}}, 2 * maxGuard},
	} {
		if got := guard(c.members); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

// TestMemberIsBounded: what a replica tells fits what the others read.
func TestMemberIsBounded(t *testing.T) {
	t.Parallel()
	for _, m := range []Member{
		{Name: "a", Dashboard: strings.Repeat("x", maxMember)},
		{Name: "a", Problems: make([]string, maxMember)},
		{Name: strings.Repeat("a", maxMember)},
	} {
		if text := m.text(); len(text) > maxMember || !strings.HasPrefix(text, "{") {
			t.Errorf("%d bytes are told: %.40s", len(text), text)
		}
	}
}

func TestWarnings(t *testing.T) {
	t.Parallel()
	same := func(name string) Member { return Member{Name: name, Version: "v1", Config: "a"} }
	for _, c := range []struct {
		name string
		s    Stats
		want string
	}{
		{"alike", Stats{Members: []Member{same("a"), same("b")}, Times: 1}, ""},
		{"a newer version", Stats{Members: []Member{same("a"), {Name: "b", Version: "v2", Config: "a"}, same("c")}},
			"replicas run different versions: v1 at a, c; v2 at b"},
		{"another configuration", Stats{Members: []Member{same("a"), {Name: "b", Version: "v1", Config: "b"}}},
			"replicas run different configurations: a at a; b at b"},
		{"one that has told nothing", Stats{Members: []Member{same("a"), {}}}, ""},
		{"two of a name", Stats{Members: []Member{same("a"), same("a")}}, "2 replicas are called a: give each its own store.replica"},
		{"too few", Stats{Replicas: 2, Expected: 3, Times: 1.5},
			"2 of 3 replicas (store.replicas) share the store, so requests are sent 1.5 times slower than permitted"},
		{"the store is away", Stats{StoreAway: true, Replicas: 2, Expected: 3, Times: 3}, ""},
	} {
		if got := strings.Join(c.s.Warnings(), "\n"); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

// TestNoTurnsIfClocksDiffer: replicas whose clocks differ too much keep to their share of the rate.
func TestNoTurnsIfClocksDiffer(t *testing.T) {
	t.Parallel()
	if turns := (&connection{}).turns(enrolment{number: 1, guard: 2 * maxGuard}, 3); turns != (pace.Turns{}) {
		t.Errorf("%+v", turns)
	}
}

// TestWhatOthersTellIsBounded: whoever can write to the store can tell anything.
func TestWhatOthersTellIsBounded(t *testing.T) {
	t.Parallel()
	for _, text := range []any{nil, 5, "", "[]", "{", `{"name":5}`, `{"name":"` + strings.Repeat("a", maxMember) + `"}`} {
		if m, ok := memberOf(text); ok {
			t.Errorf("%.20v is %+v", text, m)
		}
	}
	m, ok := memberOf(`{"clock_ahead_ns":-9223372036854775808,"clock_error_ns":9223372036854775807,"last_hour":{"a":-1,"b":9223372036854775807}}`)
	if !ok || m.ClockAhead != -maxAhead || m.ClockError != maxAhead || m.LastHour["a"] != 0 || m.LastHour["b"] != 1<<40 {
		t.Errorf("%+v, %v", m, ok)
	}
}

// TestGuardIsShared: all replicas use the guard that one of them has found necessary, and a number that no replica needs is
// not kept.
func TestGuardIsShared(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	settled(t, s.URL())
	admin := client(t, s.URL())
	admin.Set(t.Context(), guardKey, 400, time.Minute)
	admin.HSet(t.Context(), numbersKey, "gone", 2)
	r, stop := runNamed(t, s.URL(), "a", 3)
	defer stop()
	testkit.Eventually(t, "it uses the guard of the others", func() bool { return r.Stats().Guard == 400*time.Millisecond })
	if n := r.view.Load().number; n != 1 {
		t.Errorf("its number is %d", n)
	}
	admin.HSet(t.Context(), numbersKey, r.id, 4)
	admin.Set(t.Context(), numbersKey, "of another type", 0)
	testkit.Eventually(t, "the keys are mended", func() bool { return admin.HGet(t.Context(), numbersKey, r.id).Val() == "1" })
	if r.Standing().StoreAway || r.Stats().Outages > 0 {
		t.Errorf("it is alone: %+v", r.Stats())
	}
}
