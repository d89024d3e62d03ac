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
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
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

// logInterval is the minimum time between two warnings about the upstream proxy.
const logInterval = 10 * time.Second

// New checks the options and creates a Handler.
func New(o Options) (*Handler, error) {
	for name, missing := range map[string]bool{
		"Pacer": o.Pacer == nil, "Audit": o.Audit == nil, "Keep": o.Keep == nil, "Begin": o.Begin == nil, "Ready": o.Ready == nil, "Log": o.Log == nil,
	} {
		if missing {
			return nil, fmt.Errorf("proxy: option %s is missing", name)
		}
	}
	rules, err := o.Rules.withDefaults()
	if err != nil {
		return nil, err
	}
	if min(o.Linger, o.Silence, o.HeadTimeout) < 0 {
		return nil, errors.New("proxy: a limit is negative")
	}
	if o.Memory == nil {
		o.Memory = memory.New(memory.Options{})
	}
	o.Rules, o.Limits = Rules{}, o.Limits.withDefaults()
	h := &Handler{o: o, parentLog: rate.Sometimes{Interval: logInterval}, refusals: newRefusalLimiter()}
	h.sent.write = o.Begin
	h.via = []string{"1.1 " + rules.Egress.Pseudonym()}
	h.rules.install(rules, 1)
	h.pipeline = newPipeline(o.Log)
	h.in = inbound.New(inbound.Options{
		Accept: func(c *inbound.Conn) inbound.Handler { return newClient(h, c) },
		Rules:  func() inbound.Rules { return h.rules.active.Load().inbound() },
		Memory: o.Memory, Log: o.Log, HeadTimeout: o.HeadTimeout, WriteTimeout: o.Silence,
	})
	return h, nil
}

// Serve answers the clients of a listener until Shutdown. It may be called
// once.
func (h *Handler) Serve(l net.Listener) error {
	if err := h.in.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("proxy: %w", err)
	}
	return nil
}

// ServeTransparent serves connections that a firewall redirects to l; see [inbound.Server.ServeTransparent].
func (h *Handler) ServeTransparent(l net.Listener, nameOf inbound.NameOf) error {
	return h.in.ServeTransparent(l, nameOf)
}

// Drain closes each connection after its next response, so that clients reconnect to another
// server behind their load balancer. Requests are served as before until Shutdown.
func (h *Handler) Drain() { h.in.Drain() }

// Shutdown accepts no more connections, refuses the requests that wait for a slot, and lets
// the requests in flight finish for as long as Linger and ctx allow. Then it closes tunnels,
// upgraded connections, and all others. It closes the Pacer.
func (h *Handler) Shutdown(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, h.o.Linger)
	defer cancel()
	h.o.Pacer.Close()
	h.refusals.close()
	err := h.in.Shutdown(ctx)
	if ctx.Err() != nil {
		h.o.Log.Warn("breaking off requests in flight")
		h.aborting.Store(true)
		err = h.in.Close()
	}
	served := make(chan struct{})
	go func() {
		defer close(served)
		h.rules.close()
	}()
	select {
	case <-served:
		// Their records are written too.
	case <-time.After(lastWait):
		h.o.Log.Error("requests outlived their connections, records may be missing")
	}
	return err
}

// lastWait is how long the proxy waits for requests whose connections it has closed or will close.
const lastWait = 5 * time.Second

// Use makes r the active Rules for requests that begin from now on, including those in kept
// connections and tunnels. Requests that wait or are in flight keep the Rules under which they
// began. unused is closed when the last of these requests has ended and the earlier Rules are
// no longer used. After an error nothing has changed.
//
// A tunnel stays with its client as long as the client would still be admitted in the same way.
// If the client's password has changed, the next request in the tunnel is refused and asks for
// a login. Connections over a lowered limit stay open.
func (h *Handler) Use(r Rules) (unused <-chan struct{}, err error) {
	if unused, err = h.rules.replace(r); err == nil {
		h.in.LimitsChanged()
	}
	return unused, err
}

// ClientFaults returns the clients whose settings do not fit the proxy, the latest first.
func (h *Handler) ClientFaults() []clientfault.Fault { return h.counts.clientFaults.All() }

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

// Stats returns the counters, which may be of slightly different moments. It does not
// block.
func (h *Handler) Stats() Stats {
	c := &h.counts
	return Stats{
		Stats: h.in.Stats(), Requests: c.requests.Flow(), PassedThrough: c.passedThrough.Flow(), Upgraded: c.upgraded.Flow(),
		Memory: h.o.Memory.Stats(),
	}
}
