// Package proxy is the only http.Handler that a client meets. A request's way
// through it is one straight line, [Handler.serve]: one normalised target, the
// judgement, the wait for a slot, the sending, the record, the answer. What
// comes out of an intercepted tunnel takes the very same way. Requests come from
// net/http's server, or, for nearly all of HTTP/1.1, from package h1, which stands
// before it and costs less.
//
// goproxy is the pipeline that a request is sent through (its OnRequest and
// OnResponse hooks, its copying of heads and bodies); CONNECT, interception,
// upgrades and every answer of our own are handled here. Who asks the proxy itself,
// at its own address, is answered by package guide, and leaves no record: nothing
// goes out.
//
// It fails closed: whatever goes wrong before the origin's answer has begun
// becomes a refusal from one table, and its record is written first, with the one
// exception that package audit names. What breaks after that breaks the client's
// transfer, never shortens it silently.
//
// What it goes by, the [Rules], may be changed while it serves: a request keeps
// to those that it began under, from its first look at who asks to its record.
//
// A Handler may be used by any number of goroutines at once.
package proxy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/elazarl/goproxy"

	"robotsproxy/policy"
	"robotsproxy/policy/audit"
	"robotsproxy/policy/memory"
	"robotsproxy/policy/pace"
	"robotsproxy/proxy/egress"
	"robotsproxy/proxy/h1"
	"robotsproxy/robots"
)

// Options make a Handler. All but Memory and the Limits are required.
type Options struct {
	Rules // at first
	Pacer *pace.Pacer
	Audit audit.Sink                // the evidence first, then whoever else listens
	Keep  func(*audit.Record) error // keeps the robots.txt that a decision rests on before the proxy acts on the decision: audit.Log.SaveSnapshot
	Ready func() error              // why requests must be refused at present: the audit cannot be written
	Log   *slog.Logger

	Memory *memory.Budget // what requests are counted against; nil: one of memory.Default
	Limits
}

// Limits are for how long clients may do nothing.
type Limits struct {
	Linger      time.Duration // how long Shutdown lets requests finish; zero: 20 s
	Silence     time.Duration // a transfer that stands still so long, at the most twice, is ended; zero: 5 minutes
	HeadTimeout time.Duration // for a request's head or a TLS handshake, and twice that to begin in a tunnel; zero: 30 s
}

// orDefault gives the limits with what zero stands for.
func (l Limits) orDefault() Limits {
	return Limits{
		Linger:      cmp.Or(l.Linger, 20*time.Second),
		Silence:     cmp.Or(l.Silence, 5*time.Minute),
		HeadTimeout: cmp.Or(l.HeadTimeout, 30*time.Second),
	}
}

// A Handler answers the clients of a proxy. Make one with New, end it with
// Shutdown.
type Handler struct {
	o        Options  // but for the Rules
	pseudo   string   // our name in Via, unlike any other proxy's
	via      []string // what we add to a Via header; one value
	pipeline *goproxy.ProxyHttpServer
	outer    *h1.Server
	inner    *h1.Server   // serves what comes out of intercepted tunnels
	conns    *connections // hijacked ones
	unused   unused
	handoff  *handoff
	room     *room       // for connections to the own port
	draining atomic.Bool // see Drain
	cut      atomic.Bool // Shutdown breaks requests off
	parent   throttle    // of what is said of it
	refusals *refusals   // when the next one of a client is answered
	alarms   sync.Pool   // stopped, for the next transfers: see watch.spare
	ids      *audit.IDs
	counts   counts

	reign  atomic.Pointer[reign] // the one in force
	reigns sync.WaitGroup        // that are not over
	using  sync.Mutex            // held to begin a reign; guards ended
	ended  bool                  // no other reign begins
}

// New checks the options and makes a Handler.
func New(o Options) (*Handler, error) {
	for name, missing := range map[string]bool{
		"Pacer": o.Pacer == nil, "Audit": o.Audit == nil, "Keep": o.Keep == nil, "Ready": o.Ready == nil, "Log": o.Log == nil,
	} {
		if missing {
			return nil, fmt.Errorf("proxy: option %s is missing", name)
		}
	}
	rules, err := o.Rules.whole()
	if err != nil {
		return nil, err
	}
	if min(o.Linger, o.Silence, o.HeadTimeout) < 0 {
		return nil, errors.New("proxy: a limit is negative")
	}
	if o.Memory == nil {
		o.Memory = memory.New(memory.Options{})
	}
	o.Rules, o.Limits = Rules{}, o.Limits.orDefault()
	h := &Handler{
		o:       o,
		pseudo:  rules.Egress.Pseudonym(),
		conns:   newConnections(),
		handoff: newHandoff(),
		room:    &room{free: make(chan struct{}, 1)},
		ids:     audit.NewIDs(),

		refusals: newRefusals(),
	}
	h.via = []string{"1.1 " + h.pseudo}
	h.unused.tunnels = &h.counts.unused
	h.install(rules, 1)
	h.pipeline = h.newPipeline()
	h.outer = h1.New(h.newServer())
	h.inner = h1.New(h.newServer())
	return h, nil
}

