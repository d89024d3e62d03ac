package admin

import (
	"context"
	"net"
	"net/http"
)

// A Monitor serves health, readiness, metrics and the newest checkpoint of the audit, and nothing else. It requires no token
// and answers every client that can connect: no response has a host, a URL or a client of a request.
// Run it with Serve and stop it with Shutdown.
type Monitor struct{ http *http.Server }

// NewMonitor makes a Monitor. It uses only Healthy, Ready, Metrics, Log and Proxy, which are
// required, and ProxyTLS, Warnings, Store and Checkpoint.
func NewMonitor(o Options) *Monitor {
	o.Warnings, o.Checkpoint = orZero(o.Warnings), orZero(o.Checkpoint)
	mux := http.NewServeMux()
	o.mountMonitoring(mux)
	mux.Handle("GET "+checkpointPath, &endpoint{handle: o.getCheckpoint})
	return &Monitor{newHTTPServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		setSecurityHeaders(w.Header())
		if isProxyRequest(r) {
			o.showProxy(w, r, "metrics")
			return
		}
		mux.ServeHTTP(w, r)
	}), o.Log)}
}

// Serve serves connections on l until Shutdown. Call it once.
func (m *Monitor) Serve(l net.Listener) error { return serve(m.http, l) }

// Shutdown waits for requests until ctx is done, and then closes the remaining connections
// without an error.
func (m *Monitor) Shutdown(ctx context.Context) error { return shutdown(ctx, m.http) }
