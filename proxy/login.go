package proxy

import (
	"encoding/base64"
	"net/http"
	"strings"

	"robotsproxy/policy"
)

// maxCredentials bounds, in octets, the value of Proxy-Authorization: Basic
// with the longest name and password that there can be is shorter.
const maxCredentials = 1 << 10

// challenge asks for a login (RFC 9110 11.7.1, RFC 7617 2 and 2.1).
const challenge = `Basic realm="robotsproxy", charset="UTF-8"`

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
		name, err := by.tunnel.who(x.rules)
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
