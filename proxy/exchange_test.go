package proxy

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"robotsproxy/policy/pace"
	"robotsproxy/policy/pace/storetest"
)

// TestALateHeadWaitsForAnotherTurn: of those that all replicas share, since its own is
// over; and where there is none in time, it does not leave.
func TestALateHeadWaitsForAnotherTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fleet := storetest.NewMemory(2)
		one, other := pace.New(pace.Options{Store: fleet.Join()}), pace.New(pace.Options{Store: fleet.Join()})
		limits := pace.Limits{
			Key: "a.test", PerSecond: 100, Burst: 1, CrawlDelay: 10 * time.Second,
			MaxConcurrent: 9, MaxQueue: 9, MaxWait: 40 * time.Second,
		}
		ready := func(p *pace.Pacer) *pace.Slot {
			s, err := p.Wait(t.Context(), "", limits)
			if err != nil || s.Ready(t.Context()) != nil {
				t.Fatal(err)
			}
			return s
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		r, err := http.NewRequest(http.MethodGet, "http://a.test/", nil)
		if err != nil {
			t.Fatal(err)
		}
		x := &exchange{request: r, slot: ready(one), cancel: cancel}
		defer x.slot.Release()
		x.sent.Store(true)
		if began := time.Now(); x.Writing() != nil || !time.Now().Equal(began) {
			t.Error("held up in its own turn")
		}
		<-time.After(time.Second)
		s, began := ready(other), time.Now()
		s.Sent()
		s.Release()
		if err := x.Writing(); err != nil || time.Since(began) < 10*time.Second {
			t.Errorf("Writing: %v, after %v", err, time.Since(began))
		}
		if stood := time.Duration(x.stood.Load()); stood < 10*time.Second { // or it is not sent again where the origin had enough of that
			t.Errorf("the connection stood for %v", stood)
		}
		<-time.After(time.Second)
		s = ready(other)
		defer s.Release()
		s.Sent()
		s.BackOff(time.Minute)
		err = x.Writing()
		if !errors.Is(err, pace.ErrTooBusy) || !errors.Is(context.Cause(ctx), pace.ErrTooBusy) || x.sent.Load() || x.replay.Load() == nil {
			t.Errorf("Writing: %v, cancelled by %v, sent is %v", err, context.Cause(ctx), x.sent.Load())
		}
	})
}
