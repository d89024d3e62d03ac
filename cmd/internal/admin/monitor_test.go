package admin

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// A Monitor serves health and metrics to everybody, under every name, although there is a
// token; and nothing else.
func TestMonitor(t *testing.T) {
	healthy := func() error { return nil }
	var checkpoint []byte
	m := NewMonitor(Options{
		Healthy: healthy, Ready: healthy, Log: slog.New(slog.DiscardHandler), Token: func() string { return "0123456789abcdef" },
		Checkpoint: func() []byte { return checkpoint },
		Metrics:    http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "up 1\n") }),
	})
	for _, c := range []struct {
		method, path string
		status       int
		body         string
	}{
		{"GET", "/metrics", 200, "up 1\n"},
		{"GET", "/healthz", 200, "ok\n"},
		{"GET", "/readyz", 200, "ok\n"},
		{"HEAD", "/metrics", 200, "up 1\n"}, // net/http leaves the body out
		{"POST", "/metrics", 405, "Method Not Allowed\n"},
		{"GET", "/", 404, "404 page not found\n"},
		{"GET", "/login", 404, "404 page not found\n"},
		{"GET", "/config", 404, "404 page not found\n"},
		{"GET", "/static/base.css", 404, "404 page not found\n"},
		{"GET", "/api/v1/status", 404, "404 page not found\n"},
		{"POST", "/api/v1/reload", 404, "404 page not found\n"},
	} {
		w := httptest.NewRecorder()
		m.http.Handler.ServeHTTP(w, httptest.NewRequest(c.method, c.path, nil))
		if w.Code != c.status || w.Body.String() != c.body {
			t.Errorf("%s %s: %d %q, want %d %q", c.method, c.path, w.Code, w.Body, c.status, c.body)
		}
		if w.Header().Get("Cross-Origin-Resource-Policy") != "same-origin" {
			t.Errorf("%s %s: no security headers", c.method, c.path)
		}
	}
	for _, c := range []struct {
		note   string
		status int
		want   string
	}{{"", 404, "The audit has no checkpoint yet."}, {"robotsproxy/a\n", 200, "robotsproxy/a\n"}} {
		if c.note != "" {
			checkpoint = []byte(c.note)
		}
		w := httptest.NewRecorder()
		m.http.Handler.ServeHTTP(w, httptest.NewRequest("GET", "/api/v1/audit/checkpoint", nil))
		if w.Code != c.status || !strings.Contains(w.Body.String(), c.want) {
			t.Errorf("the checkpoint %q: %d %s", c.note, w.Code, w.Body)
		}
	}
}
