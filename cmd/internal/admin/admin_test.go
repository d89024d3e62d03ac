package admin

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"robotsproxy/robots/testkit"
)

// TestMain lets subtests run in parallel, as those of the dashboard mostly wait for the
// browser.
func TestMain(m *testing.M) {
	testkit.SetParallel()
	m.Run()
}

func TestEndpoints(t *testing.T) {
	var healthErr, readyErr error
	s := newFixture(t, func(o *Options) {
		o.Healthy = func() error { return healthErr }
		o.Ready = func() error { return readyErr }
		o.Metrics = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "up 1\n") })
	})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error)
	go func() { served <- s.Serve(l) }()
	get := func(path string) (int, string) {
		t.Helper()
		resp, err := http.Get("http://" + l.Addr().String() + path)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(b)
	}
	for _, c := range []struct {
		name                string
		path                string
		healthErr, readyErr error
		status              int
		body                string
	}{
		{"well", "/healthz", nil, nil, 200, "ok\n"},
		{"ready", "/readyz", nil, nil, 200, "ok\n"},
		{"not well", "/healthz", errors.New("the audit cannot be written"), nil, 503, "the audit cannot be written\n"},
		{"well but not ready", "/healthz", nil, errors.New("shutting down"), 200, "ok\n"},
		{"not ready", "/readyz", nil, errors.New("shutting down"), 503, "shutting down\n"},
		{"what it counts", "/metrics", errors.New("the audit cannot be written"), nil, 200, "up 1\n"},
		{"nothing else is told", "/nothing", nil, nil, 404, "404 page not found\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			healthErr, readyErr = c.healthErr, c.readyErr
			if status, body := get(c.path); status != c.status || body != c.body {
				t.Errorf("%s: %d %q, want %d %q", c.path, status, body, c.status, c.body)
			}
		})
	}
	if err := s.Shutdown(context.Background()); err != nil {
		t.Error(err)
	}
	if err := <-served; err != nil {
		t.Error(err)
	}
}

func TestNoMetrics(t *testing.T) {
	if got := newFixture(t).do("GET", "/metrics", ""); got.Code != http.StatusNotFound {
		t.Errorf("%d", got.Code)
	}
}

func TestNewMissingOption(t *testing.T) {
	if _, err := New(Options{}); err == nil {
		t.Error("made without options")
	}
}

// Idle connections are bounded, and closed after a time.
func TestConnectionsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dial := newFixture(t).serveInMemory(t)
		for range maxConns {
			dial()
		}
		in := make(chan struct{})
		go func() { dial(); close(in) }()
		synctest.Wait()
		select {
		case <-in:
			t.Error("one more is let in")
		default:
		}
		start := time.Now()
		<-in
		if took := time.Since(start); took != requestTimeout {
			t.Errorf("the next is let in after %v", took)
		}
	})
}
