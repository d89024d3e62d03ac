package pace_test

import (
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// TestStoreOutage: under load, the Store becomes unavailable and returns. If all replicas notice at the same time, the gap
// holds throughout.
func TestStoreOutage(t *testing.T) {
	for name, away := range map[string]func(*fleet){
		"they are told": (*fleet).leave,
		"they find out": func(f *fleet) {
			for _, r := range f.replicas {
				r.store.FailNext()
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { testAway(t, away, name == "they are told") })
		})
	}
}

func testAway(t *testing.T, away func(*fleet), told bool) {
	const gap, left, back, end = time.Second, 20300 * time.Millisecond, 80700 * time.Millisecond, 150 * time.Second
	f, l := newFleet(t, 3), limits(gap)
	var wg sync.WaitGroup
	for i := range 12 {
		wg.Go(func() {
			for time.Since(f.began) < end {
				if err := f.try(i%3, string(rune('a'+i)), l, 30*time.Millisecond); err != nil {
					t.Errorf("lost: %v", err)
				}
			}
		})
	}
	pass(left)
	away(f)
	pass(back - left)
	f.comeBack()
	returned := time.Since(f.began)
	wg.Wait()

	if told {
		f.spaced("all", f.sent, gap)
	}
	f.spaced("before", f.log(0, left), gap)
	f.spaced("after", f.log(returned, end), gap)
	f.bounded(f.sent, gap, 3)
	for i := range 3 {
		alone := of(f.log(left, returned), i)
		if before := of(f.log(0, left), i); len(before) > 0 {
			alone = slices.Insert(alone, 0, before[len(before)-1])
		}
		f.spaced("alone", alone, 3*gap)
		if most := int((back - left) / (3 * gap)); len(alone) < most-2 {
			t.Errorf("replica %d sent %d while alone, want about %d", i, len(alone), most)
		}
		for _, s := range of(f.sent, i) {
			found := s.at > left+3*gap || s.at < left // by that time
			if alone := s.at > left && s.at < returned; found && alone != s.alone {
				t.Errorf("sent at %v: alone is %v", s.at, s.alone)
			}
		}
	}
	for span, n := range map[[2]time.Duration]int{{0, left}: 20, {back, end}: 66} {
		if got := len(f.log(span[0], span[1])); got < n-4 {
			t.Errorf("%d sent from %v to %v, want about %d", got, span[0], span[1], n)
		}
	}
}

// TestIdleReplicasDoNotSendAtOnce: replicas that recently sent nothing to a host, while
// another one did, lose the Store. They do not all send at once.
func TestIdleReplicasDoNotSendAtOnce(t *testing.T) {
	const n, gap = 20, time.Second
	synctest.Test(t, func(t *testing.T) {
		f, l := newFleet(t, n), limits(gap)
		for range 5 {
			f.must(0, "", l)
		}
		left := time.Since(f.began)
		f.leave()
		var wg sync.WaitGroup
		for i := range n {
			for range 4 {
				wg.Go(func() { f.must(i, "", l) })
			}
		}
		wg.Wait()
		all := f.log(left, never)
		f.bounded(all, gap, n)
		if d := f.sent[5].at - f.sent[4].at; d < gap {
			t.Errorf("the first one alone came %v after the last one before", d)
		}
		at := make(map[time.Duration]bool)
		for i := range n {
			f.spaced("alone", of(f.sent[4:], i), n*gap)
			at[of(all, i)[0].at] = true
		}
		if len(at) < n {
			t.Errorf("%d replicas began at %d times", n, len(at))
		}
	})
}

const never = 1000 * time.Hour

// TestOutageOfOneReplica: the other replicas share the rate, and all together stay within the
// limit.
func TestOutageOfOneReplica(t *testing.T) {
	const gap, end = time.Second, 120 * time.Second
	synctest.Test(t, func(t *testing.T) {
		f, l := newFleet(t, 3), limits(gap)
		var wg sync.WaitGroup
		for i := range 3 {
			wg.Go(func() {
				for time.Since(f.began) < end {
					f.must(i, "", l)
				}
			})
		}
		pass(10 * time.Second)
		f.replicas[2].store.Disconnect()
		for _, r := range f.replicas {
			r.Recheck()
		}
		wg.Wait()
		all := f.log(10*time.Second, end)
		f.bounded(all, gap, 3)
		if len(all) < 100 {
			t.Errorf("%d sent, want about 110", len(all))
		}
		f.spaced("cut off", of(all, 2), 3*gap)
	})
}
