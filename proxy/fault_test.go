package proxy_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"robotsproxy/policy"
	"robotsproxy/policy/audit"
	"robotsproxy/proxy"
	"robotsproxy/robots/testkit"
)

// TestPanicCostsOneRequest checks that a panic fails only one request and is logged under its ID.
func TestPanicCostsOneRequest(t *testing.T) {
	t.Parallel()
	for _, route := range routes {
		t.Run(route.name, func(t *testing.T) {
			origin := route.serve(t, "", hello)
			logged := &lines{}
			var faulty atomic.Bool
			r := start(t, setup{front: route.front, origins: []*httptest.Server{origin.Server}, change: func(o *proxy.Options) {
				o.Log = slog.New(slog.NewTextHandler(logged, nil))
				o.Ready = func() error {
					if faulty.Swap(false) {
						panic("out of order")
					}
					return nil
				}
			}})
			c := route.client(r)
			if _, body, err := get(c, origin.URL+"/before"); err != nil || body != "hello from /before" { // and its tunnel is open
				t.Fatal(body, err)
			}
			faulty.Store(true)
			resp, body, err := get(c, origin.URL+"/lost")
			testkit.Must(t, err)
			if resp.StatusCode != http.StatusInternalServerError || !strings.Contains(resp.Header.Get("Proxy-Status"), "error=proxy_internal_error") || strings.Contains(body, "out of order") {
				t.Errorf("%s %v %q", resp.Status, resp.Header, body)
			}
			rec := r.records.last(t, 2)
			if rec.Decision.Reason != policy.ReasonInternal || !rec.Blocked() || rec.Status != 500 {
				t.Errorf("record: %+v", rec)
			}
			if !logged.has("out of order") || !logged.has("id="+rec.ID) {
				t.Errorf("log: %s", logged.text.String())
			}
			if _, body, err := get(c, origin.URL+"/after"); err != nil || body != "hello from /after" {
				t.Errorf("the next request: %q %v", body, err)
			}
		})
	}
}

func TestPanicInConnectCostsOneTunnel(t *testing.T) {
	t.Parallel()
	var faulty atomic.Bool
	faulty.Store(true)
	origin := serve(t, true, "", hello)
	r := start(t, setup{origins: []*httptest.Server{origin.Server}, change: func(o *proxy.Options) {
		o.Ready = func() error {
			if faulty.Swap(false) {
				panic("out of order")
			}
			return nil
		}
	}})
	ask := fmt.Sprintf("CONNECT %s HTTP/1.1\r\nHost: %[1]s\r\n\r\n", origin.host())
	if resp := r.send(ask); resp.StatusCode != http.StatusInternalServerError {
		t.Errorf("%s", resp.Status)
	}
	if resp := r.send(ask); resp.StatusCode != http.StatusOK {
		t.Errorf("the next request: %s", resp.Status)
	}
}

// faultyLog panics on warnings.
type faultyLog struct{ slog.Handler }

func (l faultyLog) WithAttrs([]slog.Attr) slog.Handler { return l }

func (l faultyLog) Handle(ctx context.Context, r slog.Record) error {
	if r.Level == slog.LevelWarn {
		panic("out of order")
	}
	return nil
}

// TestPanicInATunnel checks that a panic in a tunnel that was accepted is recorded as one, and writes no response into it.
func TestPanicInATunnel(t *testing.T) {
	t.Parallel()
	origin := serve(t, true, "", hello)
	r := start(t, setup{origins: []*httptest.Server{origin.Server}, change: func(o *proxy.Options) {
		o.Log = slog.New(faultyLog{slog.NewTextHandler(io.Discard, nil)})
	}})
	c, br := r.plainTunnel(origin.host())
	// The proxy logs a client that does not trust its CA.
	if err := tls.Client(c, &tls.Config{ServerName: "localhost"}).Handshake(); err == nil {
		t.Fatal("the client trusts the CA")
	}
	if rec := r.records.last(t, 1); rec.Decision.Reason != policy.ReasonInternal || !rec.Blocked() {
		t.Errorf("record: %+v", rec)
	}
	if rest, err := io.ReadAll(br); err != nil || len(rest) > 0 {
		t.Errorf("the tunnel has %q, %v", rest, err)
	}
}

// faultySink panics when the record is written, after the response has started.
type faultySink struct{}

func (faultySink) Write(*audit.Record) error { panic("out of order") }

func TestPanicAfterTheResponseStarted(t *testing.T) {
	t.Parallel()
	origin := serve(t, false, "", func(w http.ResponseWriter, _ *http.Request) { w.(http.Flusher).Flush() })
	r := start(t, setup{change: func(o *proxy.Options) { o.Audit = faultySink{} }})
	resp, body, err := get(r.client(false), origin.URL+"/")
	if err == nil {
		t.Errorf("%v %q looks complete", resp, body)
	}
}
