package prom

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"robotsproxy/proxy"
	"robotsproxy/proxy/mitm"
)

// clientStats are the Stats about connections of clients.
type clientStats struct {
	proxy.Stats
	authority mitm.Stats
}

// newClientsCollector exports connections, tunnels and certificates.
func newClientsCollector(handler func() proxy.Stats, authority func() mitm.Stats) prometheus.Collector {
	c := &statsCollector[clientStats]{stats: func() clientStats { return clientStats{handler(), authority()} }}
	c.gauge("inflight_requests", "Requests of clients in progress, waiting ones included. Passed-through tunnels and upgraded connections count until they end.",
		func(s clientStats) float64 { return float64(s.Requests.Open) })
	c.gauge("client_connections", "Open connections of clients to the proxy's port, including those with tunnels.",
		func(s clientStats) float64 { return float64(s.Conns.Open) })
	c.gauge("client_connections_limit", "Maximum number of open client connections (limits.connections).",
		func(s clientStats) float64 { return float64(s.MaxConns) })
	c.counter("client_connections_accepted_total", "Client connections accepted.",
		func(s clientStats) uint64 { return s.Conns.Total })
	counters(c, "client_connections_refused_total", "Connections beyond limits.connections_per_client: answered with 429, or closed without a response if there are many more. At limits.connections: closed because their client has more than its share, or evicted, idle ones that made room for others.", "how",
		func(s clientStats) map[string]uint64 {
			return map[string]uint64{"answered": s.Answered, "closed": s.Closed, "evicted": s.Evicted}
		})
	c.counter("client_accept_errors_total", "Accept calls that failed, for example because the process cannot open more files.",
		func(s clientStats) uint64 { return s.Failed })
	c.add(prometheus.CounterValue, "client_tls_failures_total", "TLS handshakes with clients that failed, in intercepted tunnels (where=tunnel) and at the proxy's port (listen_tls). untrusted: the client rejected the certificate, probably because it does not trust the CA.",
		[]string{"where", "cause"}, tlsFailures)
	c.add(prometheus.GaugeValue, "tunnels", "Open tunnels: intercepted, or passed through (unopened).", []string{"kind"},
		func(s clientStats) []sample {
			return tunnels(float64(s.Intercepted.Open), float64(s.PassedThrough.Open))
		})
	c.add(prometheus.CounterValue, "tunnels_opened_total", "Tunnels established: intercepted, or passed through (unopened).", []string{"kind"},
		func(s clientStats) []sample {
			return tunnels(float64(s.Intercepted.Total), float64(s.PassedThrough.Total))
		})
	c.counter("tunnels_unused_total", "Intercepted tunnels that ended without a request: the handshake failed, or the client disconnected after it, as some clients do that do not trust the CA.",
		func(s clientStats) uint64 { return s.Unused })
	c.gauge("upgraded_connections", "Open client connections that switched protocols, for example to WebSocket.",
		func(s clientStats) float64 { return float64(s.Upgraded.Open) })
	c.gauge("leaf_certificates", "Certificates for intercepted hosts in memory.",
		func(s clientStats) float64 { return float64(s.authority.Leaves) })
	c.counter("leaf_certificates_minted_total", "Certificates made for intercepted hosts.",
		func(s clientStats) uint64 { return s.authority.Minted })
	c.gauge("ca_not_after_timestamp_seconds", "Expiry time of the CA certificate, in seconds since 1970.",
		func(s clientStats) float64 { return timestamp(s.authority.NotAfter) })
	return c
}

func tunnels(intercepted, passedThrough float64) []sample {
	return []sample{{[]string{"intercepted"}, intercepted}, {[]string{"unopened"}, passedThrough}}
}

func tlsFailures(s clientStats) (all []sample) {
	for where, faults := range map[string]map[mitm.Fault]uint64{"tunnel": s.authority.Failed, "listen": s.Faults} {
		for cause, n := range faults {
			all = append(all, sample{[]string{where, string(cause)}, float64(n)})
		}
	}
	return all
}

// newListenTLSCollector exports when the certificate of the proxy's own port expires.
func newListenTLSCollector(notAfter func() time.Time) prometheus.Collector {
	c := &statsCollector[time.Time]{stats: notAfter}
	c.gauge("listen_tls_not_after_timestamp_seconds", "Expiry time of the certificate of the proxy's port (listen_tls), in seconds since 1970.", timestamp)
	return c
}

// timestamp returns a time in seconds since 1970, 0 for the zero time.
func timestamp(t time.Time) float64 {
	if t.IsZero() {
		return 0
	}
	return float64(t.UnixMilli()) / 1000
}

// newMemoryCollector exports the memory budget of the process.
func newMemoryCollector(handler func() proxy.Stats) prometheus.Collector {
	c := &statsCollector[proxy.Stats]{stats: handler}
	c.gauge("memory_limit_bytes", "Maximum memory of the process in bytes (limits.memory).",
		func(s proxy.Stats) float64 { return float64(s.Memory.Limit) })
	c.gauge("memory_used_bytes", "Memory in bytes that counts against the limit: the heap in use after the last garbage collection, and all stacks.",
		func(s proxy.Stats) float64 { return float64(s.Memory.InUse) })
	c.gauge("memory_bodies_bytes", "Bytes of request bodies in memory that were read before their requests got a slot.",
		func(s proxy.Stats) float64 { return float64(s.Memory.Bodies) })
	c.counter("memory_refused_requests_total", "Requests refused with 503 because memory was short and their client used more than was free.",
		func(s proxy.Stats) uint64 { return s.Memory.Refused })
	c.counter("memory_refused_connections_total", "Connections closed or answered with 503 because memory was short and their client used more than was free.",
		func(s proxy.Stats) uint64 { return s.Memory.Closed })
	c.counter("memory_unread_bodies_total", "Request bodies of at most 64 KiB that were not read before the wait because memory was short.",
		func(s proxy.Stats) uint64 { return s.Memory.Unread })
	return c
}
