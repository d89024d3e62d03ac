package proxy

import (
	"net/http"
	"runtime"

	"robotsproxy/policy"
)

// ServeHTTP answers one request, from the proxy's own port or from an intercepted tunnel.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.ProtoMajor == 2 {
		growStack()
	}
	rules := h.rules.acquire()
	by := connInfoFrom(r)
	if by.tunnel != nil {
		by.tunnel.used.Store(true)
	}
	if by.http != nil {
		by.http.serving.Store(true)
	}
	if r.ContentLength == 0 {
		// As with HTTP/1.1; otherwise the request could not be sent again on a new connection.
		r.Body = http.NoBody
	}
	s := &requestState{client: w, request: r, rules: rules, draining: &h.draining, allSent: &h.sent}
	defer s.releaseRules()
	s.use(by.clientConn())
	defer s.leave()
	s.watch.limit, s.watch.pool = h.o.Silence, &h.alarms
	if r.Body == nil || r.Body == http.NoBody {
		s.flow.endUpload(uploadComplete)
	}
	newRecord(&s.record, r.RemoteAddr)
	head := sentHeadOf(r)
	s.recordRequest(head)
	defer h.recoverPanic(s)
	q := &s.record.Request
	switch {
	case head.fault != nil:
		s.noTarget = head.fault
	// For CONNECT see admit.
	case r.Method != http.MethodConnect:
		s.setTarget(head.target)
	}
	if isForProxy(s) {
		h.serveOwnPage(s)
		return
	}
	h.counts.requests.begin()
	defer h.counts.requests.end()
	err := h.authenticate(s, head)
	if err == nil {
		s.work, err = h.o.Memory.Begin(policy.ShareKey(q.Client), s.record.Time)
	}
	defer s.work.End()
	switch {
	case err != nil:
		h.finish(s, err)
	case r.Method == http.MethodConnect:
		h.serveConnect(s)
	default:
		h.serve(s)
	}
}

// growStack grows the goroutine's stack in one step to the size that a request needs. HTTP/2
// has a new goroutine for each request. Its stack would otherwise grow in steps, with a copy
// at each.
//
//go:noinline
func growStack() {
	// Together with the existing frames under 16 KiB, because larger stacks are not cached.
	var frame [11 << 10]byte
	runtime.KeepAlive(&frame)
}

// serve handles a request other than CONNECT, after its client is known.
func (h *Handler) serve(s *requestState) {
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
