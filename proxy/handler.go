// Package proxy is the only http.Handler that a client meets. A request's way
// through it is one straight line, [Handler.serve]: one normalised target, the
// judgement, the wait for a slot, the sending, the record, the answer. What
// comes out of an intercepted tunnel takes the very same way. Requests come from
// net/http's server, or, for nearly all of HTTP/1.1, from package h1, which stands
// before it and costs less.
//
// goproxy is the pipeline that a request is sent through (its OnRequest and
// OnResponse hooks, its copying of heads and bodies); CONNECT, interception,
// upgrades and every answer of our own are handled here. Who asks the proxy itself,
// at its own address, is answered by package guide, and leaves no record: nothing
// goes out.
//
// It fails closed: whatever goes wrong before the origin's answer has begun
// becomes a refusal from one table, and its record is written first, with the one
// exception that package audit names. What breaks after that breaks the client's
// transfer, never shortens it silently.
//
// What it goes by, the [Rules], may be changed while it serves: a request keeps
// to those that it began under, from its first look at who asks to its record.
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
	Rules // at first
	Pacer *pace.Pacer
	Audit audit.Sink                // the evidence first, then whoever else listens
	Keep  func(*audit.Record) error // keeps the robots.txt that a decision rests on before the proxy acts on the decision: audit.Log.SaveSnapshot
	Ready func() error              // why requests must be refused at present: the audit cannot be written
	Log   *slog.Logger

	Memory *memory.Budget // what requests are counted against; nil: one of memory.Default
	Limits
}

// Limits are for how long clients may do nothing.
type Limits struct {
	Linger      time.Duration // how long Shutdown lets requests finish; zero: 20 s
	Silence     time.Duration // a transfer that stands still so long, at the most twice, is ended; zero: 5 minutes
	HeadTimeout time.Duration // for a request's head or a TLS handshake, and twice that to begin in a tunnel; zero: 30 s
}

// withDefaults gives the limits with what zero stands for.
func (l Limits) withDefaults() Limits {
	return Limits{
		Linger:      cmp.Or(l.Linger, 20*time.Second),
		Silence:     cmp.Or(l.Silence, 5*time.Minute),
		HeadTimeout: cmp.Or(l.HeadTimeout, 30*time.Second),
	}
}

// A Handler answers the clients of a proxy. Make one with New, end it with
// Shutdown.
type Handler struct {
	o         Options  // but for the Rules
	via       []string // what we add to a Via header; one value
	pipeline  *goproxy.ProxyHttpServer
	outer     *h1.Server
	inner     *h1.Server     // serves what comes out of intercepted tunnels
	hijacked  *hijackedConns // hijacked ones
	unused    unusedConns
	handoff   *handoff
	connLimit *connLimit      // for connections to the own port
	draining  atomic.Bool     // see Drain
	aborting  atomic.Bool     // Shutdown breaks requests off
	parentLog logThrottle     // of what is said of it
	refusals  *refusalLimiter // when the next one of a client is answered
	alarms    sync.Pool       // stopped, for the next transfers: see watch.spare
	ids       *audit.IDs
	counts    counts

	rules generations
}

// addressOf is the address of a host:port that a request came from.
func addressOf(remote string) string {
	host, _, err := net.SplitHostPort(remote)
	if err != nil {
		return remote
	}
	return host
}

// logInterval is how often, at most, the same is logged.
const logInterval = 10 * time.Second

// A logThrottle limits how often something is logged.
type logThrottle struct{ last atomic.Int64 }

func (t *logThrottle) allow() bool {
	now, last := time.Now().UnixNano(), t.last.Load()
	return (last == 0 || now-last > int64(logInterval)) && t.last.CompareAndSwap(last, now)
}
