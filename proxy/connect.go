package proxy

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"robotsproxy/policy"
	"robotsproxy/policy/pace"
	"robotsproxy/robots"
)

// serveConnect answers CONNECT. It checks the form, the address and the port, and whether the
// host is denied. The requests inside the tunnel are judged separately. It connects to the
// origin first, so that the client gets a 502 if the origin cannot be reached. It does not do
// so while the host is in a back-off that lasts longer than a request may wait.
func (h *Handler) serveConnect(s *requestState) {
	defer s.waitForTunnel()
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

// intercept accepts a tunnel and passes it to the inner server. It writes a record only if
// it fails.
func (h *Handler) intercept(s *requestState, o robots.Origin) error {
	var limits pace.Limits
	// In monitor mode a denied host is recorded with the requests inside the tunnel.
	if !s.rules.Monitor {
		d := s.rules.Engine.DecideConnect(s.record.Request)
		if d.Verdict != policy.Allow {
			s.record.Decision = d
			return errRefused
		}
		limits = d.Pace
	}
	err := tryAddresses(func() error { return h.reach(s, o, limits) })
	s.dialled = s.dialled && err == nil
	// During a back-off the requests inside get their own responses, for example those of robots.txt.
	if err != nil && !isBusy(pace.BackedOff)(err) {
		return err
	}
	held, err := h.o.Memory.Open(s.shareKey(), time.Now())
	if err != nil {
		return err
	}
	// At shutdown, the alert of a client that has ended is read.
	t, err := h.acceptTunnel(s, o, &h.counts.intercepted, closeReadOrClose)
	if err != nil {
		held.End()
		return err
	}
	t.memory = held
	if s.dialled {
		contact := s.record.Begun()
		contact.Unused, contact.Verdict, contact.Reason = true, policy.Allow, policy.ReasonTunnel
		// The proxy's health has the error.
		t.onUnused = func() { _ = h.o.Begin(&contact) }
	}
	// Each request inside counts for itself, and a tunnel without one is idle.
	s.leave()
	defer h.hijacked.remove(t.Conn)
	inner, err := h.handshake(s.rules, t)
	if err != nil || !h.handoff.give(inner) {
		h.o.Log.Debug("tunnel closed before its first request", "origin", o.String(), "error", err)
		h.countUnused(t)
		t.Close()
	}
	return nil
}

// reach makes sure that the origin can be connected to, within the concurrency limit. On another port than 443
// the client may not speak TLS, which its first bytes tell, so nothing is sent to the origin.
func (h *Handler) reach(s *requestState, o robots.Origin, limits pace.Limits) error {
	ctx := s.request.Context()
	tcp := o.Scheme == "https" && o.Port != 443
	s.dialled = s.rules.Egress.Dials(o, tcp)
	if !s.rules.Monitor {
		wait := h.o.Pacer.WaitConnect
		if s.dialled {
			wait = h.o.Pacer.WaitContact
		}
		var err error
		if s.addr, err = s.rules.chooseAddress(ctx, o, &limits); err == nil {
			s.slot, err = wait(ctx, s.shareKey(), limits)
		}
		if err != nil {
			return err
		}
	}
	defer s.releaseSlot()
	if tcp {
		return s.rules.Egress.At(s.addr).ReachTCP(ctx, o)
	}
	return s.rules.Egress.At(s.addr).Reach(ctx, o)
}

// acceptTunnel answers a CONNECT and turns its connection into a tunnel, which kind
// counts. A shutdown ends it with end. The caller must remove the tunnel from h.hijacked when
// it passes it on or closes it.
func (h *Handler) acceptTunnel(s *requestState, o robots.Origin, kind *flowCounter, end func(net.Conn)) (*tunnelConn, error) {
	accept := s.acceptStream
	if s.request.ProtoMajor == 1 {
		accept = s.acceptHTTP1
	}
	conn, buffered, err := accept()
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	if !h.hijacked.add(conn, end) {
		conn.Close()
		return nil, http.ErrServerClosed
	}
	client, by := s.record.Request.Client, connInfoFrom(s.request)
	pass := s.rules.Engine.Pass(client, addressOf(s.request.RemoteAddr))
	t := &tunnelConn{
		Conn: conn, counter: kind, buffered: buffered, pass: pass,
		origin: o, authority: authority(o), redirect: by.redirect(), outer: by.clientConn(),
	}
	t.admitted.Store(&admission{client, s.rules.number})
	kind.begin()
	return t, nil
}

// acceptHTTP1 takes over an HTTP/1 connection and answers its CONNECT. A redirected client has
// sent none and gets no answer.
func (s *requestState) acceptHTTP1() (net.Conn, *bufio.Reader, error) {
	conn, buffered, err := s.hijack()
	if err != nil {
		return nil, nil, err
	}
	if c, ok := conn.(*httpConn); ok && c.connect != "" {
		return conn, buffered, nil
	}
	err = conn.SetWriteDeadline(time.Now().Add(lastWait))
	if err == nil {
		_, err = io.WriteString(conn, "HTTP/1.1 200 Connection established\r\n\r\n")
	}
	if err == nil {
		err = conn.SetWriteDeadline(time.Time{})
	}
	if err != nil {
		conn.Close()
		return nil, nil, err
	}
	return conn, buffered, nil
}

// handshake returns the connection inside a tunnel: TLS after the handshake, or HTTP without
// TLS.
func (h *Handler) handshake(rules *generation, t *tunnelConn) (net.Conn, error) {
	// Twice the time, because browsers make tunnels before they need them.
	if err := t.SetDeadline(time.Now().Add(2 * h.o.HeadTimeout)); err != nil {
		return nil, err
	}
	first, err := t.buffered.Peek(1)
	if err != nil {
		return nil, err
	}
	// RFC 8446 5.1.
	const handshakeRecord = 22
	if first[0] != handshakeRecord {
		return h.newHTTPConn(t), t.SetDeadline(time.Time{})
	}
	if rules.PassThrough(t.origin.Host) {
		return nil, errors.New("TLS on a port of plain HTTP, to a host whose tunnels are passed through")
	}
	// A deadline of the connection, because a context's would need a goroutine.
	if err := t.SetDeadline(time.Now().Add(h.o.HeadTimeout)); err != nil {
		return nil, err
	}
	secure, err := rules.Authority.Handshake(context.Background(), t, t.origin.Host, t.origin.Port)
	if err != nil {
		h.countHandshake(t, err)
		return nil, err
	}
	if err := t.SetDeadline(time.Time{}); err != nil {
		return nil, err
	}
	state := secure.ConnectionState()
	t.secured, t.serverName = time.Now(), state.ServerName
	if state.NegotiatedProtocol == "h2" {
		return secure, nil
	}
	return h.newHTTPConn(secure), nil
}

// passThrough judges a tunnel by its host alone and passes it through.
func (h *Handler) passThrough(s *requestState, o robots.Origin) error {
	s.record.Decision = s.rules.Engine.DecideTunnel(s.request.Context(), s.record.Request)
	err := h.enforce(s)
	if err == nil {
		err = h.waitForSlot(s)
	}
	if err != nil {
		return err
	}
	origin, err := s.rules.Egress.At(s.addr).Dial(s.request.Context(), o.Host, o.Port)
	if err != nil {
		return err
	}
	defer origin.Close()
	s.from, s.check = s, h.o.Ready
	if err := s.ready(s.request.Context()); err != nil {
		return err
	}
	s.begun()
	if s.rules.Signers.of(s.record.Request.Client) != nil {
		s.recordSignature(nil, policy.UnsignedTunnel)
	}
	if err := s.detachSlot(); err != nil {
		return err
	}
	if err := h.sent.writeNow(&s.sentRequest); err != nil {
		return err
	}
	t, err := h.acceptTunnel(s, o, &h.counts.passedThrough, closeConn)
	if err != nil {
		return err
	}
	defer h.hijacked.remove(t.Conn)
	defer t.Close()
	// The end of a stream looks like that of its data, after which the origin may still send.
	if s.tunnel.conn != nil {
		defer context.AfterFunc(s.request.Context(), func() { origin.Close() })()
	}
	s.record.Status = http.StatusOK
	s.record.Bytes, err = relay(rawConn(t.Conn), t.buffered, origin, true, h.o.Silence)
	return err
}

// acceptStream answers a CONNECT of HTTP/2 and makes a connection from its stream. The
// handler of the CONNECT must then call s.waitForTunnel.
func (s *requestState) acceptStream() (net.Conn, *bufio.Reader, error) {
	client := http.NewResponseController(s.client)
	header := s.client.Header()
	// The response that establishes a tunnel has neither field.
	header["Content-Type"], header["Date"] = nil, nil
	s.response.headSent = true
	s.client.WriteHeader(http.StatusOK)
	if err := client.Flush(); err != nil {
		return nil, nil, err
	}
	sent, toClient := net.Pipe()
	received, fromClient := net.Pipe()
	s.tunnel.conn = &streamConn{Conn: sent, received: received, remote: remoteAddr(s.request), client: client}
	body := s.request.Body
	s.tunnel.copies.Go(func() {
		io.Copy(fromClient, body)
		fromClient.Close()
	})
	s.tunnel.copies.Go(func() {
		io.Copy(flushWriter{s.client, client}, toClient)
		s.tunnel.conn.end()
		toClient.Close()
		// Ends the other copy.
		body.Close()
	})
	return s.tunnel.conn, bufio.NewReader(received), nil
}

// waitForTunnel waits until the tunnel of a stream has ended, if there is one, because net/http
// ends the stream when the handler returns.
func (s *requestState) waitForTunnel() {
	// Each request inside has its own generation.
	s.releaseRules()
	s.tunnel.copies.Wait()
	if s.tunnel.conn != nil && s.tunnel.conn.broken.Load() {
		// net/http resets the stream.
		panic(http.ErrAbortHandler)
	}
}

// A flushWriter flushes after each write.
type flushWriter struct {
	io.Writer
	client *http.ResponseController
}

func (w flushWriter) Write(b []byte) (int, error) {
	n, err := w.Writer.Write(b)
	if err == nil {
		err = w.client.Flush()
	}
	return n, err
}
