package pace_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"robotsproxy/policy/pace"
	"robotsproxy/robots/testkit"
)

// TestContactsTakeThePlaceOfRequests: after the first connections that no request follows, each further one takes
// the place of a request. Other clients have first ones of their own.
func TestContactsTakeThePlaceOfRequests(t *testing.T) {
	limits := pace.Limits{Key: "site.test", PerSecond: 1, Burst: 1, MaxConcurrent: 100, MaxWait: time.Hour, MaxQueue: 100}
	const first = 6
	for name, contact := range map[string]func(*testing.T, *pace.Pacer, string){
		"CONNECT": func(t *testing.T, p *pace.Pacer, client string) {
			s, err := p.WaitContact(t.Context(), client, limits)
			testkit.Must(t, err)
			s.Release()
		},
		"request that fails": func(t *testing.T, p *pace.Pacer, client string) {
			s, err := p.Wait(t.Context(), client, limits)
			testkit.Must(t, err)
			s.Contacted()
			s.Release()
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := pace.New(pace.Options{})
				defer p.Close()
				began := time.Now()
				times := func(client string, n int) (at []time.Duration) {
					for range n {
						contact(t, p, client)
						at = append(at, time.Since(began).Round(time.Second))
					}
					return at
				}
				// The first one of the further ones finds a free turn.
				if got, want := times("a", first+4), []time.Duration{0, 0, 0, 0, 0, 0, 0, time.Second, 2 * time.Second, 3 * time.Second}; !slices.Equal(got, want) {
					t.Errorf("%v, want %v", got, want)
				}
				time.Sleep(time.Second)
				now := time.Since(began).Round(time.Second)
				if got := times("b", first); got[first-1] != now {
					t.Errorf("another client: %v, want %v", got, now)
				}
				s, err := p.Wait(t.Context(), "a", limits)
				testkit.Must(t, err)
				testkit.Must(t, s.Ready(t.Context()))
				s.Written()
				s.Release()
				now = time.Since(began).Round(time.Second)
				if got := times("a", 1); got[0] > now+time.Second {
					t.Errorf("after a request: %v, want %v", got, now)
				}
				time.Sleep(time.Minute)
				now = time.Since(began).Round(time.Second)
				if got := times("a", first); got[first-1] != now {
					t.Errorf("after a minute: %v, want %v", got, now)
				}
			})
		})
	}
}
