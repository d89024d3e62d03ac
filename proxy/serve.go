package proxy

import (
	"net/http"
	"runtime"

	"robotsproxy/policy"
)

// ServeHTTP answers one request, whether it came to the proxy's own port or
// out of an intercepted tunnel.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.ProtoMajor == 2 {
		growStack()
	}
	rules := h.rules.acquire()
	if c := connInfoFrom(r).http; c != nil {
		c.serving.Store(true)
	}
	if r.ContentLength == 0 {
		r.Body = http.NoBody // as HTTP/1.1 has it: only so may the request go out again on a new connection
	}
	x := &requestState{client: w, request: r, rules: rules, draining: &h.draining}
	defer x.releaseRules()
	x.watch.limit, x.watch.pool = h.o.Silence, &h.alarms
	x.upload.complete.Store(r.Body == nil || r.Body == http.NoBody)
	h.newRecord(&x.record, r.RemoteAddr)
	x.recordRequest()
	defer h.recoverPanic(x)
	q := &x.record.Request
	if r.Method != http.MethodConnect { // whose target is a host: see admit
		x.url, q.Origin, x.noURL = target(r) // once: every later step trusts it
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

// growStack makes room at once for what a request's way takes. HTTP/2 has a new
// goroutine for each, whose stack would grow step by step, and be copied each time.
//
//go:noinline
func growStack() {
	var room [11 << 10]byte // with what stands already, under 16 KiB: more is dearer to have
	runtime.KeepAlive(&room)
}

// serve is a request's way, from top to bottom.
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
