package egress

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"robotsproxy/robots/testkit"
)

// TestCloseIdle: idle connections are closed, requests in flight keep theirs, and later
// requests still work.
func TestCloseIdle(t *testing.T) {
	begun, release := make(chan struct{}), make(chan struct{})
	var open atomic.Int64
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/held" {
			w.WriteHeader(http.StatusOK)
			w.(http.Flusher).Flush()
			close(begun)
			<-release
		}
		io.WriteString(w, "whole")
	}))
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		switch state {
		case http.StateNew:
			open.Add(1)
		case http.StateClosed:
			open.Add(-1)
		}
	}
	s.Start()
	t.Cleanup(s.Close)
	d := newClient(t, Options{AllowPrivate: loopback})
	ask := func(path string) string {
		req, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL+path, nil)
		resp, err := d.RoundTrip(req)
		if err != nil {
			t.Error(err)
			return ""
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Error(err)
		}
		return string(body)
	}
	held := make(chan string, 1)
	go func() { held <- ask("/held") }()
	<-begun
	ask("/") // on a separate connection, which is kept
	await := func(n int64) {
		t.Helper()
		testkit.Eventually(t, fmt.Sprintf("%d connections are open", n), func() bool { return open.Load() == n })
	}
	await(2)
	d.CloseIdle()
	await(1)
	close(release)
	if got := <-held; got != "whole" {
		t.Errorf("under way: %q", got)
	}
	await(0)
	if got := ask("/"); got != "whole" {
		t.Errorf("late: %q", got)
	}
}

// TestPseudonymOfThePreviousClient: a Client takes over the pseudonym of the previous
// one. Without a previous one it gets a new pseudonym.
func TestPseudonymOfThePreviousClient(t *testing.T) {
	a, b := newClient(t, Options{}), newClient(t, Options{})
	c := newClient(t, Options{Previous: a})
	if a.Pseudonym() == b.Pseudonym() || c.Pseudonym() != a.Pseudonym() {
		t.Errorf("%s, %s, %s", a.Pseudonym(), b.Pseudonym(), c.Pseudonym())
	}
	new(Client).CloseIdle() // it has none
}
