package proxy_test

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"robotsproxy/policy"
	"robotsproxy/policy/memory"
	"robotsproxy/policy/pace"
	"robotsproxy/proxy"
)

// TestShortOfMemory: where nothing is left, new work is refused, and says so.
func TestShortOfMemory(t *testing.T) {
	for _, way := range []way{ways[0], ways[7]} {
		t.Run(way.name, func(t *testing.T) {
			origin := way.serve(t, rules, func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "page") })
			budget := memory.New(memory.Options{})
			r := start(t, setup{
				origins: []*httptest.Server{origin.Server}, front: way.front,
				change: func(o *proxy.Options) { o.Memory = budget },
			})
			client := way.client(r)
			ask := func() *http.Response {
				resp, err := client.Get(origin.URL + "/page")
				must(t, err)
				resp.Body.Close()
				return resp
			}
			if resp := ask(); resp.StatusCode != http.StatusOK {
				t.Fatalf("with memory: %s", resp.Status)
			}
			budget.SetLimit(1) // less than the test takes itself
			resp := ask()
			if resp.StatusCode != http.StatusServiceUnavailable || resp.Header.Get("Retry-After") == "" || !strings.Contains(resp.Header.Get("Proxy-Status"), "limit") {
				t.Errorf("without memory: %s, %v", resp.Status, resp.Header)
			}
			if rec := r.records.of(t, policy.ReasonLimit); rec.Status != http.StatusServiceUnavailable || rec.Decision.Verdict != policy.Refuse {
				t.Errorf("record %+v", rec)
			}
			budget.SetLimit(memory.Default)
			if resp := ask(); resp.StatusCode != http.StatusOK {
				t.Errorf("with memory again: %s", resp.Status)
			}
			if s := r.handler.Stats().Memory; s.Refused != 1 || s.Bodies != 0 {
				t.Errorf("stats %+v", s)
			}
		})
	}
}

// TestBodiesAheadAreBounded: bodies that wait take no more than their part of the memory's budget, of
// which one client has half at the most. A request whose body finds no room there waits all the same,
// and arrives whole.
func TestBodiesAheadAreBounded(t *testing.T) {
	const n, size = 8, 32 << 10
	body := bytes.Repeat([]byte("b"), size)
	way, goOn := ways[7], make(chan struct{}) // many requests on one connection
	origin := way.serve(t, rules, func(w http.ResponseWriter, r *http.Request) {
		<-goOn
		if got, err := io.ReadAll(r.Body); !bytes.Equal(got, body) || err != nil {
			t.Errorf("%d bytes arrive, %v", len(got), err)
		}
	})
	r := start(t, setup{
		origins: []*httptest.Server{origin.Server}, front: way.front,
		limits: pace.Limits{PerSecond: 1e6, Burst: 1e6, MaxConcurrent: 1, MaxWait: time.Minute, MaxQueue: 1000},
		change: func(o *proxy.Options) {
			o.Memory = memory.New(memory.Options{Limit: 16 * 4 * size, InUse: func() int64 { return 0 }}) // a sixteenth is for bodies
		},
	})
	client := way.client(r)
	answered := make(chan error, n)
	for range n {
		go func() {
			resp, err := client.Post(origin.URL+"/page", "text/plain", bytes.NewReader(body))
			if err == nil {
				resp.Body.Close()
				if resp.StatusCode != http.StatusOK {
					err = errors.New(resp.Status)
				}
			}
			answered <- err
		}()
	}
	within(t, func() bool { return r.pacer.Stats().Waiting == n-1 })
	if s := r.handler.Stats().Memory; s.Bodies != 2*size || s.Unread != n-2 {
		t.Errorf("%d bytes of bodies are read ahead, %d bodies are not; want %d and %d", s.Bodies, s.Unread, 2*size, n-2)
	}
	close(goOn)
	for range n {
		if err := <-answered; err != nil {
			t.Error(err)
		}
	}
	within(t, func() bool { return r.handler.Stats().Memory.Bodies == 0 })
}
