package prom

import (
	"github.com/prometheus/client_golang/prometheus"

	"robotsproxy/proxy"
)

// ofMemory shows the memory budget of the process.
func ofMemory(handler func() proxy.Stats) prometheus.Collector {
	c := &asked[proxy.Stats]{ask: handler}
	c.gauge("memory_limit_bytes", "Bytes of memory that the process may have in use (limits.memory).",
		func(s proxy.Stats) float64 { return float64(s.Memory.Limit) })
	c.gauge("memory_used_bytes", "Bytes of memory that count against the limit: the heap that the last garbage collection found in use, and all stacks.",
		func(s proxy.Stats) float64 { return float64(s.Memory.InUse) })
	c.gauge("memory_bodies_bytes", "Bytes of request bodies that were read before their requests wait for a slot.",
		func(s proxy.Stats) float64 { return float64(s.Memory.Bodies) })
	c.counter("memory_refused_requests_total", "Requests refused with 503 because memory was short and their client held more than was free.",
		func(s proxy.Stats) uint64 { return s.Memory.Refused })
	c.counter("memory_refused_connections_total", "Connections closed, or answered with 503, because memory was short and their client held more than was free.",
		func(s proxy.Stats) uint64 { return s.Memory.Closed })
	c.counter("memory_unread_bodies_total", "Request bodies of at most 64 KiB that were not read before the wait because there was no room.",
		func(s proxy.Stats) uint64 { return s.Memory.Unread })
	return c
}
