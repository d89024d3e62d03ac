// Package proxy is the only http.Handler that a client meets. Handler.ServeHTTP handles
// every request in the same order, those inside an intercepted tunnel included: it normalises
// the target once, authenticates the client, asks the policy, waits for a slot, sends the
// request, and writes the record. Requests come from net/http's server, or, for nearly
// all of HTTP/1.1, from package h1, which costs less.
//
// goproxy is the pipeline that sends a request (its OnRequest and OnResponse hooks, its
// copying of heads and bodies). This package handles CONNECT, interception, upgrades and every
// answer of the proxy. Package guide answers requests for the proxy's own address;
// these have no record, because nothing goes out.
//
// The package fails closed: an error before the response has begun becomes a refusal
// from one table. The record is written before the refusal is sent, with the one
// exception that package audit names. An error after that breaks the client's
// transfer; it never ends the transfer as if it were complete.
//
// The [Rules] may be replaced while the proxy serves. A request keeps the Rules that it
// began under until its record is written.
//
// A Handler may be used by any number of goroutines at once.
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
	"robotsproxy/proxy/h1"
)

// Options make a Handler. All but Memory and the Limits are required.
type Options struct {
	Rules // the first ones
	Pacer *pace.Pacer
	Audit audit.Sink                // writes each record
	Keep  func(*audit.Record) error // keeps the robots.txt that a decision rests on before the proxy acts on the decision: audit.Log.SaveSnapshot
	Ready func() error              // returns why requests must be refused at present: the audit cannot be written
	Log   *slog.Logger

	Memory *memory.Budget // what requests are counted against; nil: one of memory.Default
	Limits
}

// Limits bound how long clients may be silent, and how long a shutdown takes.
type Limits struct {
	Linger      time.Duration // how long Shutdown lets requests finish; zero: 20 s
	Silence     time.Duration // a transfer in which nothing moves for this time is ended, after at most twice the time; zero: 5 minutes
	HeadTimeout time.Duration // for a request's head or a TLS handshake; twice that for the first byte in a tunnel; zero: 30 s
}

// withDefaults returns l with its zero fields set to their defaults.
func (l Limits) withDefaults() Limits {
	return Limits{
		Linger:      cmp.Or(l.Linger, 20*time.Second),
		Silence:     cmp.Or(l.Silence, 5*time.Minute),
		HeadTimeout: cmp.Or(l.HeadTimeout, 30*time.Second),
	}
}

// A Handler answers the clients of a proxy. New makes one, Shutdown ends it.
type Handler struct {
	o         Options  // without the Rules
	via       []string // the value that is added to Via headers
	pipeline  *goproxy.ProxyHttpServer
	outer     *h1.Server
	inner     *h1.Server // serves the connections inside intercepted tunnels
	hijacked  *hijackedConns
	unused    unusedConns
	handoff   *handoff
	connLimit *connLimit      // of the connections to the proxy's own port
	draining  atomic.Bool     // see Drain
	aborting  atomic.Bool     // Shutdown breaks off the requests in flight
	parentLog logThrottle     // of warnings about the upstream proxy
	refusals  *refusalLimiter // limits the rate of refusals
	alarms    sync.Pool       // stopped alarms for the next transfers: see watch.pool
	ids       *audit.IDs
	counts    counts
	rules     generations
}

// addressOf returns the host of a host:port, or remote itself if it is no such pair.
func addressOf(remote string) string {
	host, _, err := net.SplitHostPort(remote)
	if err != nil {
		return remote
	}
	return host
}

// logInterval is the shortest time between two log lines of one logThrottle.
const logInterval = 10 * time.Second

// A logThrottle limits how often something is logged.
type logThrottle struct{ last atomic.Int64 }

// allow reports whether a line may be logged now, and then counts it as logged.
func (t *logThrottle) allow() bool {
	now, last := time.Now().UnixNano(), t.last.Load()
	return (last == 0 || now-last > int64(logInterval)) && t.last.CompareAndSwap(last, now)
}
