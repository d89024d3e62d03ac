package proxy

import (
	"fmt"
	"net/http"
	"runtime/debug"

	"robotsproxy/policy"
	"robotsproxy/proxy/inbound"
)

// ServeRequest answers one request.
func (c *client) ServeRequest(in *inbound.Request) {
	c.used.Store(true)
	c.h.serve(newRequestState(c, in))
}

// newRequestState returns the state of a request of c that has just arrived.
func newRequestState(c *client, in *inbound.Request) *requestState {
	s := &requestState{client: c, in: in, rules: c.h.rules.acquire(), transfer: transfer{in: in}}
	s.response.s = s
	s.transfer.watch.limit, s.transfer.watch.pool = c.h.o.Silence, &c.h.alarms
	if in.HTTP.Body == nil || in.HTTP.Body == http.NoBody {
		s.transfer.flow.endUpload(uploadComplete)
	}
	newRecord(&s.record, in.HTTP.RemoteAddr)
	// The record has the request as the client has sent it.
	rec, q := &s.record, &s.record.Request
	rec.Monitor, rec.Target, rec.Transparent = s.rules.Monitor, recordedTarget(in), c.conn.Redirected()
	q.Method, q.UserAgent = in.Method, in.HTTP.UserAgent()
	q.From, q.Dest = in.HTTP.Header.Get("From"), in.HTTP.Header.Get("Sec-Fetch-Dest")
	return s
}

// serve answers one request, from the proxy's own port or from an intercepted tunnel.
func (h *Handler) serve(s *requestState) {
	counted := false
	defer func() {
		if counted {
			h.counts.requests.End()
		}
	}()
	defer s.work.End()
	defer s.in.WaitForTunnel()
	// Each request in a tunnel has its own generation.
	defer s.rules.release()
	defer recoverPanic(s)
	connect := s.in.HTTP.Method == http.MethodConnect
	if !connect {
		s.targetErr = s.rules.setTarget(s.in, &s.record.Request)
	}
	if isForProxy(s) {
		s.serveOwnPage()
		return
	}
	counted = true
	h.counts.requests.Begin()
	err := h.authenticate(s)
	if err == nil {
		s.work, err = h.o.Memory.Begin(policy.ShareKey(s.record.Request.Client), s.record.Time)
	}
	switch {
	case err != nil:
		h.finish(s, err)
	case connect:
		h.serveConnect(s)
	default:
		h.serveRequest(s)
	}
}

// serveRequest handles a request other than CONNECT, after its client is known.
func (h *Handler) serveRequest(s *requestState) {
	defer s.releaseSlot()
	err := h.admit(s)
	if err == nil {
		err = h.decide(s, (*policy.Engine).Decide)
	}
	answered := false
	if err == nil {
		answered, err = h.answerFromCache(s)
	}
	if err == nil && !answered {
		err = h.waitForSlot(s)
	}
	if err == nil && !answered {
		err = h.forward(s)
	}
	h.finish(s, err)
}

// recoverPanic ends the request that has caused a panic, and logs the panic.
func recoverPanic(s *requestState) {
	fault := recover()
	if fault == nil {
		return
	}
	if fault == http.ErrAbortHandler {
		panic(fault)
	}
	h := s.client.h
	h.o.Log.Error("request failed with an internal error", "id", s.record.ID, "fault", fmt.Sprint(fault), "stack", string(debug.Stack()))
	if s.written {
		panic(http.ErrAbortHandler)
	}
	if !s.wasSent {
		// A tunnel that was accepted has no decision.
		answerTo(errInternal).override(&s.record.Decision)
	}
	h.finish(s, errInternal)
}
