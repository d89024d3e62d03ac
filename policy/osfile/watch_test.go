package osfile

import (
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"
)

// hang makes an operation that lasts for d.
func hang(w *Watch, d, limit time.Duration) {
	o := w.Begin(limit)
	time.Sleep(d)
	o.End()
}

func TestWatchKnowsWhatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w Watch
		go hang(&w, 12*time.Second, MaxSync)
		time.Sleep(time.Second)
		go hang(&w, 5*time.Second, MaxWrite) // begins later, and is over its limit first
		for _, step := range []struct {
			after time.Duration
			hangs bool
		}{
			{1900 * time.Millisecond, false}, {200 * time.Millisecond, true}, // at 3.1 s
			{2800 * time.Millisecond, true}, {200 * time.Millisecond, false}, // at 6.1 s
			{3800 * time.Millisecond, false}, {200 * time.Millisecond, true}, // at 10.1 s
			{1800 * time.Millisecond, true}, {200 * time.Millisecond, false}, // at 12.1 s
		} {
			time.Sleep(step.after)
			if err := w.Err(); errors.Is(err, ErrHangs) != step.hangs {
				t.Errorf("after %v more: %v", step.after, err)
			}
		}
	})
}

func TestDoGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w Watch
		if err := w.Do(MaxWrite, func() error { return io.ErrShortWrite }); err != io.ErrShortWrite {
			t.Errorf("an operation that returns: %v", err)
		}
		ends := make(chan struct{})
		if err := w.Do(MaxWrite, func() error { <-ends; return nil }); !errors.Is(err, ErrHangs) || w.Err() == nil {
			t.Errorf("one that does not: %v, then %v", err, w.Err())
		}
		again := time.Now()
		if err := w.Do(MaxWrite, func() error { t.Error("called while another hangs"); return nil }); !errors.Is(err, ErrHangs) || time.Since(again) > 0 {
			t.Errorf("one while another hangs: %v after %v", err, time.Since(again))
		}
		close(ends)
		synctest.Wait()
		if err := w.Err(); err != nil {
			t.Errorf("after its end: %v", err)
		}
		if err := w.Do(MaxWrite, func() error { panic("x") }); !errors.Is(err, errPanic) {
			t.Errorf("one that panics: %v", err)
		}
	})
}

func TestMutexIsWaitedForUnlessItsHolderHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w Watch
		m := make(Mutex, 1)
		hold := func(d time.Duration) {
			if err := m.Lock(&w); err != nil {
				t.Fatal(err)
			}
			go func() { hang(&w, d, MaxWrite); m.Unlock() }()
		}
		hold(1900 * time.Millisecond)
		hold(time.Hour) // waits for the first
		began := time.Now()
		if err := m.Lock(&w); !errors.Is(err, ErrHangs) || time.Since(began) < MaxWrite {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		if m.TryLock() {
			t.Error("locked twice")
		}
		time.Sleep(time.Hour)
		if err := m.Lock(&w); err != nil {
			t.Error(err)
		}
	})
}
