package stops

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// pause returns a pause of a host that ends after d; 0: it has no end.
func pause(host string, d time.Duration) Stop {
	s := Stop{Kind: Paused, Host: host, Reason: "a reason", By: "alice"}
	if d > 0 {
		s.Until = time.Now().Add(d)
	}
	return s
}

// cooling returns a cool-down of a client at a host.
func cooling(host, client string, d time.Duration) Stop {
	return Stop{Kind: CoolDown, Host: host, Client: client, Until: time.Now().Add(d), Statuses: []int{403}, Length: d}
}

func put(t *testing.T, table *Table, all ...Stop) {
	t.Helper()
	for _, s := range all {
		if _, err := table.Put(s); err != nil {
			t.Fatal(err)
		}
	}
}

// TestOfFindsTheOneThatHoldsLongest among those for the host or all, and the client or all.
func TestOfFindsTheOneThatHoldsLongest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := New()
		if _, ok := table.Of(Paused, "a.test", "lab"); ok || table.Any() {
			t.Error("an empty table has a stop")
		}
		put(t, table, pause("a.test", time.Hour), cooling("a.test", "lab", 3*time.Hour), cooling("b.test", "", time.Minute))
		for _, c := range []struct {
			kind               Kind
			host, client, want string
		}{
			{Paused, "a.test", "lab", "paused|a.test|"},
			{Paused, "a.test", "", "paused|a.test|"},
			{Paused, "b.test", "lab", ""},
			{Paused, "www.a.test", "lab", ""},
			{CoolDown, "a.test", "lab", "cool-down|a.test|lab"},
			{CoolDown, "a.test", "other", ""},
			{CoolDown, "b.test", "lab", "cool-down|b.test|"},
			{CoolDown, "b.test", "other", "cool-down|b.test|"},
		} {
			s, ok := table.Of(c.kind, c.host, c.client)
			if ok != (c.want != "") || ok && s.Key().String() != c.want {
				t.Errorf("%s at %s for %s: %+v, want %q", c.kind, c.host, c.client, s, c.want)
			}
		}
		put(t, table, pause("", 0))
		if s, ok := table.Of(Paused, "a.test", "lab"); !ok || s.Host != "" {
			t.Errorf("without an end: %+v", s)
		}
		if all := table.All(); len(all) != 4 || all[2].Key() != (Key{Paused, "", ""}) {
			t.Errorf("%+v", all)
		}
	})
}

// TestStopsEnd by themselves at their time, and when somebody ends them.
func TestStopsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := New()
		put(t, table, pause("a.test", time.Hour), pause("b.test", 0))
		began := time.Now()
		<-time.After(time.Hour - 1)
		if _, ok := table.Of(Paused, "a.test", ""); !ok {
			t.Error("it has ended too soon")
		}
		<-time.After(1)
		if _, ok := table.Of(Paused, "a.test", ""); ok {
			t.Error("it has not ended")
		}
		put(t, table, pause("b.test", time.Hour))
		if s, _ := table.Of(Paused, "b.test", ""); !s.Since.Equal(began) || s.Until.IsZero() {
			t.Errorf("a pause that was changed: %+v", s)
		}
		ended, held := table.End(Key{Paused, "b.test", ""}, "bob")
		if _, ok := table.Of(Paused, "b.test", ""); ok || !held || !ended.Ended || ended.By != "bob" || ended.Reason != "a reason" {
			t.Errorf("%+v, %v", ended, held)
		}
		for _, host := range []string{"a.test", "b.test", "c.test"} {
			if _, held := table.End(Key{Paused, host, ""}, "bob"); held {
				t.Errorf("the pause of %s is ended again", host)
			}
		}
		if table.Any() || table.All() != nil {
			t.Errorf("%+v are left", table.All())
		}
		put(t, table, pause("a.test", time.Minute))
		if s, ok := table.Of(Paused, "a.test", ""); !ok || s.Since.Equal(began) {
			t.Errorf("a new pause: %+v", s)
		}
	})
}

