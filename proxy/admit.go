package proxy

import (
	"cmp"
	"encoding/base64"
	"net/http"
	"strings"
	"time"

	"robotsproxy/policy"
	"robotsproxy/robots"
)

// admit makes the checks of a request, or of a CONNECT, that precede the policy's decision. It finds out
// the origin of a CONNECT; ServeHTTP has found out that of another request.
func (h *Handler) admit(x *requestState) error {
	if err := h.o.Ready(); err != nil {
		return err
	}
	q := &x.record.Request
	if x.request.Method == http.MethodConnect {
		if q.Origin, x.noURL = connectTarget(x.request); q.Origin.Host != "" {
			q.PathQuery = "/"
		}
	}
	if x.noURL != nil {
		return x.noURL
	}
	return x.rules.admit(q, x.request.Header)
}

// admit checks that a request has not been through this proxy and that its destination is allowed, and
// puts the identity that the operator has configured into q. A CONNECT keeps that of the client: it
// does not go out. header is nil if there is only q, as for Explain.
func (g *generation) admit(q *policy.Request, header http.Header) error {
	if q.Method != http.MethodConnect {
		q.UserAgent = cmp.Or(g.UserAgent, q.UserAgent)
		q.From = cmp.Or(g.From, q.From)
	}
	if isLoop(header, g.Egress.Pseudonym()) {
		return errLoop
	}
	return g.Egress.Check(q.Origin.Host, q.Origin.Port)
}

// passesThrough reports whether a tunnel to o is passed through, not intercepted. A tunnel to plain HTTP
// never is: its requests are checked like all others.
func (g *generation) passesThrough(o robots.Origin) bool {
	return o.Scheme == "https" && g.PassThrough(o.Host)
}

// decide asks the policy about the request, and enforces its decision.
func (h *Handler) decide(x *requestState) error {
	x.record.Decision = x.rules.Engine.Decide(x.request.Context(), x.record.Request)
	return h.enforce(x)
}

// enforce keeps the robots.txt that the decision rests on, and then returns the refusal as an
// error, or nil if the proxy only monitors.
func (h *Handler) enforce(x *requestState) error {
	err := h.o.Keep(&x.record)
	x.record.Decision.Release() // the request, or its refusal, may take long
	if err != nil {
		return err
	}
	if x.rules.Monitor {
		return nil
	}
	return refusalError(&x.record.Decision)
}

// refusalError returns the error of a refusing decision; nil: it allows the request.
func refusalError(d *policy.Decision) error {
	switch {
	case d.Verdict == policy.Allow:
		return nil
	case d.Err != nil && (d.Reason == policy.ReasonOrigin || d.Reason == policy.ReasonClient):
		return d.Err // the answer depends on the kind of failure
	}
	return errRefused
}

// waitForSlot counts the request against its client's quota, and waits for its slot.
func (h *Handler) waitForSlot(x *requestState) error {
	if x.rules.Monitor {
		return nil
	}
	var err error
	if x.quota, err = x.rules.Engine.Take(x.record.Request.Client); err != nil {
		return err
	}
	if err := x.readAhead(); err != nil {
		return err
	}
	if x.addr, err = x.rules.chooseAddress(x.request.Context(), x.record.Request.Origin, &x.record.Decision.Pace); err != nil {
		return err
	}
	began := time.Now()
	x.slot, err = h.o.Pacer.Wait(x.request.Context(), x.shareKey(), x.record.Decision.Pace)
	if err != nil {
		x.record.Waited = time.Since(began)
	}
	return err
}

// maxCredentials bounds the value of Proxy-Authorization, in bytes. Basic with the longest
// name and password that the configuration allows is shorter.
const maxCredentials = 1 << 10

// authenticate finds out the client of a request, and refuses a client that the entries of
// clients do not admit or that has too many connections open. A request inside a tunnel
// belongs to the client of the tunnel, because clients send credentials with CONNECT only; if
// the Rules have been replaced since, they have to admit that client as well. The record
// of a refused client has its address, not the name that it claims.
func (h *Handler) authenticate(x *requestState) error {
	q := &x.record.Request
	by := connInfoFrom(x.request)
	q.Client = addressOf(x.request.RemoteAddr)
	if by.tunnel != nil {
		name, err := by.tunnel.owner(x.rules)
		if err == nil {
			q.Client = name
		}
		return err
	}
	if by.client != nil && by.client.tooMany {
		return errTooManyConns
	}
	name, err := x.rules.Engine.Admit(x.request.Context(), q.Client, login(x.request.Header))
	if err != nil {
		return err
	}
	q.Client = name
	if by.client != nil && !by.client.assign(name) {
		return errTooManyConns
	}
	return nil
}

// login parses Proxy-Authorization. A field that is repeated, malformed or of another scheme
// than Basic gives a Login that is offered without a name, which is never admitted.
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
