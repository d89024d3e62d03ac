package proxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"net/textproto"
	"time"

	"robotsproxy/policy/pace"
	"robotsproxy/proxy/egress"
	"robotsproxy/robots/fetch"
)

// Fetches sends the GETs of robots.txt fetches. Each GET takes a slot at the host it goes
// to, in the turn of the client that caused it: the pace, the back-off, the places and the
// entries of hosts apply to it as to a request. A fetch of the host's own file goes ahead
// of its client's other requests, and shares its slot with the first request after it. A
// GET to which another host's file is redirected waits in the host's queue, as a request
// of its client.
//
// Fetches is a [fetch.Sender], for any number of goroutines. Rules have to be complete when
// the first fetch begins, and do not change.
type Fetches struct {
	Pacer *pace.Pacer
	Rules *Rules // Engine, Egress, Monitor, BackOff and PerAddress are used
}

// FetchFailedHere reports whether no origin is to blame for an error of a fetch: the
// proxy's own way out failed, or a fetch of the host's own file got no slot.
func FetchFailedHere(err error) bool {
	return egress.LocalError(err) || errors.Is(err, pace.ErrTooBusy) || errors.Is(err, pace.ErrClosed)
}

// Send sends a GET when it has its slot. The GET's Via names the proxy, which so detects a
// GET that comes back to it.
func (f *Fetches) Send(r *http.Request, hop fetch.Hop) (*http.Response, error) {
	r.Header.Set("Via", "1.1 "+f.Rules.Egress.Pseudonym())
	if f.Rules.Monitor {
		return f.Rules.Egress.RoundTrip(r)
	}
	resp, err := f.send(r, hop)
	for range maxRedials { // as for a CONNECT
		if !errors.Is(err, egress.ErrElsewhere) {
			break
		}
		resp, err = f.send(r, hop)
	}
	return resp, err
}

func (f *Fetches) send(r *http.Request, hop fetch.Hop) (*http.Response, error) {
	slot, at, err := f.slot(r.Context(), hop)
	if err != nil {
		return nil, err
	}
	g := &fetchGate{slotGate{slot: slot}, hop}
	resp, err := f.Rules.Egress.At(at).Send(r.Context(), r, g)
	if err != nil {
		slot.Release()
		switch {
		case !g.refused.Load():
			return nil, err
		case g.sent.Load(): // on a connection before
			return nil, noSlot(err, hop)
		}
		return nil, unsent(err, hop)
	}
	if after := resp.Header.Get("Retry-After"); f.Rules.BackOff && after != "" &&
		(resp.StatusCode == http.StatusTooManyRequests || resp.StatusCode == http.StatusServiceUnavailable) {
		slot.BackOff(retryAfter(after, time.Now())) // without Retry-After the retries of robots.txt are slow enough
	}
	resp.Body = &fetchBody{resp.Body, slot}
	return resp, nil
}

// slot waits for the slot of a GET. at is the address that the GET goes to, if it is decided.
func (f *Fetches) slot(ctx context.Context, hop fetch.Hop) (slot *pace.Slot, at netip.Addr, err error) {
	limits := f.Rules.Engine.FetchLimits(hop.Origin)
	limits.First, limits.Shared = hop.SameOrigin, hop.SameOrigin && hop.Client != ""
	if at, err = f.Rules.chooseAddress(ctx, hop.Origin, &limits); err != nil {
		return nil, at, err
	}
	err = hop.Wait(func() error {
		slot, err = f.Pacer.Wait(ctx, hop.Client, limits)
		return err
	})
	if err != nil {
		return nil, at, unsent(err, hop)
	}
	return slot, at, nil
}

// unsent gives the error of a GET that got no slot and has not gone out.
func unsent(err error, hop fetch.Hop) error {
	return fmt.Errorf("%w: %w", fetch.ErrUnsent, noSlot(err, hop))
}

// noSlot gives the error of a GET that got no slot. At another host than the file's own
// the error does not wrap pace.ErrTooBusy, so that the file counts as one that cannot be
// had.
func noSlot(err error, hop fetch.Hop) error {
	if hop.SameOrigin || !errors.Is(err, pace.ErrTooBusy) {
		return err
	}
	return fmt.Errorf("no slot at %s: %v", hop.Origin.Host, err)
}

// A fetchGate is the [egress.Gate] of one GET.
type fetchGate struct {
	slotGate
	hop fetch.Hop
}

// Ready waits for the right to send, and the fetch's time limit waits with it.
func (g *fetchGate) Ready(ctx context.Context) error {
	return g.ready(func() error {
		return g.hop.Wait(func() error { return g.slot.Ready(ctx) })
	})
}

// Informational does nothing: nobody reads a 1xx response to a fetch.
func (g *fetchGate) Informational(int, textproto.MIMEHeader) error { return nil }

// A fetchBody is a response's body that gives the slot back when it is closed.
type fetchBody struct {
	io.ReadCloser
	slot *pace.Slot
}

// Close closes the body and gives the slot back.
func (b *fetchBody) Close() error {
	defer b.slot.Release()
	return b.ReadCloser.Close()
}