// TestLastChangeCounts whatever the order in which changes arrive, and a stop that was ended does not come back.
func TestLastChangeCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one, two := New(), New()
		put(t, one, pause("a.test", 0))
		<-time.After(time.Second)
		began, _ := one.Get(Key{Paused, "a.test", ""})
		if !two.Merge(began) || two.Merge(began) {
			t.Error("a stop is taken over once")
		}
		ended, _ := two.End(began.Key(), "bob")
		if !one.Merge(ended) || one.Merge(began) || two.Merge(began) {
			t.Error("an earlier change takes the place of a later one")
		}
		<-time.After(pauseKept - time.Second)
		if third := New(); !third.Merge(ended) || third.Merge(began) {
			t.Error("an end is forgotten too soon")
		}
		<-time.After(time.Second)
		if New().Merge(ended) {
			t.Error("an end is remembered for ever")
		}
		if _, ok := one.Of(Paused, "a.test", ""); ok {
			t.Error("it holds")
		}
	})
}

// TestChangeCountsAfterClockWasSetBack: what an operator does now takes the place of a change that seems to be later.
func TestChangeCountsAfterClockWasSetBack(t *testing.T) {
	table := New()
	late := pause("a.test", 0)
	late.Since, late.Changed = time.Now(), time.Now().Add(time.Hour)
	table.Merge(late)
	ended, held := table.End(late.Key(), "bob")
	if _, ok := table.Of(Paused, "a.test", ""); !held || ok || !ended.Changed.After(late.Changed) {
		t.Errorf("%+v", ended)
	}
	again, err := table.Put(pause("a.test", 0))
	if _, ok := table.Of(Paused, "a.test", ""); err != nil || !ok || !again.Changed.After(ended.Changed) {
		t.Errorf("%+v, %v", again, err)
	}
}

// TestChanges: each change is told once, and those of others apart from own ones.
func TestChanges(t *testing.T) {
	table := New()
	woken := func() bool {
		select {
		case <-table.Wake():
			return true
		default:
			return false
		}
	}
	put(t, table, pause("a.test", 0))
	other := pause("b.test", 0)
	other.Since, other.Changed = time.Now(), time.Now()
	if !woken() {
		t.Error("Put does not wake")
	}
	table.Merge(other)
	if woken() {
		t.Error("Merge wakes")
	}
	all, last := table.Changes(0, false)
	own, _ := table.Changes(0, true)
	if len(all) != 2 || len(own) != 1 || own[0].Host != "a.test" {
		t.Errorf("%+v, of which own: %+v", all, own)
	}
	if more, same := table.Changes(last, false); more != nil || same != last {
		t.Errorf("%+v", more)
	}
	table.End(other.Key(), "bob")
	if more, _ := table.Changes(last, true); len(more) != 1 || !more[0].Ended || !woken() {
		t.Errorf("%+v", more)
	}
	// The same again, but for the time.
	_, last = table.Changes(0, false)
	same, _ := table.Get(Key{Paused, "a.test", ""})
	same.Changed = same.Changed.Add(time.Millisecond)
	if table.Merge(same) {
		t.Error("a stop without a change was taken over")
	}
	if more, _ := table.Changes(last, false); more != nil {
		t.Errorf("%+v", more)
	}
	if keys := table.Keys(); len(keys) != 2 || !keys["paused|a.test|"] {
		t.Errorf("%v", keys)
	}
}

