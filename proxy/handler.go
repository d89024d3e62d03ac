// Package proxy is the http.Handler for all requests of clients. Handler.ServeHTTP handles
// every request in the same order, including those inside an intercepted tunnel: it normalises
// the target once, authenticates the client, asks the policy, waits for a slot, sends the
// request, and writes the record. Most HTTP/1.1 requests come from package h1, which costs
// less, and all others from net/http's server.
//
// goproxy is the pipeline that sends a request (its OnRequest and OnResponse hooks, its
// copying of heads and bodies). This package handles CONNECT, interception, upgrades and every
// response of the proxy itself. Package guide answers requests for the proxy's own address.
// These have no record, because nothing is sent.
//
// The package fails closed: an error before the response has begun becomes a refusal from one
// table. The record is written before the refusal is sent, with one exception, which package
// audit describes. A later error breaks off the transfer, so that the client cannot take it
// for complete.
//
// The [Rules] may be replaced while the proxy serves. A request keeps the Rules under which it
// began until its record is written.
//
// Any number of goroutines may use a Handler at once.
package proxy

import (
	"cmp"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/elazarl/goproxy"

	"robotsproxy/policy/audit"
	"robotsproxy/policy/memory"
	"robotsproxy/policy/pace"
	"robotsproxy/proxy/archive"
	"robotsproxy/proxy/h1"
)

// Options are the parameters of New. All are required except Archive, Memory and the Limits.
type Options struct {
	// The first Rules.
	Rules
	Pacer *pace.Pacer

	// Writes each record.
	Audit audit.Sink

	// Stores the robots.txt that a decision is based on before the proxy acts on the decision: audit.Log.SaveSnapshot.
	Keep func(*audit.Record) error

	// Writes lines about requests that are under way: audit.Log.Begin.
	Begin func(...*audit.Begun) error

	// Returns why requests must be refused now: the audit or the archive cannot be written.
	Ready func() error
	Log   *slog.Logger

	// Gets what is fetched; nil: nothing is archived.
	Archive *archive.Archive

	// memory budget for requests; nil: one of memory.Default.
	Memory *memory.Budget
	Limits
}

// Limits are time limits for silent clients and for a shutdown.
type Limits struct {
	// How long Shutdown lets requests finish; zero: 20 s.
	Linger time.Duration

	// A transfer without progress for this time is ended, after at most twice the time; zero: 5 minutes.
	Silence time.Duration

	// For the head of a request or a TLS handshake; twice that for the first byte in a tunnel; zero: 30 s.
	HeadTimeout time.Duration
}

// withDefaults returns l with its zero fields set to their defaults.
func (l Limits) withDefaults() Limits {
	return Limits{
		Linger:      cmp.Or(l.Linger, 20*time.Second),
		Silence:     cmp.Or(l.Silence, 5*time.Minute),
		HeadTimeout: cmp.Or(l.HeadTimeout, 30*time.Second),
	}
}

// A Handler answers the clients of a proxy. Create it with New and end it with Shutdown.
type Handler struct {
	// Without the Rules.
	o Options

	// The value that is added to Via headers.
	via      []string
	pipeline *goproxy.ProxyHttpServer
	outer    *h1.Server

	// Serves the connections inside intercepted tunnels.
	inner    *h1.Server
	hijacked *hijackedConns
	handoff  *handoff

	// For connections to the proxy's own ports.
	connLimit *connLimit

	// Likewise, of each client.
	clientConns clientConns

	// See Drain.
	draining atomic.Bool

	// Shutdown breaks off the requests in flight.
	aborting atomic.Bool

	// For warnings about the upstream proxy.
	parentLog logThrottle

	// Limits the rate of refusals.
	refusals *refusalLimiter

	// Stopped alarms for later transfers: see watch.pool.
	alarms sync.Pool
	counts counts
	rules  generations
	sent   sentRequests
}

// addressOf returns the host of a host:port. If remote has another form, it returns
// remote.
func addressOf(remote string) string {
	host, _, err := net.SplitHostPort(remote)
	if err != nil {
		return remote
	}
	return host
}

// logInterval is the minimum time between two log lines of one logThrottle.
const logInterval = 10 * time.Second

// A logThrottle limits how often something is logged.
type logThrottle struct{ last atomic.Int64 }

// allow reports whether a line may be logged now. If so, it counts the line as logged.
func (t *logThrottle) allow() bool {
	now, last := time.Now().UnixNano(), t.last.Load()
	return (last == 0 || now-last > int64(logInterval)) && t.last.CompareAndSwap(last, now)
}
