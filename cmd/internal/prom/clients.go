package prom

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"robotsproxy/policy"
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
	return statsCollector[clientStats]{func() clientStats { return clientStats{handler(), authority()} }, clientMetrics}
}

func clientMetrics(s clientStats) []metric {
	return []metric{
		gauge("inflight_requests", "Requests of clients in progress, waiting ones included. Passed-through tunnels and upgraded "+
			"connections count until they end.", s.Requests.Open),
		gauge("client_connections", "Open connections of clients to the proxy's port, including those with tunnels.", s.Conns.Open),
		gauge("client_connections_limit", "Maximum number of open client connections (limits.connections).", s.MaxConns),
		counter("client_connections_accepted_total", "Client connections accepted.", s.Conns.Total),
		counters("client_connections_refused_total", "Connections beyond limits.connections_per_client: answered with 429, or closed "+
			"without a response if there are many more. At limits.connections: closed because their client has more than its share, or "+
			"evicted, idle ones that made room for others.", "how",
			map[string]uint64{"answered": s.Answered, "closed": s.Closed, "evicted": s.Evicted}),
		counter("client_accept_errors_total", "Accept calls that failed, for example because the process cannot open more files.",
			s.Failed),
		newMetric(prometheus.CounterValue, "client_tls_failures_total", "TLS handshakes with clients that failed, in intercepted "+
			"tunnels (where=tunnel) and at the proxy's port (listen_tls). untrusted: the client rejected the certificate, probably "+
			"because it does not trust the CA.", []string{"where", "cause"}, tlsFailures(s)...),
		newMetric(prometheus.GaugeValue, "tunnels", "Open tunnels: intercepted, or passed through (unopened).", []string{"kind"},
			tunnels(float64(s.Intercepted.Open), float64(s.PassedThrough.Open))...),
		newMetric(prometheus.CounterValue, "tunnels_opened_total", "Tunnels established: intercepted, or passed through (unopened).",
			[]string{"kind"}, tunnels(float64(s.Intercepted.Total), float64(s.PassedThrough.Total))...),
		counter("tunnels_unused_total", "Intercepted tunnels that ended without a request: the handshake failed, or the client "+
			"disconnected after it, as some clients do that do not trust the CA.", s.Unused),
		gauge("upgraded_connections", "Open client connections that switched protocols, for example to WebSocket.", s.Upgraded.Open),
		gauge("leaf_certificates", "Certificates for intercepted hosts in memory.", s.authority.Leaves),
		counter("leaf_certificates_minted_total", "Certificates made for intercepted hosts.", s.authority.Minted),
		gauge("ca_not_after_timestamp_seconds", "Expiry time of the CA certificate, in seconds since 1970.",
			timestamp(s.authority.NotAfter)),
	}
}

// newQuotasCollector exports what clients have used of their quotas.
func newQuotasCollector(uses func() []policy.ClientUse) prometheus.Collector {
	return statsCollector[[]policy.ClientUse]{uses, func(all []policy.ClientUse) []metric {
		var used []sample
		for i := range all {
			c := &all[i]
			if c.Quota.Requests > 0 {
				used = append(used, sample{[]string{c.Name, "requests"}, float64(c.Used.Requests) / float64(c.Quota.Requests)})
			}
			if c.Quota.Bytes > 0 {
				used = append(used, sample{[]string{c.Name, "bytes"}, float64(c.Used.Bytes) / float64(c.Quota.Bytes)})
			}
		}
		return []metric{newMetric(prometheus.GaugeValue, "client_quota_used_ratio", "What an entry of clients has used today (UTC) of its "+
			"quota; 1: requests are refused. With a store, the use of all replicas when this one asked last.",
			[]string{"client", "of"}, used...)}
	}}
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
	return statsCollector[time.Time]{notAfter, func(t time.Time) []metric {
		return []metric{gauge("listen_tls_not_after_timestamp_seconds",
			"Expiry time of the certificate of the proxy's port (listen_tls), in seconds since 1970.", timestamp(t))}
	}}
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
	return statsCollector[proxy.Stats]{handler, func(s proxy.Stats) []metric {
		m := s.Memory
		return []metric{
			gauge("memory_limit_bytes", "Maximum memory of the process in bytes (limits.memory).", m.Limit),
			gauge("memory_used_bytes", "Memory in bytes that counts against the limit: the heap in use after the last garbage collection, "+
				"and all stacks.", m.InUse),
			gauge("memory_bodies_bytes", "Bytes of request bodies in memory that were read before their requests got a slot.", m.Bodies),
			counter("memory_refused_requests_total", "Requests refused with 503 because memory was short and their client used more than "+
				"was free.", m.Refused),
			counter("memory_refused_connections_total", "Connections closed or answered with 503 because memory was short and their "+
				"client used more than was free.", m.Closed),
			counter("memory_unread_bodies_total", "Request bodies of at most 64 KiB that were not read before the wait because memory was "+
				"short.", m.Unread),
		}
	}}
}
