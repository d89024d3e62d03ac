package pace

import (
	"cmp"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

func TestHosts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		p, end := twoHosts(t, 90*time.Second)
		defer end()
		want := []HostState{
			{Key: "a.test", Waiting: 3, Since: start, UnderWay: 1, Sent: start.UTC(), Gap: time.Minute, NextSlot: start.Add(4 * time.Minute)},
			{Key: "b.test", Streams: 1, Sent: start.UTC(), Gap: time.Minute, NextSlot: start.Add(90 * time.Second), BackOffUntil: start.Add(90 * time.Second).UTC(), BackOffBy: "id"},
		}
		got := p.Hosts()
		slices.SortFunc(got, func(a, b HostState) int { return cmp.Compare(a.Key, b.Key) })
		if !slices.Equal(got, want) {
			t.Errorf("got  %+v\nwant %+v", got, want)
		}
		for _, w := range want {
			if one, ok := p.Host(w.Key, ""); !ok || one != w {
				t.Errorf("%s alone: %+v, %v", w.Key, one, ok)
			}
		}
		if one, ok := p.Host("never.test", ""); ok || one != (HostState{}) {
			t.Errorf("of a host that nobody knows: %+v", one)
		}
		if p.Stats().Hosts != 2 {
			t.Error("to be asked for made it known")
		}
	})
}

// the wait of a request equals the forecast
func TestNextSlotIsKept(t *testing.T) {
	for _, l := range []Limits{every(3 * time.Second), rule(1, 4, 0), rule(1, 1, 5*time.Second)} {
		synctest.Test(t, func(t *testing.T) {
			p := newExact()
			for range 6 {
				mustWait(t, p, "", l).send()
				state, _ := p.Host(l.Key, "")
				mustWait(t, p, "", l).send()
				if off := time.Since(state.NextSlot).Abs(); off > time.Millisecond {
					t.Errorf("%+v: sent %v beside what was foretold", l, off)
				}
			}
		})
	}
}

func TestHostOfARestoredClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sent := time.Now().Add(-time.Second)
		p := newExact()
		p.Restore([]Clock{{Key: "a.test", Sent: sent, Gap: time.Hour}})
		got, ok := p.Host("a.test", "")
		if want := (HostState{Key: "a.test", Sent: sent.UTC(), NextSlot: time.Now()}); !ok || got != want {
			t.Errorf("%+v, want %+v: no limits are known yet", got, want)
		}
	})
}
