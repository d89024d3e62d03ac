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

// decide asks the policy.
func (h *Handler) decide(x *requestState) error {
	x.record.Decision = x.rules.Engine.Decide(x.request.Context(), x.record.Request)
	return h.enforce(x)
}

// enforce keeps the robots.txt that the decision rests on, and then gives the refusal,
// unless the proxy only monitors.
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

// refusalError turns a refusing Decision into an error.
func refusalError(d *policy.Decision) error {
	switch {
	case d.Verdict == policy.Allow:
		return nil
	case d.Err != nil && (d.Reason == policy.ReasonOrigin || d.Reason == policy.ReasonClient):
		return d.Err // what kind of failure it was makes the answer
	}
	return errRefused
}

// waitForSlot counts the request for its client, and holds it until its slot has come.
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

// maxCredentials bounds, in octets, the value of Proxy-Authorization: Basic
// with the longest name and password that there can be is shorter.
const maxCredentials = 1 << 10

// authenticate finds out who asks, before anything else is looked at, and keeps out
// whom the clients' entries do, and who has too many connections open. What
// comes out of a tunnel is asked by whom the tunnel was made for: clients send
// their credentials with CONNECT alone. When other Rules are in force than then,
// it has to be somebody still who would be let in so. Who is kept out goes by its address; a
// name that is only claimed is not recorded.
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

// login reads Proxy-Authorization. What is there and not Basic, not well formed,
// or there twice, is a Login that is offered and cannot be right.
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
	var octets [maxCredentials]byte
	n, err := base64.StdEncoding.Decode(octets[:], []byte(strings.TrimLeft(token, " ")))
	if err != nil {
		return l
	}
	if name, password, ok := strings.Cut(string(octets[:n]), ":"); ok {
		l.Name, l.Password = name, password
	}
	return l
}
