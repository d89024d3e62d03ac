package proxy_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"robotsproxy/policy/audit"
	"robotsproxy/proxy"
	"robotsproxy/robots/testkit"
)

// A trace notes in which order lines and records are written.
type trace struct {
	records
	mu    sync.Mutex // guards what follows
	lines []string
	fault error         // of the lines of kind begun
	begun chan struct{} // gets a value for each of these lines
}

func (t *trace) begin(all ...*audit.Begun) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, b := range all {
		t.lines = append(t.lines, "begun "+b.Request.PathQuery)
		t.begun <- struct{}{}
	}
	return t.fault
}

func (t *trace) Write(r *audit.Record) error {
	t.mu.Lock()
	t.lines = append(t.lines, "ended "+r.Request.PathQuery)
	t.mu.Unlock()
	return t.records.Write(r)
}

func (t *trace) want(tb testing.TB, want string) {
	tb.Helper()
	t.mu.Lock()
	defer t.mu.Unlock()
	if got := strings.Join(t.lines, ", "); got != want {
		tb.Errorf("the audit has: %s; want: %s", got, want)
	}
}

func TestRequestsUnderWayLeaveALine(t *testing.T) {
	t.Parallel()
	end, traced := make(chan struct{}), &trace{begun: make(chan struct{}, 9)}
	origin := serve(t, false, "", func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, "begins")
		if r.URL.Path == "/slow" {
			w.(http.Flusher).Flush()
			<-end
			io.WriteString(w, ", ends")
		}
	})
	r := start(t, setup{change: func(o *proxy.Options) { o.Audit, o.Begin = traced, traced.begin }})
	client := r.client(false)
	resp, err := client.Get(origin.URL + "/slow")
	testkit.Must(t, err)
	testkit.Within(t, "the line", traced.begun)
	close(end)
	if body, err := io.ReadAll(resp.Body); err != nil || string(body) != "begins, ends" {
		t.Errorf("%q, %v", body, err)
	}
	r.records = &traced.records
	r.records.last(t, 1)
	traced.want(t, "begun /slow, ended /slow")
}

// TestNoMoreIsPassedOnWithoutItsLine: with RecordFirst, the response is broken off if the line cannot be written.
func TestNoMoreIsPassedOnWithoutItsLine(t *testing.T) {
	t.Parallel()
	origin := serve(t, false, "", func(w http.ResponseWriter, r *http.Request) {
		for r.Context().Err() == nil {
			io.WriteString(w, "more")
			w.(http.Flusher).Flush()
			<-time.After(10 * time.Millisecond)
		}
	})
	traced := &trace{fault: audit.ErrUnwritable, begun: make(chan struct{}, 9)}
	r := start(t, setup{change: func(o *proxy.Options) { o.Audit, o.Begin, o.RecordFirst = traced, traced.begin, true }})
	resp, err := r.client(false).Get(origin.URL + "/")
	testkit.Must(t, err)
	if body, err := io.ReadAll(resp.Body); err == nil || len(body) == 0 {
		t.Errorf("%q, %v", body, err)
	}
	r.records = &traced.records
	if rec := r.records.last(t, 1); !errors.Is(rec.Err, audit.ErrUnwritable) {
		t.Errorf("%+v", rec)
	}
	traced.want(t, "begun /, ended /")
}

// TestTunnelsAreRecordedBeforeTheyStand: a client is not told that its tunnel stands if its line cannot be written.
func TestTunnelsAreRecordedBeforeTheyStand(t *testing.T) {
	t.Parallel()
	origin := serve(t, true, "", hello)
	traced := &trace{fault: audit.ErrUnwritable, begun: make(chan struct{}, 9)}
	r := start(t, setup{origins: []*httptest.Server{origin.Server}, change: func(o *proxy.Options) {
		o.Audit, o.Begin, o.PassThrough = traced, traced.begin, func(string) bool { return true }
	}})
	ask := fmt.Sprintf("CONNECT %s HTTP/1.1\r\nHost: %[1]s\r\n\r\n", origin.host())
	if resp := r.send(ask); resp.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("%s", resp.Status)
	}
	traced.want(t, "begun /, ended /")
	traced.fault = nil
	if resp := r.send(ask); resp.StatusCode != http.StatusOK {
		t.Errorf("%s", resp.Status)
	}
	traced.want(t, "begun /, ended /, begun /")
}
