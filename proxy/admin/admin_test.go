package admin

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
)

func TestEndpoints(t *testing.T) {
	var unwell, unready error
	s, err := New(Options{
		Healthy: func() error { return unwell },
		Ready:   func() error { return unready },
		Metrics: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "up 1\n") }),
		Log:     slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
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
		name            string
		path            string
		unwell, unready error
		status          int
		body            string
	}{
		{"well", "/healthz", nil, nil, 200, "ok\n"},
		{"ready", "/readyz", nil, nil, 200, "ok\n"},
		{"not well", "/healthz", errors.New("the audit cannot be written"), nil, 503, "the audit cannot be written\n"},
		{"well but not ready", "/healthz", nil, errors.New("shutting down"), 200, "ok\n"},
		{"not ready", "/readyz", nil, errors.New("shutting down"), 503, "shutting down\n"},
		{"what it counts", "/metrics", errors.New("the audit cannot be written"), nil, 200, "up 1\n"},
		{"nothing else is told", "/", nil, nil, 404, "404 page not found\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			unwell, unready = c.unwell, c.unready
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

func TestWithoutMetricsNothingIsThere(t *testing.T) {
	well := func() error { return nil }
	s, err := New(Options{Healthy: well, Ready: well, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	w := httptest.NewRecorder()
	s.http.Handler.ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	if w.Code != http.StatusNotFound {
		t.Errorf("%d", w.Code)
	}
}

func TestNewRefusesMissingOptions(t *testing.T) {
	if _, err := New(Options{}); err == nil {
		t.Error("made without options")
	}
}
