package proxy

import (
	"cmp"
	"encoding/base64"
	"errors"
	"net/http"
	"strings"
	"time"

	"robotsproxy/policy"
	"robotsproxy/robots"
)

// admit makes the checks of a request or a CONNECT that come before the policy's decision. It also
// determines the origin of a CONNECT; for other requests ServeHTTP has determined it.
func (h *Handler) admit(s *requestState) error {
	if err := h.o.Ready(); err != nil {
		return err
	}
	q := &s.record.Request
	if s.request.Method == http.MethodConnect {
		if q.Origin, s.noTarget = connectTarget(s.request, sentHeadOf(s.request).target); q.Origin.Host != "" {
			q.PathQuery = "/"
		}
	}
	if s.noTarget != nil {
		return s.noTarget
	}
	return s.rules.admit(q, s.request.Header)
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
		return errLoop
	}
	if by, _ := g.Signers.choose(q.Client, q.Origin.Scheme, header); by != nil && strings.EqualFold(q.Method, http.MethodTrace) {
		return errTrace
	}
	return g.Egress.Check(q.Origin.Host, q.Origin.Port)
}

// passesThrough reports whether a tunnel to o is passed through, not intercepted. A tunnel to plain HTTP
// never is: its requests are checked like all others.
func (g *generation) passesThrough(o robots.Origin) bool {
	return o.Scheme == "https" && g.PassThrough(o.Host)
}

// decide asks the policy about the request, and enforces its decision.
func (h *Handler) decide(s *requestState) error {
	s.record.Decision = s.rules.Engine.Decide(s.request.Context(), s.record.Request)
	return h.enforce(s)
}

// enforce stores the robots.txt that the decision is based on. It returns the refusal as an
// error, or nil if the proxy only monitors.
func (h *Handler) enforce(s *requestState) error {
	err := h.o.Keep(&s.record)
	// The request or its refusal may take long.
	s.record.Decision.Release()
	if err != nil {
		return err
	}
	if s.rules.Monitor {
		return nil
	}
	return refusalError(&s.record.Decision)
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
	return errRefused
}

// waitForSlot counts the request against its client's quota, and waits for its slot.
func (h *Handler) waitForSlot(s *requestState) error {
	if s.rules.Monitor {
		return nil
	}
	var err error
	if s.quota, err = s.rules.Engine.Take(s.record.Request.Client); err != nil {
		return err
	}
	if err := s.readAhead(); err != nil {
		return err
	}
	if s.addr, err = s.rules.chooseAddress(s.request.Context(), s.record.Request.Origin, &s.record.Decision.Pace); err != nil {
		return err
	}
	began := time.Now()
	s.slot, err = h.o.Pacer.Wait(s.request.Context(), s.shareKey(), s.record.Decision.Pace)
	if err != nil {
		s.record.Waited = time.Since(began)
	}
	return err
}

// maxCredentials is the maximum length of Proxy-Authorization, in bytes. Basic with the
// longest name and password of a configuration is shorter.
const maxCredentials = 1 << 10

// authenticate determines the client of a request. It refuses a client that no entry of
// clients admits, or that has too many connections open. A request inside a tunnel belongs to
// the client of the tunnel, because clients send credentials only with CONNECT. If the Rules
// were replaced since then, the new Rules must admit that client as well. The record of a
// refused client has its address, not the name that it claims. A malformed request is refused for that,
// whoever sends it.
func (h *Handler) authenticate(s *requestState, head sentHead) error {
	q := &s.record.Request
	by := connInfoFrom(s.request)
	if head.fault != nil {
		q.Client = by.clientName()
		return head.fault
	}
	q.Client = addressOf(s.request.RemoteAddr)
	if by.tunnel != nil {
		name, err := by.tunnel.owner(s.rules)
		if err == nil {
			q.Client = name
		}
		return by.admissionError(err)
	}
	if by.client != nil && by.client.tooMany {
		if name, err := s.rules.Engine.Admit(s.request.Context(), q.Client, policy.Login{}); err == nil {
			// By the address, without the check of a password.
			q.Client = name
		}
		return errTooManyConns
	}
	offered := login(s.request.Header)
	// The client does not know of the proxy, and cannot log in.
	if by.redirect() != nil {
		offered = policy.Login{}
	}
	name, err := s.rules.Engine.Admit(s.request.Context(), q.Client, offered)
	if err != nil {
		return by.admissionError(err)
	}
	q.Client = name
	if by.client != nil && !by.client.assign(name) {
		return errTooManyConns
	}
	return nil
}

// admissionError returns the error for a client that is not admitted: a redirected one is not asked for a login.
func (c connInfo) admissionError(err error) error {
	if c.redirect() != nil && errors.Is(err, policy.ErrLogin) {
		return policy.ErrStranger
	}
	return err
}

// login parses Proxy-Authorization. If the field is repeated, malformed or not Basic, it
// returns a Login without a name, which is never admitted.
func login(h http.Header) policy.Login {
	fields := h["Proxy-Authorization"]
	if len(fields) == 0 {
		return policy.Login{}
	}
	l := policy.Login{Offered: true}
	scheme, token, _ := strings.Cut(fields[0], " ")
	if len(fields) > 1 || len(fields[0]) > maxCredentials || !strings.EqualFold(scheme, "Basic") {
		return l
	}
	var data [maxCredentials]byte
	n, err := base64.StdEncoding.Decode(data[:], []byte(strings.TrimLeft(token, " ")))
	if err != nil {
		return l
	}
	if name, password, ok := strings.Cut(string(data[:n]), ":"); ok {
		l.Name, l.Password = name, password
	}
	return l
}
