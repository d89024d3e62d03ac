package proxy

import (
	"bytes"
	"encoding/base64"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"robotsproxy/policy"
	"robotsproxy/policy/audit"
	"robotsproxy/policy/explain"
	"robotsproxy/policy/labels"
	"robotsproxy/proxy/clientfault"
	"robotsproxy/proxy/egress"
	"robotsproxy/proxy/inbound"
	"robotsproxy/proxy/mitm"
)

// A client is a client's connection, or a tunnel in one, as the proxy knows it. It is the [inbound.Handler] of its requests.
type client struct {
	h    *Handler
	conn *inbound.Conn

	// tunnel is nil for the connection to the proxy's own port.
	tunnel *inbound.Tunnel

	// admitted is the client to which the requests belong. On the proxy's own port it is the one of the last request; before
	// the first it has the address. pass says how the client of a tunnel was admitted.
	admitted atomic.Pointer[admission]
	pass     policy.Pass

	// logins owns the connections to origins that carry the client's login.
	logins egress.Owner

	// used says that a request has arrived. If none has in a tunnel whose origin was dialled, dialled is the line that the
	// audit gets; nil: none.
	used    atomic.Bool
	dialled *audit.Begun

	// labels are those of the CONNECT of a tunnel, and so of all requests in it.
	labels labels.Set
}

// An admission is the client to which a tunnel and all its requests belong.
type admission struct {
	// name is the client's name or address.
	name string

	// generation is the latest generation under which the client was admitted.
	generation uint64
}

// newClient returns the client of a connection to the proxy's own port.
func newClient(h *Handler, conn *inbound.Conn) *client {
	c := &client{h: h, conn: conn}
	c.admitted.Store(&admission{name: inbound.AddressOf(conn.RemoteAddr().String())})
	return c
}

// name returns the client, as far as it is known without a request.
func (c *client) name() string { return c.admitted.Load().name }

// assign counts the connection for a client, whose name is now known. It returns false if that client already has its
// maximum of connections.
func (c *client) assign(name string) bool {
	if c.name() == name {
		return true
	}
	if !c.conn.CountFor(policy.ShareKey(name)) {
		return false
	}
	c.admitted.Store(&admission{name: name})
	return true
}

// owner returns the client to which a tunnel belongs under g. It returns an error of the
// policy if the client would not be admitted in the same way any more. A later generation may
// have admitted the client under another name, which g does not know.
func (c *client) owner(g *generation) (name string, err error) {
	last := c.admitted.Load()
	if last.generation == g.number {
		return last.name, nil
	}
	if name, err = g.Engine.Readmit(c.pass); err != nil {
		return "", err
	}
	for last.generation < g.number && !c.admitted.CompareAndSwap(last, &admission{name, g.number}) {
		last = c.admitted.Load()
	}
	return name, nil
}

// identify returns the client of a request from an address, under g. An error with a name is about that client.
func (c *client) identify(r *http.Request, g *generation, address string) (name string, err error) {
	switch {
	case c.tunnel != nil:
		return c.owner(g)
	case c.conn.OverLimit:
		// Its client is the one of the address: no password is checked for a request that is refused.
		name, _ = g.Engine.Admit(r.Context(), address, policy.Login{})
		return name, errTooManyConns
	}
	offered := login(r.Header)
	if c.conn.Redirected() {
		offered = policy.Login{}
	}
	if name, err = g.Engine.Admit(r.Context(), address, offered); err == nil && !c.assign(name) {
		err = errTooManyConns
	}
	return name, err
}

// maxCredentials is the maximum length of Proxy-Authorization, in bytes. Basic with the
// longest name and password of a configuration is shorter.
const maxCredentials = 1 << 10

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

// Closed ends what belongs to the connection.
func (c *client) Closed() {
	if c.dialled != nil && !c.used.Load() {
		// An error shows in the proxy's health.
		_ = c.h.o.Begin(c.dialled)
	}
	if c.tunnel != nil {
		c.countUnused()
	}
	c.logins.End()
}

// atOnce is how soon after its TLS handshake a client closes a tunnel that does not trust the certificate and looks at it
// only then, as GnuTLS clients do. Browsers keep the tunnels that they open in advance for longer.
const atOnce = 3 * time.Second

// countUnused counts a tunnel that ended without a request after its TLS handshake.
func (c *client) countUnused() {
	unused, secured := c.tunnel.Unused()
	if !unused || secured.IsZero() {
		return
	}
	o := c.tunnel.Origin
	c.h.rules.active.Load().Authority.AddUnused(o.Host, o.Port)
	if time.Since(secured) < atOnce && !c.h.in.IsEnding() {
		c.countFault(clientfault.MaybeDistrust, c.tunnel.Authority)
	}
}

// countHandshake counts a tunnel that ended with err before it could be served, if the cause may be that the client does
// not trust the certificate.
func (c *client) countHandshake(err error) {
	kind := clientfault.Distrust
	switch mitm.FaultOf(err) {
	case mitm.FaultUntrusted:
	case mitm.FaultClosed:
		// The proxy itself may have closed the tunnel.
		if errors.Is(err, net.ErrClosed) || c.h.in.IsEnding() {
			return
		}
		kind = clientfault.MaybeDistrust
	default:
		return
	}
	c.countFault(kind, c.tunnel.Authority)
}

// countFault counts and logs a fault of the client, in a tunnel to host ("": in none).
func (c *client) countFault(k clientfault.Kind, host string) {
	if !c.h.counts.clientFaults.Add(k, c.name(), host, time.Now()) {
		return
	}
	log := c.h.o.Log.With("client", c.name())
	if host != "" {
		log = log.With("host", host)
	}
	log.Warn("requests of a client do not arrive", "why", k.String(), "what_to_do", k.Advice())
}

// Refuse records what is no request, and returns the response.
func (c *client) Refuse(r inbound.Refusal) *http.Response {
	a := answerTo(r.Err)
	switch {
	case errors.Is(r.Err, inbound.ErrTLSInTheClear):
		a = answerTo(inbound.ErrMalformed)
		a.detail, a.advice = "This port expects plain HTTP.", clientfault.TLS.Advice()
		c.countFault(clientfault.TLS, "")
	case errors.Is(r.Err, inbound.ErrPlainHTTP):
		a = answerTo(inbound.ErrMalformed)
		a.detail, a.advice = "This port requires TLS.", clientfault.PlainHTTP.Advice()
		c.countFault(clientfault.PlainHTTP, "")
	}
	rec := new(audit.Record)
	newRecord(rec, c.conn.RemoteAddr().String())
	rec.Request.Client, rec.Request.Method, rec.Target = c.name(), r.Method, withoutUserinfo(r.Sent)
	rec.Decision.Reason, rec.Transparent = a.reason, r.Silent
	if !r.Silent {
		rec.Status = a.status
	}
	if err := writeRecord(c.h.o.Audit, rec, r.Err); err != nil {
		a = answerTo(err)
	}
	p := newProblem(a, explain.Explanation{}, false, rec.ID)
	p.URL = beginningOf(rec.Target)
	if a.retry > 0 {
		p.RetryAfter = seconds(a.retry)
	}
	body := p.text()
	resp := &http.Response{
		StatusCode: a.status, ProtoMajor: 1, ProtoMinor: 1, Close: true,
		Header: ownHeader(a, p), ContentLength: int64(len(body)), Body: io.NopCloser(bytes.NewReader(body)),
	}
	resp.Header.Set("Content-Type", "text/plain; charset=utf-8")
	resp.Header.Set("Date", time.Now().UTC().Format(http.TimeFormat))
	return resp
}