// ServeHTTP answers one request, whether it came to the proxy's own port or
// out of an intercepted tunnel.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.ProtoMajor == 2 {
		growStack()
	}
	rules := h.begin()
	if c := arrivedBy(r).http; c != nil {
		c.serving.Store(true)
	}
	if r.ContentLength == 0 {
		r.Body = http.NoBody // as HTTP/1.1 has it: only so may the request go out again on a new connection
	}
	x := &exchange{client: w, request: r, rules: rules, started: time.Now(), draining: &h.draining}
	defer x.leave()
	x.watch.limit, x.watch.spare = h.o.Silence, &h.alarms
	x.uploaded.Store(r.Body == nil || r.Body == http.NoBody)
	x.record.Time = x.started
	x.record.ID = h.ids.Next()
	x.record.Monitor = rules.Monitor
	x.record.Target, x.record.Remote = requested(r), r.RemoteAddr
	q := &x.record.Request
	q.Method, q.UserAgent, q.From, q.Dest = r.Method, r.UserAgent(), r.Header.Get("From"), r.Header.Get("Sec-Fetch-Dest")
	defer h.survive(x)
	if r.Method != http.MethodConnect { // whose target is a host: see admitConnect
		x.url, q.Origin, x.noURL = target(r) // once: every later step trusts it
	}
	if x.url != nil {
		x.takeURL()
	}
	if isOwn(x) {
		h.serveOwn(x)
		return
	}
	h.counts.requests.begin()
	defer h.counts.requests.end()
	err := h.enter(x)
	if err == nil {
		x.work, err = h.o.Memory.Begin(policy.ShareKey(q.Client), x.started)
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
func (h *Handler) serve(x *exchange) {
	defer x.release()
	err := h.admit(x)
	if err == nil {
		err = h.judge(x)
	}
	answered := false
	if err == nil {
		answered, err = h.answerFromCopy(x)
	}
	if err == nil && !answered {
		err = h.wait(x)
	}
	if err == nil && !answered {
		err = h.forward(x)
	}
	h.finish(x, err)
}

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

// speakFor puts into q what is sent in place of what the client says of itself.
func (r *reign) speakFor(q *policy.Request) {
	q.UserAgent = cmp.Or(r.UserAgent, q.UserAgent)
	q.From = cmp.Or(r.From, q.From)
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

// share gives the name of the client against whose share the request counts.
func (x *exchange) share() string { return policy.ShareKey(x.record.Request.Client) }

// aim chooses, with PerAddress, the one address for a request to o, and has l pace it by
// that address, wherever the name leads later. A back-off stays the host's own.
func (r *Rules) aim(ctx context.Context, o robots.Origin, l *pace.Limits) (at netip.Addr, err error) {
	if !r.PerAddress {
		return at, nil
	}
	if at, err = r.Egress.Address(ctx, o); err == nil && at.IsValid() {
		l.Key, l.BackOffKey = at.String(), l.Key
	}
	return at, err
}

// finish writes the record, and then, where nothing has been answered yet,
// the answer. A transfer that broke off is broken for the client too.
func (h *Handler) finish(x *exchange, err error) {
	rec := &x.record
	if errors.Is(err, context.Canceled) && h.cut.Load() {
		err = errCut // and not the client
	}
	var a answer
	var wait time.Duration
	if err != nil && !x.headSent {
		a, wait, err = h.settle(x, err)
	}
	if busy, ok := errors.AsType[*pace.BusyError](err); ok {
		rec.BackOff, rec.Slowed, rec.StoreAway = busy.BackOff, busy.Slowed, busy.Alone
	}
	if errors.Is(err, egress.ErrParent) && h.parent.due() {
		h.o.Log.Warn("the parent proxy does not serve", "error", err)
	}
	rec.Err = err
	if errors.Is(err, errRefused) {
		rec.Err = nil // the decision says it all
	}
	if x.slot != nil {
		if x.connecting.Load() && errors.Is(err, context.Canceled) {
			x.slot.Sent() // the client has left, and net/http goes on to connect all the same
		}
		held := x.slot.Held()
		rec.Slot, rec.Waited, rec.BackOff, rec.Slowed = true, held.Waited, cmp.Or(rec.BackOff, held.BackOff), cmp.Or(rec.Slowed, held.Slowed)
		rec.StoreAway = rec.StoreAway || held.Alone
		x.release() // the origin has done its part: a client that does not read holds up nobody else
	}
	if !x.sent.Load() {
		x.ticket.GiveBack()
	}
	rec.Took = time.Since(x.started)
	x.recorded = true
	if werr := h.o.Audit.Write(rec); werr != nil && !x.headSent {
		err, a = werr, answerTo(werr)
	}
	switch {
	case x.headSent && err != nil:
		x.abort()
	case err != nil:
		h.refusals.wait(x.request.Context(), wait)
		h.refuse(x, a, err)
	}
	x.endUpload()
}

// settle gives the answer to a request that failed with err, puts it into the record, and
// says how long the answer has to wait. A client with too many such waits is refused for
// that, with the error that settle gives instead of err.
func (h *Handler) settle(x *exchange, err error) (a answer, wait time.Duration, _ error) {
	rec := &x.record
	a = answerTo(err)
	if !x.sent.Load() {
		a.settle(&rec.Decision)
		rec.Monitor = rec.Monitor && rec.Decision.Verdict == policy.Allow // what is refused all the same is enforced
		if isPaced(rec) {
			var ok bool
			if wait, ok = h.refusals.take(x.share()); !ok {
				err = errRefusedOften
				a = answerTo(err)
				a.settle(&rec.Decision)
			}
		}
	}
	rec.Status = a.status
	return a, wait, err
}

// survive makes a panic cost one request and nothing else.
func (h *Handler) survive(x *exchange) {
	fault := recover()
	if fault == nil {
		return
	}
	if fault == http.ErrAbortHandler {
		panic(fault)
	}
	h.o.Log.Error("a request was lost to a fault", "id", x.record.ID, "fault", fmt.Sprint(fault), "stack", string(debug.Stack()))
	if x.recorded {
		panic(http.ErrAbortHandler)
	}
	h.finish(x, errInternal)
}

// addressOf is the address of a host:port that a request came from.
func addressOf(remote string) string {
	host, _, err := net.SplitHostPort(remote)
	if err != nil {
		return remote
	}
	return host
}
