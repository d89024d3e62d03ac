package prom

import (
	"iter"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"robotsproxy/proxy"
	"robotsproxy/proxy/mitm"
)

// front is the side of the proxy that clients see.
type front struct {
	proxy.Stats
	authority mitm.Stats
}

// ofClients shows connections, tunnels and certificates.
func ofClients(handler func() proxy.Stats, authority func() mitm.Stats) prometheus.Collector {
	c := &asked[front]{ask: func() front { return front{handler(), authority()} }}
	c.gauge("inflight_requests", "Requests of clients that are being answered or wait for it; tunnels passed unopened and upgraded connections count as long as they last.",
		func(s front) float64 { return float64(s.Requests.Open) })
	c.gauge("client_connections", "Open connections of clients to the proxy's own port, those with tunnels included.",
		func(s front) float64 { return float64(s.Conns.Open) })
	c.gauge("client_connections_limit", "As many connections of clients may be open (limits.connections); further ones wait in the system's queue.",
		func(s front) float64 { return float64(s.MaxConns) })
	c.counter("client_connections_accepted_total", "Connections of clients taken.",
		func(s front) uint64 { return s.Conns.Ever })
	counters(c, "client_connections_refused_total", "Connections over a client's most (limits.connections_per_client): answered with 429, or, of many more, closed without a word.", "how",
		func(s front) map[string]uint64 { return map[string]uint64{"answered": s.Answered, "closed": s.Closed} })
	c.counter("client_accept_errors_total", "Tries to take a connection that the system failed, as where the process may open no more files.",
		func(s front) uint64 { return s.Failed })
	c.show(prometheus.CounterValue, "client_tls_failures_total", "TLS handshakes with clients that failed: of opened tunnels (where=tunnel) and at the proxy's own port (listen_tls); untrusted: the client said that it does not take the certificate, most likely because the CA is unknown to it.",
		[]string{"where", "cause"}, tlsFailures)
	c.show(prometheus.GaugeValue, "tunnels", "Open tunnels: intercepted, or passed unopened.", []string{"kind"},
		func(s front) iter.Seq2[[]string, float64] {
			return tunnels(float64(s.Intercepted.Open), float64(s.Unopened.Open))
		})
	c.show(prometheus.CounterValue, "tunnels_opened_total", "Tunnels made: intercepted, or passed unopened.", []string{"kind"},
		func(s front) iter.Seq2[[]string, float64] {
			return tunnels(float64(s.Intercepted.Ever), float64(s.Unopened.Ever))
		})
	c.counter("tunnels_unused_total", "Intercepted tunnels that ended without a request: those whose handshake failed, and those whose client hung up after it, as some do that do not trust the CA.",
		func(s front) uint64 { return s.Unused })
	c.gauge("upgraded_connections", "Open connections of clients that changed protocols, as to WebSocket.",
		func(s front) float64 { return float64(s.Upgraded.Open) })
	c.gauge("leaf_certificates", "Certificates for intercepted hosts held in memory.",
		func(s front) float64 { return float64(s.authority.Leaves) })
	c.counter("leaf_certificates_minted_total", "Certificates made for intercepted hosts.",
		func(s front) uint64 { return s.authority.Minted })
	c.gauge("ca_not_after_timestamp_seconds", "When the certificate of the CA expires, in seconds since 1970.",
		func(s front) float64 { return timestamp(s.authority.NotAfter) })
	return c
}

func tunnels(intercepted, unopened float64) iter.Seq2[[]string, float64] {
	return func(yield func([]string, float64) bool) {
		_ = yield([]string{"intercepted"}, intercepted) && yield([]string{"unopened"}, unopened)
	}
}

func tlsFailures(s front) iter.Seq2[[]string, float64] {
	return func(yield func([]string, float64) bool) {
		for where, faults := range map[string]map[mitm.Fault]uint64{"tunnel": s.authority.Failed, "listen": s.Faults} {
			for cause, n := range faults {
				if !yield([]string{where, string(cause)}, float64(n)) {
					return
				}
			}
		}
	}
}

// ofListenTLS shows when the certificate of the proxy's own port expires.
func ofListenTLS(notAfter func() time.Time) prometheus.Collector {
	c := &asked[time.Time]{ask: notAfter}
	c.gauge("listen_tls_not_after_timestamp_seconds", "When the certificate of the proxy's own port (listen_tls) expires, in seconds since 1970.", timestamp)
	return c
}

// timestamp is a time as Prometheus has it; 0 for none.
func timestamp(t time.Time) float64 {
	if t.IsZero() {
		return 0
	}
	return float64(t.UnixMilli()) / 1000
}
