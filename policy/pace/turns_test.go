package pace

import (
	"math/rand/v2"
	"testing"
	"time"
)

// TestTurnsKeepTheGap: no two processes whose clocks differ by less than the Guard send within the gap, wherever in its
// turn each of them sends, and none loses its turn because it has used the one before.
func TestTurnsKeepTheGap(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 20000 {
		gap := time.Duration(random.Int64N(int64(20 * time.Second)))
		all := Turns{Of: 2 + random.IntN(9), Guard: time.Duration(random.Int64N(int64(time.Second)))}
		now := time.Unix(1_800_000_000, random.Int64N(1e12))
		i, skew := random.IntN(all.Of), time.Duration(random.Int64N(2*int64(all.Guard)+1))-all.Guard
		one, two := all, all
		one.Number, two.Number = i, (i+1+random.IntN(all.Of-1))%all.Of
		from, until := one.next("a.test", gap, now)
		// from2 and until2 are by the other clock.
		from2, until2 := two.next("a.test", gap, now.Add(skew))
		from2, until2 = from2.Add(-skew), until2.Add(-skew)
		if from.Before(now) || until.Before(from) {
			t.Fatalf("%+v, gap %v: at %v the next turn is from %v to %v", one, gap, now, from, until)
		}
		if d := max(from2.Sub(until), from.Sub(until2)); d < gap && gap > 0 {
			t.Fatalf("%+v and turn %d, gap %v, clocks %v apart: only %v between two turns", one, two.Number, gap, skew, d)
		}
		if again, _ := one.next("a.test", gap, until.Add(one.gap(gap))); gap > 0 && again.Sub(until) != one.gap(gap) {
			t.Fatalf("%+v, gap %v: the next request may be sent after %v, the next turn comes after %v", one, gap, one.gap(gap), again.Sub(until))
		}
	}
}
