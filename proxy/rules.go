package proxy

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"

	"robotsproxy/policy"
	"robotsproxy/proxy/egress"
	"robotsproxy/proxy/guide"
	"robotsproxy/proxy/mitm"
)

// Rules are what a Handler goes by, and may be changed while it serves, as a
// whole; see [Handler.Use]. The first three are required.
type Rules struct {
	Engine       *policy.Engine
	Egress       *egress.Client // of one pseudonym for as long as the Handler lives: by it a request that comes back is known
	Authority    *mitm.Authority
	UserAgent    string            // sent instead of the client's; "": the client's own
	From         string            // likewise
	Monitor      bool              // decide and record, block nothing and hold nothing up
	Sealed       func(string) bool // which hosts' tunnels are never opened; nil: none
	BackOff      bool              // honour 429 and 503 of an origin
	PerAddress   bool              // pace by the address that a host is reached at, as Egress gives it, not by the host
	TLS          *tls.Config       // that clients speak to the proxy itself; nil: none, which cannot be changed
	Own          *guide.Page       // answers who asks the proxy itself; nil: nobody does
	MaxURL       int               // bytes of a request's URL at most; zero: 8 KiB
	MaxConns     int               // open connections of clients; zero: 20,000
	MaxConnsEach int               // of one client; zero: 10,000
}

// whole gives the Rules with what zero stands for, or says what is wrong with them.
func (r Rules) whole() (Rules, error) {
	for name, missing := range map[string]bool{
		"Engine": r.Engine == nil, "Egress": r.Egress == nil, "Authority": r.Authority == nil,
	} {
		if missing {
			return Rules{}, fmt.Errorf("proxy: option %s is missing", name)
		}
	}
	if min(r.MaxURL, r.MaxConns, r.MaxConnsEach) < 0 {
		return Rules{}, errors.New("proxy: a limit is negative")
	}
	if r.Sealed == nil {
		r.Sealed = func(string) bool { return false }
	}
	r.MaxURL = cmp.Or(r.MaxURL, 8<<10)
	r.MaxConns, r.MaxConnsEach = cmp.Or(r.MaxConns, 20_000), cmp.Or(r.MaxConnsEach, 10_000)
	if r.TLS != nil {
		r.TLS = r.TLS.Clone()
		r.TLS.NextProtos = nil // Go's own client, offered h2 by a proxy, takes it and speaks HTTP/1.1 all the same
	}
	return r, nil
}

// A reign is some Rules, and their time.
type reign struct {
	Rules
	*span
	number uint64   // 1 for the first
	from   []string // what From has; nil: what the client's has
}

// A span is the time of a reign: while it is in force, and for as long after that as
// requests are under way that began in it, or before it. It knows no Rules: a request
// that lasts holds on to those that it began under, and to none of those that follow.
type span struct {
	users atomic.Int64 // the requests, one for being in force, and one for the span before, which ends first
	once  sync.Once
	over  chan struct{} // closed at its end
	ended *sync.WaitGroup
	next  *span // that has followed it
}

// install begins a reign. The caller holds h.using, or is New.
func (h *Handler) install(r Rules, number uint64) {
	next := &reign{Rules: r, number: number, span: &span{over: make(chan struct{}), ended: &h.reigns}}
	if r.From != "" {
		next.from = []string{r.From}
	}
	h.reigns.Add(1)
	before := h.reign.Load()
	if before == nil {
		next.users.Store(1)
		h.reign.Store(next)
		return
	}
	next.users.Store(2)
	before.next = next.span
	h.reign.Store(next)
	before.leave()
}

// begin gives the reign that a request begins in, which it keeps to until it
// calls leave.
func (h *Handler) begin() *reign {
	for {
		r := h.reign.Load()
		r.users.Add(1)
		if h.reign.Load() == r { // else it may have been over before it was counted
			return r
		}
		r.leave()
	}
}

func (s *span) leave() {
	if s.users.Add(-1) > 0 {
		return
	}
	s.once.Do(func() { // it is counted up once more by who comes too late
		close(s.over)
		s.ended.Done()
		if s.next != nil {
			s.next.leave()
		}
	})
}

// Use puts other Rules in force: for requests that begin from now on, those in
// kept connections and tunnels included. Those that are under way, waiting or
// streaming, keep to the Rules that they began under; over is closed when the
// last of them has ended, whichever Rules of before it is under, and these are of no
// more use here. After an error nothing has changed.
//
// A tunnel is its client's for as long as that would be let in as it was; the
// next request in it is refused, and asked for a login, when its password has
// changed. Connections that are open over a lowered most stay open.
func (h *Handler) Use(r Rules) (over <-chan struct{}, err error) {
	if r, err = r.whole(); err != nil {
		return nil, err
	}
	h.using.Lock()
	defer h.using.Unlock()
	now := h.reign.Load()
	switch {
	case h.ended:
		return nil, http.ErrServerClosed
	case r.Egress.Pseudonym() != h.pseudo:
		return nil, errors.New("proxy: an egress client of another pseudonym")
	case (r.TLS == nil) != (now.TLS == nil):
		return nil, errors.New("proxy: TLS of the own port cannot be turned on or off")
	}
	h.install(r, now.number+1)
	h.room.nudge()
	return now.over, nil
}

// endReign waits until no request is under way; none begins any more.
func (h *Handler) endReign() {
	h.using.Lock()
	if !h.ended {
		h.ended = true
		h.reign.Load().leave()
	}
	h.using.Unlock()
	h.reigns.Wait()
}

// shown is the TLS of the proxy's own port, as the Rules in force have it;
// sessions are resumed across them.
func (h *Handler) shown() *tls.Config {
	if h.reign.Load().TLS == nil {
		return nil
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			return h.reign.Load().TLS, nil
		},
	}
}

// A room has a place for each open connection, as many as the Rules say. One
// waits for a place at a time.
type room struct {
	mu    sync.Mutex // guards taken
	taken int
	free  chan struct{} // holds one token: there may be a place
}

// take takes one of so many places, if one is free.
func (r *room) take(most int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.taken >= most {
		return false
	}
	r.taken++
	return true
}

func (r *room) giveBack() {
	r.mu.Lock()
	r.taken--
	r.mu.Unlock()
	r.nudge()
}

// nudge has who waits look again.
func (r *room) nudge() {
	select {
	case r.free <- struct{}{}:
	default:
	}
}
