package proxy

import (
	"net/http"
	"runtime"

	"robotsproxy/policy"
)

// ServeHTTP answers one request, which came to the proxy's own port or in an intercepted
// tunnel.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.ProtoMajor == 2 {
		growStack()
	}
	rules := h.rules.acquire()
	if c := connInfoFrom(r).http; c != nil {
		c.serving.Store(true)
	}
	if r.ContentLength == 0 {
		r.Body = http.NoBody // as with HTTP/1.1; else the request could not be sent again on a new connection
	}
	x := &requestState{client: w, request: r, rules: rules, draining: &h.draining}
	defer x.releaseRules()
	x.watch.limit, x.watch.pool = h.o.Silence, &h.alarms
	x.upload.complete.Store(r.Body == nil || r.Body == http.NoBody)
	h.newRecord(&x.record, r.RemoteAddr)
	x.recordRequest()
	defer h.recoverPanic(x)
	q := &x.record.Request
	if r.Method != http.MethodConnect { // see admit for CONNECT
		x.url, q.Origin, x.noURL = target(r) // the later steps rely on it
	}
	if x.url != nil {
		x.recordURL()
	}
	if isForProxy(x) {
		h.serveOwnPage(x)
		return
	}
	h.counts.requests.begin()
	defer h.counts.requests.end()
	err := h.authenticate(x)
	if err == nil {
		x.work, err = h.o.Memory.Begin(policy.ShareKey(q.Client), x.record.Time)
	}
	defer x.work.End()
	switch {
	case err != nil:
		h.finish(x, err)
	case r.Method == http.MethodConnect:
		h.serveConnect(x)
	default:
		h.serve(x)
	}
}

// growStack grows the goroutine's stack at once to the size that a request takes. HTTP/2 has a
// new goroutine for each request, whose stack would grow in steps, with a copy at each.
//
//go:noinline
func growStack() {
	var frame [11 << 10]byte // with the frames that are there already, under 16 KiB: larger stacks are not cached
	runtime.KeepAlive(&frame)
}

// serve handles a request that is not a CONNECT, once its client is known.
func (h *Handler) serve(x *requestState) {
	defer x.releaseSlot()
	err := h.admit(x)
	if err == nil {
		err = h.decide(x)
	}
	answered := false
	if err == nil {
		answered, err = h.answerFromCopy(x)
	}
	if err == nil && !answered {
		err = h.waitForSlot(x)
	}
	if err == nil && !answered {
		err = h.forward(x)
	}
	h.finish(x, err)
}
