package proxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/netip"
	"time"

	"robotsproxy/policy/pace"
	"robotsproxy/proxy/egress"
	"robotsproxy/robots/fetch"
)

// Fetches sends the GETs of robots.txt fetches. Each takes a slot at the host it goes to,
// as a request of a client does: the pace, the back-off, the places and the entries of
// hosts count for it. It waits in the turn of the client that caused it: the GET of the
// host's own file ahead of that client's requests, and in one turn together with the first
// request after it; a GET that another host's file is redirected to as a request of that
// client does.
//
// It is a [fetch.Sender], for any number of goroutines. Rules have to be complete when
// the first fetch begins, and do not change.
type Fetches struct {
	Pacer *pace.Pacer
	Rules *Rules // Engine, Door, Monitor, BackOff and PerAddress are used
}

// FetchFailedHere says of an error of a fetch that no origin is to blame for it: our own
// way out failed, or there was no slot for the file of the host itself.
func FetchFailedHere(err error) bool {
	return egress.Ours(err) || errors.Is(err, pace.ErrTooBusy) || errors.Is(err, pace.ErrClosed)
}

// Send sends a GET when it has its slot. Its Via names the proxy, so that a GET that comes
// back is known, as a client's request is.
func (f *Fetches) Send(r *http.Request, hop fetch.Hop) (*http.Response, error) {
	r.Header.Set("Via", "1.1 "+f.Rules.Door.Pseudonym())
	if f.Rules.Monitor {
		return f.Rules.Door.Settling().RoundTrip(r)
	}
	resp, err := f.send(r, hop)
	for range maxElsewhere { // as for a CONNECT
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
	ctx, cancel := context.WithCancelCause(r.Context())
	s := &fetchSend{ctx: ctx, cancel: cancel, slot: slot, hop: hop}
	resp, err := f.Rules.Door.At(at).RoundTrip(r.WithContext(httptrace.WithClientTrace(ctx, s.trace())))
	if err != nil {
		s.end()
		if s.refused != nil {
			return nil, unsent(s.refused, hop)
		}
		return nil, err
	}
	if after := resp.Header.Get("Retry-After"); f.Rules.BackOff && after != "" &&
		(resp.StatusCode == http.StatusTooManyRequests || resp.StatusCode == http.StatusServiceUnavailable) {
		slot.BackOff(retryAfter(after, time.Now())) // without it the retries of robots.txt are slow enough
	}
	resp.Body = &fetchBody{resp.Body, s}
	return resp, nil
}

// slot waits for the slot of a GET; at is where it goes, if that is decided.
func (f *Fetches) slot(ctx context.Context, hop fetch.Hop) (slot *pace.Slot, at netip.Addr, err error) {
	limits := f.Rules.Engine.FetchLimits(hop.Origin)
	limits.First, limits.Shared = hop.Own, hop.Own && hop.Client != ""
	if at, err = f.Rules.aim(ctx, hop.Origin, &limits); err != nil {
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

// unsent is the error of a GET that got no turn. At another host than the file's own it
// says nothing of the pace to come there, but makes the file one that cannot be had.
func unsent(err error, hop fetch.Hop) error {
	if hop.Own || !errors.Is(err, pace.ErrTooBusy) {
		return fmt.Errorf("%w: %w", fetch.ErrUnsent, err)
	}
	return fmt.Errorf("%w: no turn at %s: %v", fetch.ErrUnsent, hop.Origin.Host, err)
}

// A fetchSend is one GET under way.
type fetchSend struct {
	ctx     context.Context
	cancel  context.CancelCauseFunc
	slot    *pace.Slot
	hop     fetch.Hop
	tries   egress.Tries
	refused error // why it has no right to be sent; set before cancel is called
}

func (s *fetchSend) trace() *httptrace.ClientTrace {
	return &httptrace.ClientTrace{
		GetConn: func(string) { s.slot.Redial() },
		GotConn: func(got httptrace.GotConnInfo) {
			err := s.tries.Got(got)
			if err == nil {
				err = s.hop.Wait(func() error { return s.slot.Ready(s.ctx) })
				s.refused = err
			}
			if err != nil {
				s.cancel(err)
				egress.Drop(got)
			}
		},
		WroteHeaders: func() { s.slot.Sent() },
	}
}

func (s *fetchSend) end() {
	s.slot.Release()
	s.cancel(nil)
}

// A fetchBody gives the slot back when it is closed.
type fetchBody struct {
	io.ReadCloser
	send *fetchSend
}

// Close closes it.
func (b *fetchBody) Close() error {
	defer b.send.end()
	return b.ReadCloser.Close()
}
