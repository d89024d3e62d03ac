// Package proxy answers the requests of a proxy's clients, which package inbound reads, also inside intercepted tunnels.
// A [Handler] does the same with each, in this order: it takes the target that the client has asked for, authenticates
// the client, admits the request, asks the policy for its decision, waits for a slot, sends the request, copies the
// response, and writes the record.
//
// goproxy is the pipeline that sends a request (its OnRequest hook, its copying of heads and bodies). This package
// handles CONNECT, interception, upgrades and every response of the proxy itself. Package guide answers requests for the
// proxy's own address. These have no record, because nothing is sent.
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
	"sync"
	"sync/atomic"
	"time"

	"github.com/elazarl/goproxy"
	"golang.org/x/time/rate"

	"robotsproxy/policy/audit"
	"robotsproxy/policy/memory"
	"robotsproxy/policy/pace"
	"robotsproxy/proxy/archive"
	"robotsproxy/proxy/clientfault"
	"robotsproxy/proxy/inbound"
)

// Options are the parameters of New. All are required except Archive, Memory and the Limits.
type Options struct {
	// Rules are the first Rules.
	Rules
	Pacer *pace.Pacer

	// Audit writes each record.
	Audit audit.Sink

	// Keep stores the robots.txt that a decision is based on before the proxy acts on the decision: audit.Log.SaveSnapshot.
	Keep func(*audit.Record) error

	// Begin writes lines about requests that are under way: audit.Log.Begin.
	Begin func(...*audit.Begun) error

	// Ready returns why requests must be refused now: the audit or the archive cannot be written.
	Ready func() error
	Log   *slog.Logger

	// Archive gets what is fetched; nil: nothing is archived.
	Archive *archive.Archive

	// Memory is the memory budget for requests; nil: one of memory.Default.
	Memory *memory.Budget
	Limits
}

// Limits are time limits for silent clients and for a shutdown.
type Limits struct {
	// Linger is how long Shutdown lets requests finish; zero: 20 s.
	Linger time.Duration

	// Silence is the time after which a transfer without progress is ended, after at most twice the time; zero: 5 minutes.
	Silence time.Duration

	// HeadTimeout is for the head of a request or a TLS handshake, and twice that for the first byte in a tunnel; zero: 30 s.
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
	// o are the Options without the Rules.
	o  Options
	in *inbound.Server

	// via is the value that is added to Via headers.
	via      []string
	pipeline *goproxy.ProxyHttpServer

	// aborting says that Shutdown breaks off the requests in flight.
	aborting atomic.Bool

	// parentLog limits the warnings about the upstream proxy.
	parentLog rate.Sometimes

	// refusals limits the rate of refusals.
	refusals *refusalLimiter

	// alarms are stopped alarms for later transfers: see watch.pool.
	alarms sync.Pool
	counts counts
	rules  generations
	sent   sentRequests
}

// Stats are the counters of a Handler.
type Stats struct {
	inbound.Stats

	// Requests are the requests in progress, except those for the proxy's own page; a tunnel that is passed through and an
	// upgraded connection last as long as their request.
	Requests inbound.Flow

	// PassedThrough are tunnels, and Upgraded are connections, also inside tunnels.
	PassedThrough, Upgraded inbound.Flow
	Memory                  memory.Stats
}

// counts are the counters that only the Handler has.
type counts struct {
	requests, passedThrough, upgraded inbound.FlowCounter
	clientFaults                      clientfault.Table
}
