package proxy

import (
	"encoding/base64"
	"net/http"
	"strings"
	"time"

	"robotsproxy/policy"
)

// admit lets in what may go where it is to go.
func (h *Handler) admit(x *exchange) error {
	if err := h.o.Ready(); err != nil {
		return err
	}
	if x.noURL != nil {
		return x.noURL
	}
	q := &x.record.Request
	x.rules.speakFor(q)
	if looped(x.request.Header, h.pseudo) {
		return errLoop
	}
	return x.rules.Egress.Check(q.Origin.Host, q.Origin.Port)
}

// judge asks the policy.
func (h *Handler) judge(x *exchange) error {
	x.record.Decision = x.rules.Engine.Decide(x.request.Context(), x.record.Request)
	return h.verdict(x)
}

// verdict keeps the robots.txt that the decision rests on, and then gives the refusal,
// unless the proxy only monitors.
func (h *Handler) verdict(x *exchange) error {
	err := h.o.Keep(&x.record)
	x.record.Decision.Release() // the request, or its refusal, may take long
	if err != nil {
		return err
	}
	if x.rules.Monitor {
		return nil
	}
	return refusal(&x.record.Decision)
}

// refusal turns a refusing Decision into an error.
func refusal(d *policy.Decision) error {
	switch {
	case d.Verdict == policy.Allow:
		return nil
	case d.Err != nil && (d.Reason == policy.ReasonOrigin || d.Reason == policy.ReasonClient):
		return d.Err // what kind of failure it was makes the answer
	}
	return errRefused
}

// wait counts the request for its client, and holds it until its slot has come.
func (h *Handler) wait(x *exchange) error {
	if x.rules.Monitor {
		return nil
	}
	var err error
	if x.ticket, err = x.rules.Engine.Take(x.record.Request.Client); err != nil {
		return err
	}
	if err := x.readAhead(); err != nil {
		return err
	}
	if x.at, err = x.rules.aim(x.request.Context(), x.record.Request.Origin, &x.record.Decision.Pace); err != nil {
		return err
	}
	began := time.Now()
	x.slot, err = h.o.Pacer.Wait(x.request.Context(), x.share(), x.record.Decision.Pace)
	if err != nil {
		x.record.Waited = time.Since(began)
	}
	return err
}

// maxCredentials bounds, in octets, the value of Proxy-Authorization: Basic
// with the longest name and password that there can be is shorter.
const maxCredentials = 1 << 10

// enter finds out who asks, before anything else is looked at, and keeps out
// whom the clients' entries do, and who has too many connections open. What
// comes out of a tunnel is asked by whom the tunnel was made for: clients send
// their credentials with CONNECT alone. When other Rules are in force than then,
// it has to be somebody still who would be let in so. Who is kept out goes by its address; a
// name that is only claimed is not recorded.
func (h *Handler) enter(x *exchange) error {
	q := &x.record.Request
	by := arrivedBy(x.request)
	q.Client = addressOf(x.request.RemoteAddr)
	if by.tunnel != nil {
		name, err := by.tunnel.owner(x.rules)
		if err == nil {
			q.Client = name
		}
		return err
	}
	if by.client != nil && by.client.tooMany {
		return errCrowded
	}
	name, err := x.rules.Engine.Admit(x.request.Context(), q.Client, login(x.request.Header))
	if err != nil {
		return err
	}
	q.Client = name
	if by.client != nil && !by.client.belongsTo(name) {
		return errCrowded
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