// TestBounds: the cool-downs of the client that has most make room, first those that are over. Pauses make room only if they are over.
func TestBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := New()
		put(t, table, pause("", 0), cooling("a.test", "quiet", time.Hour), cooling("a.test", "", time.Hour))
		<-time.After(time.Second)
		for i := range 2 * MaxCoolDowns {
			put(t, table, cooling(fmt.Sprintf("h%d.test", i), "loud", 2*time.Hour))
		}
		has := func(k Kind, host, client string) bool {
			s, _ := table.Get(Key{k, host, client})
			return s.Holds(time.Now()) && s.Kind != ""
		}
		if n := table.counts[CoolDown]; n > MaxCoolDowns || n < MaxCoolDowns-removeAtOnce {
			t.Errorf("%d cool-downs", n)
		}
		if !has(Paused, "", "") || !has(CoolDown, "a.test", "quiet") || !has(CoolDown, "a.test", "") || !has(CoolDown, fmt.Sprintf("h%d.test", 2*MaxCoolDowns-1), "loud") {
			t.Error("those of others, or the last one, are gone")
		}
		table.End(Key{CoolDown, fmt.Sprintf("h%d.test", 2*MaxCoolDowns-1), "loud"}, "")
		for i := range removeAtOnce {
			put(t, table, cooling(fmt.Sprintf("n%d.test", i), "loud", time.Hour))
		}
		if s, ok := table.Get(Key{CoolDown, fmt.Sprintf("h%d.test", 2*MaxCoolDowns-1), "loud"}); ok {
			t.Errorf("what is over stays: %+v", s)
		}
		for i := range MaxCoolDowns {
			put(t, table, cooling("c.test", fmt.Sprintf("one of many %d", i), time.Hour))
		}
		if loud := table.counts[CoolDown]; loud != MaxCoolDowns || has(CoolDown, "n0.test", "loud") {
			t.Errorf("%d cool-downs of many clients", loud)
		}
		for i := range MaxPauses - 1 {
			put(t, table, pause(fmt.Sprintf("p%d.test", i), 0))
		}
		if _, err := table.Put(pause("more.test", 0)); !errors.Is(err, ErrFull) {
			t.Errorf("one pause too many: %v", err)
		}
		table.End(Key{Paused, "p0.test", ""}, "")
		put(t, table, pause("more.test", 0), pause("p1.test", time.Hour))
		if !has(Paused, "more.test", "") || has(Paused, "p0.test", "") || table.counts[Paused] != MaxPauses {
			t.Errorf("%d pauses", table.counts[Paused])
		}
		<-time.After(3*time.Hour + coolDownKept)
		put(t, table, cooling("last.test", "loud", time.Hour))
		if n := len(table.Keys()); n != MaxPauses+1 {
			t.Errorf("%d stops, of which no cool-down but the last is of use", n)
		}
	})
}

// TestOnStop: a function is called once, at once if a stop holds, and not after it was cancelled.
func TestOnStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := New()
		calls := map[string]int{}
		count := func(name string) func() { return func() { calls[name]++ } }
		defer table.OnStop(Paused, "a.test", "lab", count("a"))()
		defer table.OnStop(Paused, "b.test", "lab", count("b"))()
		table.OnStop(Paused, "a.test", "lab", count("cancelled"))()
		put(t, table, cooling("a.test", "lab", time.Hour))
		if len(calls) > 0 {
			t.Errorf("a cool-down calls %v", calls)
		}
		put(t, table, pause("a.test", time.Hour))
		put(t, table, pause("a.test", time.Minute))
		defer table.OnStop(Paused, "a.test", "lab", count("at once"))()
		if calls["a"] != 1 || calls["b"] != 0 || calls["at once"] != 1 || calls["cancelled"] != 0 {
			t.Errorf("%v", calls)
		}
		all := pause("", 0)
		all.Since, all.Changed = time.Now(), time.Now()
		table.Merge(all)
		if calls["a"] != 1 || calls["b"] != 1 || len(table.watches) != 0 {
			t.Errorf("after a pause of all hosts: %v", calls)
		}
	})
}

// TestNilTable has no stops.
func TestNilTable(t *testing.T) {
	var table *Table
	_, of := table.Of(Paused, "a.test", "")
	_, got := table.Get(Key{Paused, "a.test", ""})
	table.OnStop(Paused, "a.test", "", func() { t.Error("called") })()
	if of || got || table.Any() || table.All() != nil {
		t.Error("it has a stop")
	}
}

// TestManyGoroutines use a table at the same time.
func TestManyGoroutines(t *testing.T) {
	table := New()
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			host := fmt.Sprintf("h%d.test", i%4)
			for range 200 {
				s, _ := table.Put(pause(host, 0))
				table.Of(Paused, host, "lab")
				cancel := table.OnStop(Paused, host, "lab", func() {})
				table.End(s.Key(), "bob")
				table.Merge(s)
				table.All()
				table.Changes(0, false)
				cancel()
			}
		})
	}
	all.Wait()
}

