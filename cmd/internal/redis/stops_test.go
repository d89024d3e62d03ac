package redis

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"robotsproxy/cmd/internal/redis/redistest"
	"robotsproxy/policy/stops"
	"robotsproxy/robots/testkit"
)

// pausing runs a replica that shares stops, and returns its table and a function that ends it.
func pausing(t *testing.T, url string, table *stops.Table) (r *replica, stop func()) {
	t.Helper()
	return startWith(t, patient, url, 2, Hooks{Stops: table})
}

func pauseOf(host string, d time.Duration) stops.Stop {
	s := stops.Stop{Kind: stops.Paused, Host: host, Reason: "a reason", By: "alice"}
	if d > 0 {
		s.Until = time.Now().Add(d)
	}
	return s
}

func putStop(t *testing.T, table *stops.Table, s stops.Stop) stops.Stop {
	t.Helper()
	s, err := table.Put(s)
	testkit.Must(t, err)
	return s
}

// isPaused waits until a host is paused in all tables, or in none.
func isPaused(t *testing.T, host string, want bool, tables ...*stops.Table) {
	t.Helper()
	testkit.Eventually(t, fmt.Sprintf("%q is paused: %v", host, want), func() bool {
		for _, table := range tables {
			if _, ok := table.Of(stops.Paused, host, ""); ok != want {
				return false
			}
		}
		return true
	})
}

// TestStopsAreShared: what one replica pauses, the others do, also those that start later, and the last change counts.
func TestStopsAreShared(t *testing.T) {
	t.Parallel()
	for name, url := range map[string]string{"redis": redistest.Start(t).URL(), "miniredis": mini(t)} {
		t.Run(name, func(t *testing.T) {
			settled(t, url)
			a, b, c := stops.New(), stops.New(), stops.New()
			one, endOne := pausing(t, url, a)
			two, endTwo := pausing(t, url, b)
			defer endOne()
			defer endTwo()
			together(t, one, two)
			put := putStop(t, a, pauseOf("a.test", time.Hour))
			isPaused(t, "a.test", true, a, b)
			putStop(t, b, pauseOf("", 0))
			isPaused(t, "z.test", true, a, b)
			got, _ := b.Get(put.Key())
			if got.Reason != "a reason" || got.By != "alice" || !got.Since.Equal(put.Since) || !got.Until.Equal(put.Until) {
				t.Errorf("%+v, want %+v", got, put)
			}
			if _, held := b.End(stops.Key{Kind: stops.Paused}, "bob"); !held {
				t.Error("it did not hold")
			}
			if _, held := b.End(put.Key(), "bob"); !held {
				t.Error("it did not hold")
			}
			isPaused(t, "a.test", false, a, b)
			putStop(t, a, pauseOf("b.test", 0))
			for i := range 2 * stopsRead {
				putStop(t, a, pauseOf(fmt.Sprintf("h%d.test", i), time.Hour))
			}
			isPaused(t, "b.test", true, b)
			// It has an earlier state of a pause from its own disk.
			c.Merge(put)
			three, endThree := pausing(t, url, c)
			defer endThree()
			isPaused(t, fmt.Sprintf("h%d.test", 2*stopsRead-1), true, c)
			isPaused(t, "b.test", true, c)
			isPaused(t, "a.test", false, a, b, c)
			if s := three.Stats(); s.Outages > 0 {
				t.Errorf("%+v", s)
			}
			if n := client(t, url).HLen(t.Context(), stopsKey).Val(); n != 2*stopsRead+3 {
				t.Errorf("the store has %d stops", n)
			}
		})
	}
}

// TestStopsOfAnOutage: a pause holds at once where it was made. The others get it when the store is back, and of two changes the one that
// was made later, although it arrives first.
func TestStopsOfAnOutage(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	settled(t, s.URL())
	a, b := stops.New(), stops.New()
	one, endOne := pausing(t, s.URL(), a)
	two, endTwo := pausing(t, s.URL(), b)
	defer endOne()
	defer endTwo()
	together(t, one, two)
	putStop(t, a, pauseOf("a.test", 0))
	isPaused(t, "a.test", true, a, b)
	s.Kill()
	testkit.Eventually(t, "both are alone", func() bool { return one.Standing().StoreAway && two.Standing().StoreAway })
	putStop(t, a, pauseOf("b.test", 0))
	isPaused(t, "b.test", true, a)
	isPaused(t, "b.test", false, b)
	// What they knew before is not lost with what the server had.
	s.Restart()
	together(t, one, two)
	isPaused(t, "b.test", true, a, b)
	isPaused(t, "a.test", true, a, b)
	third := stops.New()
	three, endThree := pausing(t, s.URL(), third)
	defer endThree()
	together(t, one, two, three)
	isPaused(t, "a.test", true, third)
}

