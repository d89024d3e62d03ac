package proxy

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net/http"

	"robotsproxy/policy"
	"robotsproxy/policy/audit"
	"robotsproxy/policy/memory"
	"robotsproxy/policy/pace"
	"robotsproxy/proxy/inbound"
	"robotsproxy/robots"
)

// serveConnect answers CONNECT. It checks the form, the address and the port, and whether the
// host is denied. The requests inside the tunnel are judged separately. It connects to the
// origin first, so that the client gets a 502 if the origin cannot be reached. It does not do
// so while the host is in a back-off that lasts longer than a request may wait.
func (h *Handler) serveConnect(s *requestState) {
	defer s.releaseSlot()
	if err := h.admit(s); err != nil {
		h.finish(s, err)
		return
	}
	o := s.record.Request.Origin
	if s.rules.passesThrough(o) {
		h.finish(s, h.passThrough(s, o))
		return
	}
	if err := h.intercept(s, o); err != nil {
		h.finish(s, err)
	}
}

// intercept accepts a tunnel and has its requests served. It writes a record only if
// it fails.
func (h *Handler) intercept(s *requestState, o robots.Origin) error {
	var d policy.Decision
	// In monitor mode a denied host is recorded with the requests inside the tunnel.
	if !s.rules.Monitor {
		if d = s.rules.Engine.DecideConnect(s.record.Request); d.Verdict != policy.Allow {
			s.record.Decision = d
			return refusalError(&d)
		}
	}
	dialled := false
	err := tryAddresses(func() (err error) {
		dialled, err = s.reach(o, &d)
		return err
	})
	// During a back-off, or outside the host's hours, the requests inside get their own responses, for example those of robots.txt. None
	// of those to a paused host gets one.
	held, isHeld := errors.AsType[*policy.HoldError](err)
	if err != nil && !isBusy(pace.BackedOff)(err) && (!isHeld || held.Reason == policy.ReasonPaused) {
		return err
	}
	var contact *audit.Begun
	if dialled && err == nil {
		line := s.record.Begun()
		line.Unused, line.Verdict, line.Reason = true, policy.Allow, policy.ReasonTunnel
		contact = &line
	}
	authority := s.rules.Authority
	if s.rules.PassThrough(o.Host) {
		authority = nil
	}
	t, err := s.in.AcceptTunnel(o, s.shareKey())
	// Only while memory is short the CONNECT has got no answer.
	s.response.headSent = !errors.Is(err, memory.ErrShort)
	if err != nil {
		return err
	}
	c := newTunnelClient(s, t, contact)
	if err := t.Serve(c, authority); errors.Is(err, inbound.ErrHandshake) {
		c.countHandshake(err)
	}
	return nil
}

// reach makes sure that the origin can be connected to, within the concurrency limit, if requests may be sent to it now. On another port
// than 443 the client may not speak TLS, which its first bytes tell, so nothing is sent to the origin. dialled says that a new
// connection was made. d is the decision on the tunnel, which is not used in monitor mode.
func (s *requestState) reach(o robots.Origin, d *policy.Decision) (dialled bool, err error) {
	ctx := s.in.HTTP.Context()
	tcp := o.Scheme == "https" && o.Port != 443
	s.out = s.rules.egressTo(o.Host)
	dialled = s.out.Dials(o, tcp)
	if err := s.held(d); err != nil {
		return false, err
	}
	if !s.rules.Monitor {
		if err := s.rules.Engine.Spent(ctx, &s.record.Request); err != nil {
			return false, err
		}
		wait := s.client.h.o.Pacer.WaitConnect
		if dialled {
			wait = s.client.h.o.Pacer.WaitContact
		}
		limits := d.Pace
		if s.addr, err = s.rules.chooseAddress(ctx, s.out, o, &limits); err == nil {
			s.slot, err = wait(ctx, s.shareKey(), limits)
		}
		if err != nil {
			return dialled, err
		}
		defer s.releaseSlot()
		// The wait may be long.
		if err := s.held(d); err != nil {
			return false, err
		}
	}
	if tcp {
		return dialled, s.out.At(s.addr).ReachTCP(ctx, o)
	}
	return dialled, s.out.At(s.addr).Reach(ctx, o)
}

// passThrough judges a tunnel by its host alone and passes it through.
func (h *Handler) passThrough(s *requestState, o robots.Origin) error {
	err := h.decide(s, (*policy.Engine).DecideTunnel)
	if err == nil {
		err = h.waitForSlot(s)
	}
	if err != nil {
		return err
	}
	origin, err := s.out.At(s.addr).Dial(s.in.HTTP.Context(), o.Host, o.Port)
	if err != nil {
		return err
	}
	defer origin.Close()
	s.sender = &s.response
	if err := s.ready(s.in.HTTP.Context()); err != nil {
		return err
	}
	s.begun()
	if s.rules.Signers.of(s.record.Request.Client) != nil {
		s.recordSignature(nil, policy.UnsignedTunnel)
	}
	if err := s.detachSlot(); err != nil {
		return err
	}
	if err := h.sent.writeNow(&s.line); err != nil {
		return err
	}
	s.response.headSent = true
	raw, err := s.in.AcceptRaw()
	if err != nil {
		return err
	}
	defer raw.Close()
	h.counts.passedThrough.Begin()
	defer h.counts.passedThrough.End()
	// The end of a stream looks like that of its data, after which the origin may still send.
	if s.in.HTTP.ProtoMajor == 2 {
		defer context.AfterFunc(s.in.HTTP.Context(), func() { origin.Close() })()
	}
	s.record.Status = http.StatusOK
	s.record.Bytes, err = s.relay(raw, origin, true)
	return err
}

// relay is relay until the host is paused: what a tunnel sends, the proxy can neither see nor refuse.
func (s *requestState) relay(client *inbound.Raw, origin io.ReadWriteCloser, half bool) (int64, error) {
	defer s.rules.Engine.OnPause(&s.record.Request, func() { origin.Close() })()
	n, err := relay(client.Conn, client.Ahead, origin, half, s.client.h.o.Silence)
	return n, cmp.Or(s.rules.Engine.Paused(&s.record.Request), err)
}

// newTunnelClient returns the client of a tunnel that the CONNECT of s has opened. dialled is as in client.
func newTunnelClient(s *requestState, t *inbound.Tunnel, dialled *audit.Begun) *client {
	name := s.record.Request.Client
	pass := s.rules.Engine.Pass(name, inbound.AddressOf(s.in.HTTP.RemoteAddr), login(s.in.HTTP.Header))
	c := &client{
		h: s.client.h, conn: s.client.conn, tunnel: t, dialled: dialled, pass: pass, labels: s.record.Request.Labels,
	}
	c.admitted.Store(&admission{name, s.rules.number})
	return c
}