// TestRead: what Text returns comes back, and nothing else is accepted.
func TestRead(t *testing.T) {
	now := time.Now().UTC()
	whole := Stop{
		Kind: CoolDown, Host: "a.test", Client: "lab", Since: now, Until: now.Add(time.Hour), Reason: "<ü>", By: "alice",
		Statuses: []int{403, 503}, Length: time.Hour, Changed: now, Ended: true,
	}
	back, err := Read(whole.Text())
	if err != nil || string(back.Text()) != string(whole.Text()) || back.Key() != whole.Key() || !slices.Equal(back.Statuses, whole.Statuses) {
		t.Errorf("%+v, %v", back, err)
	}
	longest := whole
	longest.Client, longest.Reason, longest.By = strings.Repeat("&", maxClient), strings.Repeat("<", MaxReason), strings.Repeat(">", MaxBy)
	if _, err := Read(longest.Text()); err != nil || len(longest.Text()) > MaxText {
		t.Errorf("the longest has %d bytes: %v", len(longest.Text()), err)
	}
	for name, change := range map[string]func(*Stop){
		"an unknown kind":         func(s *Stop) { s.Kind = "later" },
		"no kind":                 func(s *Stop) { s.Kind = "" },
		"a pause without reason":  func(s *Stop) { s.Kind, s.Reason = Paused, "" },
		"a host with upper case":  func(s *Stop) { s.Host = "A.test" },
		"a host with a port":      func(s *Stop) { s.Host = "a.test:80" },
		"a long client":           func(s *Stop) { s.Client = strings.Repeat("x", maxClient+1) },
		"a client of two lines":   func(s *Stop) { s.Client = "a\nb" },
		"a long reason":           func(s *Stop) { s.Reason = strings.Repeat("x", MaxReason+1) },
		"a reason with a bell":    func(s *Stop) { s.Reason = "\a" },
		"a reason that turns":     func(s *Stop) { s.Reason = "\u202e" },
		"a long name":             func(s *Stop) { s.By = strings.Repeat("x", MaxBy+1) },
		"no beginning":            func(s *Stop) { s.Since = time.Time{} },
		"an end before all times": func(s *Stop) { s.Until = time.Date(-1, 1, 1, 0, 0, 0, 0, time.UTC) },
		"an end far away":         func(s *Stop) { s.Until = now.Add(MaxLength + 2*time.Hour) },
		"many statuses":           func(s *Stop) { s.Statuses = slices.Repeat([]int{403}, MaxStatuses+1) },
		"status 600":              func(s *Stop) { s.Statuses = []int{600} },
		"a negative length":       func(s *Stop) { s.Length = -1 },
	} {
		bad := whole
		change(&bad)
		if err := bad.check(); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
		if s, err := Read(bad.Text()); !errors.Is(err, ErrInvalid) || s.Kind != "" {
			t.Errorf("%s is read as %+v, %v", name, s, err)
		}
	}
	for _, text := range []string{"", "{", "null", "[]", `{"kind":1}`, `"x"`, strings.Repeat(" ", MaxText) + string(whole.Text())} {
		if _, err := Read([]byte(text)); !errors.Is(err, ErrInvalid) {
			t.Errorf("%.20q: %v", text, err)
		}
	}
	if _, err := New().Put(Stop{Kind: Paused}); !errors.Is(err, ErrInvalid) {
		t.Errorf("Put: %v", err)
	}
}

// TestOfDoesNotAllocate, whether or not a stop holds.
func TestOfDoesNotAllocate(t *testing.T) {
	empty, full := New(), New()
	put(t, full, pause("a.test", time.Hour), cooling("a.test", "lab", time.Hour))
	for _, table := range []*Table{nil, empty, full} {
		if n := testing.AllocsPerRun(100, func() {
			table.Of(Paused, "a.test", "lab")
			table.Of(CoolDown, "b.test", "lab")
		}); n > 0 {
			t.Errorf("%v allocations", n)
		}
	}
}

func BenchmarkOf(b *testing.B) {
	empty, full := New(), New()
	for i := range 100 {
		full.Put(pause(fmt.Sprintf("h%d.test", i), 0))
	}
	for name, table := range map[string]*Table{"empty": empty, "100 pauses": full} {
		b.Run(name, func(b *testing.B) {
			b.RunParallel(func(p *testing.PB) {
				for p.Next() {
					table.Of(Paused, "a.test", "lab")
				}
			})
		})
	}
}
