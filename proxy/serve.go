package proxy

import (
	"fmt"
	"net/http"
	"runtime/debug"

	"robotsproxy/policy"
)

// serve answers one request, from the proxy's own port or from an intercepted tunnel.
func (h *Handler) serve(s *requestState) {
	own := isForProxy(s)
	if !own {
		h.counts.requests.Begin()
		defer h.counts.requests.End()
	}
	defer s.work.End()
	defer s.in.WaitForTunnel()
	// Each request in a tunnel has its own generation.
	defer s.rules.release()
	defer h.recoverPanic(s)
	if own {
		s.serveOwnPage()
		return
	}
	err := h.authenticate(s)
	if err == nil {
		s.work, err = h.o.Memory.Begin(policy.ShareKey(s.record.Request.Client), s.record.Time)
	}
	switch {
	case err != nil:
		h.finish(s, err)
	case s.in.HTTP.Method == http.MethodConnect:
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
		err = h.decide(s)
	}
	answered := false
	if err == nil {
		answered, err = h.answerFromCopy(s)
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
func (h *Handler) recoverPanic(s *requestState) {
	fault := recover()
	if fault == nil {
		return
	}
	if fault == http.ErrAbortHandler {
		panic(fault)
	}
	h.o.Log.Error("request failed with an internal error", "id", s.record.ID, "fault", fmt.Sprint(fault), "stack", string(debug.Stack()))
	if s.written {
		panic(http.ErrAbortHandler)
	}
	h.finish(s, errInternal)
}
