package proxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"robotsproxy/robots"
)

// maxSilentTunnel is how long a client may take to begin to speak inside its
// tunnel; browsers make tunnels ahead of need.
const maxSilentTunnel = time.Minute

const established = "HTTP/1.1 200 Connection established\r\n\r\n"

// serveConnect answers CONNECT. The identity is that of the requests inside,
// so only form, address and port are judged here; and the origin is dialled
// first, so that a dead one is a 502 that the client can see.
func (h *Handler) serveConnect(x *exchange) {
	defer x.release()
	o, err := h.admitConnect(x)
	if err != nil {
		h.finish(x, err)
		return
	}
	// Plain HTTP needs no opening: it is judged like all other requests.
	if o.Scheme == "https" && h.o.Sealed(o.Host) {
		h.finish(x, h.seal(x, o))
		return
	}
	if err := h.open(x, o); err != nil {
		h.finish(x, err)
	}
}

// admitConnect finds what the tunnel is to (RFC 9112 3.2.3: host and port).
func (h *Handler) admitConnect(x *exchange) (robots.Origin, error) {
	r := x.request
	x.record.Target = withoutUserinfo(r.RequestURI)
	x.record.Request.UserAgent = r.UserAgent()
	if err := h.o.Ready(); err != nil {
		return robots.Origin{}, err
	}
	if tunnelOf(r) != nil {
		return robots.Origin{}, fmt.Errorf("%w: a tunnel inside a tunnel", errMalformed)
	}
	if r.RequestURI != r.Host || !hasPort(r.Host) || strings.HasSuffix(r.Host, ":") {
		return robots.Origin{}, fmt.Errorf("%w: CONNECT needs host:port, and nothing else", errMalformed)
	}
	o, err := robots.ParseOrigin("https", r.Host)
	if err != nil {
		return robots.Origin{}, fmt.Errorf("%w: %w", errMalformed, err)
	}
	if o.Port == 80 {
		o.Scheme = "http"
	}
	x.record.Request.Origin, x.record.Request.PathQuery = o, "/"
	if looped(r.Header, h.pseudo) {
		return o, errLoop
	}
	return o, h.o.Door.Check(o.Host, o.Port)
}

// open makes an intercepted tunnel and hands it to the inner server. It leaves
// a record only if it fails.
func (h *Handler) open(x *exchange, o robots.Origin) error {
	ctx := x.request.Context()
	if !h.o.Monitor {
		var err error
		if x.slot, err = h.o.Pacer.Enter(ctx, x.record.Request.Client, h.o.Engine.Limits(o)); err != nil {
			return err
		}
	}
	if err := h.o.Door.Reach(ctx, o); err != nil {
		return err
	}
	x.release()
	t, err := h.take(x, o)
	if err != nil {
		return err
	}
	defer h.conns.remove(t.Conn)
	inner, err := h.intercept(t)
	if err != nil || !h.handoff.give(inner) {
		h.o.Log.Debug("a tunnel ended before its first request", "origin", o.String(), "error", err)
		t.Close()
	}
	return nil
}

// take makes a client's connection a tunnel. The caller removes it from
// h.conns when somebody else has it, or it is closed.
func (h *Handler) take(x *exchange, o robots.Origin) (*tunnelConn, error) {
	conn, buffered, err := x.hijack()
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	if !h.conns.add(conn) {
		conn.Close()
		return nil, http.ErrServerClosed
	}
	return &tunnelConn{Conn: conn, buffered: buffered, origin: o, authority: authority(o)}, nil
}

// intercept answers the CONNECT and finds out what the client speaks: TLS, or
// HTTP in the clear.
func (h *Handler) intercept(t *tunnelConn) (net.Conn, error) {
	if err := t.SetDeadline(time.Now().Add(maxSilentTunnel)); err != nil {
		return nil, err
	}
	if _, err := io.WriteString(t.Conn, established); err != nil {
		return nil, err
	}
	first, err := t.buffered.Peek(1)
	if err == nil {
		err = t.SetDeadline(time.Time{})
	}
	const handshakeRecord = 22 // RFC 8446 5.1
	if err != nil || first[0] != handshakeRecord {
		return t, err
	}
	if h.o.Sealed(t.origin.Host) {
		return nil, errors.New("TLS on a port of plain HTTP, to a host whose tunnels are not to be opened")
	}
	ctx, cancel := context.WithTimeout(context.Background(), headTimeout)
	defer cancel()
	return h.o.Authority.Handshake(ctx, t, t.origin.Host)
}

// seal judges a tunnel by its host alone and passes it unopened.
func (h *Handler) seal(x *exchange, o robots.Origin) error {
	x.record.Decision = h.o.Engine.DecideTunnel(x.request.Context(), x.record.Request)
	err := h.verdict(x)
	if err == nil {
		err = h.wait(x)
	}
	if err != nil {
		return err
	}
	origin, err := h.o.Door.Dial(x.request.Context(), o.Host, o.Port)
	if err != nil {
		return err
	}
	defer origin.Close()
	x.wroteHeaders()
	if err := x.detach(); err != nil {
		return err
	}
	t, err := h.take(x, o)
	if err != nil {
		return err
	}
	defer h.conns.remove(t.Conn)
	defer t.Close()
	x.record.Status = http.StatusOK
	if _, err := io.WriteString(t.Conn, established); err != nil {
		return err
	}
	x.record.Bytes, err = relay(t.Conn, t.buffered, origin, true, h.o.Silence)
	return err
}
