package proxy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"robotsproxy/policy"
	"robotsproxy/proxy/inbound"
	"robotsproxy/robots"
)

// admit makes the checks of a request or a CONNECT that come before the policy's decision.
func (h *Handler) admit(s *requestState) error {
	if err := h.o.Ready(); err != nil {
		return err
	}
	if s.in.HTTP.Method == http.MethodConnect {
		// The record of a CONNECT has no origin before this.
		s.targetErr = s.rules.setTarget(s.in, &s.record.Request)
	}
	if s.targetErr != nil {
		return s.targetErr
	}
	return s.rules.admit(&s.record.Request, s.in.HTTP.Header)
}

// ftpPort is the port of FTP, which the proxy cannot check inside a tunnel.
const ftpPort = 21

// setTarget gives q the Target of a request, and returns why the request is refused for it, or nil. The Target of a URL that
// is longer than limits.url is cut. That of a CONNECT gets a path.
func (g *generation) setTarget(in *inbound.Request, q *policy.Request) error {
	q.Target = in.Target
	switch {
	case in.Method == http.MethodConnect && q.Origin.Host != "":
		if q.PathQuery = "/"; q.Origin.Port == ftpPort {
			return errFTPTunnel
		}
	case in.TargetErr == nil:
		if err := g.checkURLLength(in.Target); err != nil {
			q.PathQuery = strings.Clone(beginningOf(q.PathQuery))
			return err
		}
	}
	return in.TargetErr
}

// admit checks that a request has not been through this proxy, does not ask for the proxy's signature, and that its
// destination is allowed. It then sets q's identity to the one that the operator has configured. A CONNECT keeps the identity of
// the client, because it is not sent. header is nil if there is only q, as for Explain.
func (g *generation) admit(q *policy.Request, header http.Header) error {
	if q.Method != http.MethodConnect {
		q.UserAgent = cmp.Or(g.UserAgent, q.UserAgent)
		q.From = cmp.Or(g.From, q.From)
	}
	if isLoop(header, g.Egress.Pseudonym()) {
		return inbound.ErrLoop
	}
	if signer, _ := g.Signers.choose(q.Client, q.Origin.Scheme, header); signer != nil && strings.EqualFold(q.Method, http.MethodTrace) {
		return errTrace
	}
	return g.egressTo(q.Origin.Host).Check(q.Origin.Host, q.Origin.Port)
}

// passesThrough reports whether a tunnel to o is passed through, not intercepted. A tunnel to plain HTTP
// never is: its requests are checked like all others.
func (g *generation) passesThrough(o robots.Origin) bool {
	return o.Scheme == "https" && g.PassThrough(o.Host)
}

// decide asks the policy about the request by judge, a method of its Engine, and enforces the decision.
func (h *Handler) decide(s *requestState, judge func(*policy.Engine, context.Context, policy.Request) policy.Decision) error {
	s.record.Decision = judge(s.rules.Engine, s.in.HTTP.Context(), s.record.Request)
	s.out = s.rules.Egress.Through(s.record.Decision.Parent)
	return s.enforce()
}

// enforce stores the robots.txt that the decision is based on. It returns the refusal as an
// error, or nil if the proxy only monitors and the host is not paused.
func (s *requestState) enforce() error {
	err := s.client.h.o.Keep(&s.record)
	// The request or its refusal may take long, and must not keep the rules of the file in memory.
	s.record.Decision.Release()
	if err != nil {
		return err
	}
	if s.rules.Monitor && s.record.Decision.Reason != policy.ReasonPaused {
		return nil
	}
	return refusalError(&s.record.Decision)
}

// held returns why the request, with its decision, must not be sent at this moment; nil: it may be. A pause is an act of the operator,
// so it holds in monitor mode too.
func (s *requestState) held(d *policy.Decision) error {
	if s.rules.Monitor {
		return s.rules.Engine.Paused(&s.record.Request)
	}
	return s.rules.Engine.MaySend(&s.record.Request, d)
}

// refusalError returns the error of a refusing decision, or nil if the decision allows
// the request.
func refusalError(d *policy.Decision) error {
	switch {
	case d.Verdict == policy.Allow:
		return nil
	case d.Err != nil && (d.Reason == policy.ReasonOrigin || d.Reason == policy.ReasonClient):
		// The answer depends on the kind of failure.
		return d.Err
	}
	if held, ok := errors.AsType[*policy.HoldError](d.Err); ok {
		return held
	}
	return refusedError{d.Reason}
}

// waitForSlot counts the request against its client's quota and the budgets of its host, and waits for its slot. Meanwhile the host may
// have been paused, or its hours may have ended: it is not connected to then.
func (h *Handler) waitForSlot(s *requestState) error {
	if s.rules.Monitor {
		return s.held(nil)
	}
	// Decide does not hold back a request for robots.txt, which the cache may answer.
	if err := s.rules.Engine.MayWait(&s.record.Request, &s.record.Decision); err != nil {
		return err
	}
	var err error
	if s.ticket, err = s.rules.Engine.Take(s.in.HTTP.Context(), &s.record.Request); err != nil {
		return err
	}
	if err := s.transfer.readAhead(&s.work); err != nil {
		return err
	}
	// An upload may be slow, and must not keep others from probing the host.
	if s.attempt, err = s.rules.Engine.Attempt(&s.record.Request, &s.record.Decision); err != nil {
		return err
	}
	if s.addr, err = s.rules.chooseAddress(s.in.HTTP.Context(), s.out, s.record.Request.Origin, &s.record.Decision.Pace); err != nil {
		return err
	}
	began := time.Now()
	s.slot, err = h.o.Pacer.Wait(s.in.HTTP.Context(), s.shareKey(), s.record.Decision.Pace)
	if err != nil {
		s.record.Waited = time.Since(began)
		return err
	}
	return s.held(&s.record.Decision)
}

// authenticate determines the client of a request. It refuses a client that no entry of
// clients admits, or that has too many connections open. A request inside a tunnel belongs to
// the client of the tunnel, because clients send credentials only with CONNECT. If the Rules
// were replaced since then, the new Rules must admit that client as well. The record of a
// refused client has its address, not the name that it claims. A malformed request is refused for that,
// whoever sends it.
func (h *Handler) authenticate(s *requestState) error {
	q := &s.record.Request
	if s.in.Fault != nil {
		q.Client = s.client.name()
		return s.in.Fault
	}
	q.Client = inbound.AddressOf(s.in.HTTP.RemoteAddr)
	name, err := s.client.identify(s.in.HTTP, s.rules, q.Client)
	if errors.Is(err, policy.ErrLogin) && s.client.conn.Redirected() {
		// A redirected client does not know of the proxy, and cannot log in.
		err = policy.ErrStranger
	}
	if name != "" {
		q.Client = name
	}
	return cmp.Or(err, setLabels(s))
}

// setLabels gives the request the labels that it may have. An error matches errLabels.
func setLabels(s *requestState) error {
	own, err := labelsOf(s.in.HTTP.Header)
	q := &s.record.Request
	all, tooMany := s.rules.Engine.Labels(q.Client, own, s.client.labels)
	if q.Labels = all; err == nil && tooMany != nil {
		err = fmt.Errorf("%w: %w", errLabels, tooMany)
	}
	return err
}
