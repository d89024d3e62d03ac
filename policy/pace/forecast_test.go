package pace

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// TestForecast compares the forecast with the wait, or the refusal, of a real request.
func TestForecast(t *testing.T) {
	own := rule(100, 100, 0)
	own.Client = Rate{PerSecond: 0.5, Burst: 1}
	short := rule(0.1, 1, 0)
	short.MaxWait = time.Second
	domain := every(3 * time.Second)
	domain.BackOffKey = "www.a.test"
	for name, l := range map[string]Limits{
		"host's gap": every(3 * time.Second), "burst": rule(1, 4, 0), "crawl delay": rule(1, 1, 5*time.Second),
		"client's own rate": own, "wait too long": short, "back-off of a host of the domain": domain,
	} {
		synctest.Test(t, func(t *testing.T) {
			p := newExact()
			for i := range 6 {
				wait, err := p.Forecast("lab-a", l)
				again, _ := p.Forecast("lab-a", l)
				if again != wait {
					t.Errorf("%s: %v, and then %v", name, wait, again)
				}
				if known := p.Stats().Hosts > 0; known != (i > 0) {
					t.Errorf("%s: the host is known: %v", name, known)
				}
				began := time.Now()
				s, refused := p.Wait(t.Context(), "lab-a", l)
				if refused != nil {
					b, ok := errors.AsType[*BusyError](err)
					if want, _ := errors.AsType[*BusyError](refused); !ok || *b != *want {
						t.Errorf("%s: %v, and the request: %v", name, err, refused)
					}
					return
				}
				if err := s.Ready(t.Context()); err != nil || (time.Since(began)-wait).Abs() > time.Microsecond {
					t.Errorf("%s: %v, and the request waits %v, %v", name, wait, time.Since(began), err)
				}
				s.Sent()
				s.Release()
			}
			if l.MaxWait == time.Second {
				t.Errorf("%s: no request was refused", name)
			}
		})
	}
}

// TestForecastRefusals tests the refusals that are not caused by a rate.
func TestForecastRefusals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newExact()
		l := every(time.Minute)
		l.MaxQueue = 1
		if _, err := p.Forecast("", Limits{}); !errors.Is(err, ErrLimits) {
			t.Errorf("zero Limits: %v", err)
		}
		mustWait(t, p, "", l).send()
		ctx, leave := context.WithCancel(t.Context())
		defer leave()
		go p.Wait(ctx, "", l)
		synctest.Wait()
		_, err := p.Forecast("", l)
		if b, ok := errors.AsType[*BusyError](err); !ok || b.Reason != QueueFull {
			t.Errorf("a full queue: %v", err)
		}
		if n := p.Stats().Waiting; n != 1 {
			t.Errorf("%d requests wait after the forecast", n)
		}
	})
}
