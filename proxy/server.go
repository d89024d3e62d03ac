package proxy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"golang.org/x/time/rate"

	"robotsproxy/policy/memory"
	"robotsproxy/proxy/clientfault"
	"robotsproxy/proxy/inbound"
)

// logInterval is the minimum time between two warnings about the upstream proxy.
const logInterval = 10 * time.Second

// New checks the options and creates a Handler.
func New(o Options) (*Handler, error) {
	for name, missing := range map[string]bool{
		"Pacer": o.Pacer == nil, "Audit": o.Audit == nil, "Keep": o.Keep == nil,
		"Begin": o.Begin == nil, "Ready": o.Ready == nil, "Log": o.Log == nil,
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

// Stats returns the counters, which may be of slightly different moments. It does not
// block.
func (h *Handler) Stats() Stats {
	c := &h.counts
	return Stats{
		Stats: h.in.Stats(), Requests: c.requests.Flow(), PassedThrough: c.passedThrough.Flow(), Upgraded: c.upgraded.Flow(),
		Memory: h.o.Memory.Stats(),
	}
}
