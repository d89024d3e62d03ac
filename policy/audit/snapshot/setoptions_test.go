package snapshot

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"testing"
	"testing/synctest"
	"time"
)

// TestUse: what is too old, or too much, by other Options goes at once when the clock has settled.
func TestUse(t *testing.T) {
	for name, other := range map[string]Options{"age": {MaxAge: 5 * day}, "size": {MaxSize: 2 * blockSize}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := open(t, Options{})
				now := time.Now()
				old, young := gzipPath(s.o.Dir, named("aa")), gzipPath(s.o.Dir, named("bb"))
				write(t, old, 100)
				age(t, old, now, 9*day)
				write(t, young, 100)
				age(t, young, now, 2*day)
				ctx, stop := context.WithCancel(t.Context())
				ended := make(chan error, 1)
				go func() { ended <- s.Run(ctx) }()
				<-time.After(day)
				synctest.Wait()
				if _, err := os.Stat(old); err != nil {
					t.Fatal(err)
				}
				if err := s.SetOptions(other); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				_, oldErr := os.Stat(old)
				_, youngErr := os.Stat(young)
				if !errors.Is(oldErr, fs.ErrNotExist) || youngErr != nil {
					t.Errorf("old: %v, young: %v", oldErr, youngErr)
				}
				stop()
				if err := <-ended; err != nil {
					t.Error(err)
				}
			})
		})
	}
}

func TestSetOptionsRefuses(t *testing.T) {
	s := open(t, Options{MaxAge: day})
	for _, o := range []Options{{MaxAge: -1}, {MaxSize: -1}} {
		if err := s.SetOptions(o); err == nil || time.Duration(s.maxAge.Load()) != day {
			t.Errorf("%+v: %v", o, err)
		}
	}
}
