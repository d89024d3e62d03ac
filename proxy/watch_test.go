package proxy

import (
	"testing"
	"testing/synctest"
	"time"
)

const maxSilence = 5 * time.Minute

func TestWatchEndsWhatStandsStill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := watch{limit: maxSilence}
		var ended time.Time
		began := time.Now()
		w.begin(func() { ended = time.Now() })
		for range 5 {
			<-time.After(maxSilence - time.Second)
			w.moved()
		}
		last := time.Since(began)
		<-time.After(3 * maxSilence)
		synctest.Wait()
		if after := ended.Sub(began) - last; after < maxSilence-time.Second || after > 2*maxSilence || !w.silent.Load() {
			t.Errorf("ended %v after something had moved", after)
		}
		w.stop()
	})
}

func TestWatchThatIsOverEndsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := watch{limit: maxSilence}
		w.begin(func() { t.Error("ended") })
		w.stop()
		<-time.After(3 * maxSilence)
		w.begin(func() {})
		w.stop()
	})
}