// TestLaterStopCounts whoever tells of it first.
func TestLaterStopCounts(t *testing.T) {
	t.Parallel()
	url := mini(t)
	settled(t, url)
	c := client(t, url)
	sender := "one"
	tell := func(s stops.Stop) int64 {
		t.Helper()
		n, err := stopScript.Run(t.Context(), c, []string{stopsKey, stopNewsKey, stopEndsKey}, stopArgs(s, time.Now(), sender)...).Int64()
		testkit.Must(t, err)
		return n
	}
	stop := func(ago time.Duration, ended bool) stops.Stop {
		s := pauseOf("a.test", 0)
		s.Since = time.Unix(1e9, 0)
		s.Changed, s.Ended = time.Now().Add(-ago), ended
		return s
	}
	ended := func() bool {
		return strings.Contains(c.HGet(t.Context(), stopsKey, "paused|a.test|").Val(), `"ended":true`)
	}
	if tell(stop(time.Hour, false)) != 1 || tell(stop(time.Minute, true)) != 1 || !ended() {
		t.Error("a later change does not count")
	}
	if sender = "two"; tell(stop(30*time.Minute, false)) != 0 || !ended() {
		t.Error("an earlier change counts")
	}
	// The changes of one replica come in their order, however long they were under way.
	if sender = "one"; tell(stop(30*time.Minute, false)) != 1 || ended() || tell(stop(time.Minute, true)) != 1 || !ended() {
		t.Error("a later change of the same replica does not count")
	}
	before := c.ZScore(t.Context(), stopNewsKey, "paused|a.test|").Val()
	if tell(stop(time.Second, true)) != 0 || c.ZScore(t.Context(), stopNewsKey, "paused|a.test|").Val() != before {
		t.Error("the same is news")
	}
	// The clock was set back: what is known seems to come later than all that happens.
	value := c.HGet(t.Context(), stopsKey, "paused|a.test|").Val()
	_, text, _ := strings.Cut(value, " one ")
	c.HSet(t.Context(), stopsKey, "paused|a.test|", fmt.Sprintf("%d one %s", time.Now().Add(time.Hour).UnixMicro(), text))
	if tell(stop(0, false)) != 1 || ended() {
		t.Error("after the clock was set back, a change does not count")
	}
	for _, damaged := range []string{"", "x", "5", "-1 x"} {
		c.HSet(t.Context(), stopsKey, "paused|a.test|", damaged)
		if tell(stop(time.Hour, false)) != 1 {
			t.Errorf("%q stays", damaged)
		}
	}
}

// TestStoreHasFewStops: those that are of no more use are removed, and beyond the maximum cool-downs before pauses.
func TestStoreHasFewStops(t *testing.T) {
	t.Parallel()
	url := mini(t)
	c := client(t, url)
	tell := func(s stops.Stop, most int) {
		t.Helper()
		s.Since = time.Now()
		s.Changed = s.Since
		args := stopArgs(s, time.Now(), "one")
		args[0] = most
		testkit.Must(t, stopScript.Run(t.Context(), c, []string{stopsKey, stopNewsKey, stopEndsKey}, args...).Err())
	}
	cooling := func(host string, d time.Duration) stops.Stop {
		return stops.Stop{Kind: stops.CoolDown, Host: host, Client: "lab", Until: time.Now().Add(d)}
	}
	tell(pauseOf("a.test", 0), 9)
	tell(pauseOf("b.test", time.Minute), 9)
	tell(cooling("a.test", 2*time.Hour), 9)
	tell(cooling("b.test", time.Hour), 9)
	tell(cooling("c.test", 3*time.Hour), 4)
	has := func() string { return strings.Join(c.ZRange(t.Context(), stopNewsKey, 0, -1).Val(), " ") }
	if got := has(); got != "paused|a.test| paused|b.test| cool-down|a.test|lab cool-down|c.test|lab" {
		t.Errorf("%s", got)
	}
	testkit.Must(t, c.ZAdd(t.Context(), stopEndsKey, redis.Z{Score: 1, Member: "cool-down|a.test|lab"}).Err())
	tell(pauseOf("c.test", 0), 9)
	if got := has(); got != "paused|a.test| paused|b.test| cool-down|c.test|lab paused|c.test|" {
		t.Errorf("%s", got)
	}
	if n := c.HLen(t.Context(), stopsKey).Val(); n != 4 {
		t.Errorf("%d stops", n)
	}
}

