package proxy_test

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"robotsproxy/policy/audit"
	"robotsproxy/policy/pace"
	"robotsproxy/proxy"
	"robotsproxy/proxy/archive"
	"robotsproxy/robots/testkit"
)

// TestNothingIsSentUnrecorded checks that what was admitted while the audit could be written is not sent if the
// audit cannot be written any more when its turn comes.
func TestNothingIsSentUnrecorded(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, first, waits string }{
		{"request", "GET http://ORIGIN/first", "GET http://ORIGIN/second"},
		{"fetch of robots.txt", "GET http://OTHER/first", "GET http://ORIGIN/second"},
		{"tunnel", "CONNECT ORIGIN", "CONNECT ORIGIN"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			origin, other := serve(t, c.name == "tunnel", "", hello), serve(t, false, "", hello) // of the same host, for the pace
			var full atomic.Bool
			r := start(t, setup{
				origins: []*httptest.Server{origin.Server},
				limits:  pace.Limits{PerSecond: 0.5, Burst: 1, MaxConcurrent: 9, MaxWait: testkit.Patience, MaxQueue: 9},
				change: func(o *proxy.Options) {
					o.PassThrough = func(string) bool { return true }
					o.Ready = func() error {
						if full.Load() {
							return audit.ErrUnwritable
						}
						return nil
					}
				},
			})
			send := func(line string) int {
				line = strings.NewReplacer("ORIGIN", origin.host(), "OTHER", other.host()).Replace(line)
				return r.send(line + " HTTP/1.1\r\nHost: x\r\n\r\n").StatusCode
			}
			if status := send(c.first); status != http.StatusOK {
				t.Fatalf("status %d", status)
			}
			before := origin.paths()
			answer := make(chan int)
			go func() { answer <- send(c.waits) }()
			testkit.Eventually(t, "the next one waits for its turn", func() bool { return r.pacer.Stats().Waiting == 1 })
			full.Store(true)
			if status := <-answer; status != http.StatusServiceUnavailable {
				t.Errorf("status %d", status)
			}
			if got := origin.paths(); !slices.Equal(got, before) {
				t.Errorf("the origin saw %q", got)
			}
			full.Store(false)
			if status := send(c.waits); status != http.StatusOK { // an audit that fails says nothing about the origin
				t.Errorf("status %d when the audit can be written again", status)
			}
		})
	}
}

// TestUnrecordableClosesTheConnection: a client whose requests cannot be recorded gets a new connection for the next one, perhaps to
// another replica. A site whose robots.txt cannot be kept is no reason for that.
func TestUnrecordableClosesTheConnection(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err  error
		want bool
	}{{audit.ErrUnwritable, true}, {archive.ErrUnwritable, true}, {audit.ErrNoSpace, false}} {
		origin := serve(t, false, "", hello)
		r := start(t, setup{origins: []*httptest.Server{origin.Server}, change: func(o *proxy.Options) {
			o.Ready = func() error { return c.err }
		}})
		if resp := r.send("GET http://" + origin.host() + "/ HTTP/1.1\r\nHost: x\r\n\r\n"); resp.StatusCode != http.StatusServiceUnavailable || resp.Close != c.want {
			t.Errorf("%v: status %d, closes the connection: %v", c.err, resp.StatusCode, resp.Close)
		}
	}
}