// TestForeignStops: what others write into the keys of the stops stops nothing, changes nothing, and makes no replica pace alone.
func TestForeignStops(t *testing.T) {
	t.Parallel()
	url := redistest.Start(t).URL()
	settled(t, url)
	table := stops.New()
	one, end := pausing(t, url, table)
	defer end()
	together(t, one)
	c := client(t, url)
	good := pauseOf("good.test", 0)
	good.Since = time.Now()
	for i, value := range []string{
		"", "x", "5 one {}", "5 one null", "5 {}", `5 one {"kind":"later","since":"2027-01-01T00:00:00Z"}`, "99999999999999999999 one " + string(good.Text()),
		fmt.Sprintf("%d one %s", time.Now().UnixMicro(), good.Text()), // under the key of another
		"5 one " + strings.Repeat("x", maxStop),
	} {
		key := fmt.Sprintf("paused|h%d.test|", i)
		testkit.Must(t, c.HSet(t.Context(), stopsKey, key, value).Err())
		testkit.Must(t, c.ZAdd(t.Context(), stopNewsKey, redis.Z{Score: float64(time.Now().UnixMicro()), Member: key}).Err())
	}
	testkit.Must(t, c.ZAdd(t.Context(), stopNewsKey, redis.Z{Score: float64(time.Now().UnixMicro()), Member: "none"}).Err())
	key := good.Key().String()
	testkit.Must(t, c.HSet(t.Context(), stopsKey, key, fmt.Sprintf("%d one %s", time.Now().Add(time.Hour).UnixMicro(), good.Text())).Err())
	testkit.Must(t, c.ZAdd(t.Context(), stopNewsKey, redis.Z{Score: float64(time.Now().UnixMicro()), Member: key}).Err())
	isPaused(t, "good.test", true, table)
	if all := table.All(); len(all) != 1 || all[0].Changed.After(time.Now()) {
		t.Errorf("%+v", all)
	}
	if n := strings.Count(one.log.String(), "not understood"); n != 1 {
		t.Errorf("%d lines in the log:\n%s", n, one.log)
	}
	for _, key := range []string{stopsKey, stopNewsKey, stopEndsKey} {
		testkit.Must(t, c.Del(t.Context(), key).Err())
		testkit.Must(t, c.Set(t.Context(), key, "a string", 0).Err())
	}
	putStop(t, table, pauseOf("more.test", time.Hour))
	testkit.Eventually(t, "it is told", func() bool { return c.HExists(t.Context(), stopsKey, "paused|more.test|").Val() })
	if s := one.Stats(); s.StoreAway || s.Outages > 0 {
		t.Errorf("%+v", s)
	}
}

// TestManyStops: as many as a table has, each as long as it can be, arrive at a replica that starts.
func TestManyStops(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	settled(t, s.URL())
	a, b := stops.New(), stops.New()
	for i := range stops.MaxPauses {
		p := pauseOf(fmt.Sprintf("h%d.%s", i, strings.Repeat("long.", 40)+"test"), time.Hour)
		p.Reason, p.By = strings.Repeat("<", stops.MaxReason), strings.Repeat(">", stops.MaxBy)
		putStop(t, a, p)
	}
	one, endOne := pausing(t, s.URL(), a)
	defer endOne()
	two, endTwo := pausing(t, s.URL(), b)
	defer endTwo()
	together(t, one, two)
	testkit.Eventually(t, "all arrive", func() bool { return len(b.All()) == stops.MaxPauses })
	if s := two.Stats(); s.Outages > 0 {
		t.Errorf("%+v", s)
	}
}
