package proxy

import (
	"net/http"
	"net/netip"

	"robotsproxy/policy/pace"
	"robotsproxy/proxy/egress"
	"robotsproxy/proxy/signature"
)

// A sendState says how far the sending of a request is. An error leaves it where it is; if another try
// follows, it goes back to connecting:
//
//	idle → connecting → connected → permitted → sent → answered
//	           ↑────────────┴───────────┴─────────┘
type sendState uint8

const (
	idle       sendState = iota // nothing has happened
	connecting                  // egress looks for a connection, or makes one
	connected                   // there is one, and the slot has not given its permit yet
	permitted                   // the slot has given it, and nothing was sent
	sent                        // a part of the request may have been sent
	answered                    // the final response has begun
)

// A sending is the sending of one request to its origin, with its slot. It belongs to one goroutine.
type sending struct {
	slot    *pace.Slot                     // nil: the request is sent without a permit
	addr    netip.Addr                     // the address that the slot and the request are for; zero: any address of the host
	owner   *egress.Owner                  // of connections that carry the client's login; nil: none
	wait    func(ready func() error) error // calls ready, which waits for the permit; nil: ready is called directly
	interim func(resp *http.Response)      // gets each 1xx response; nil: they are dropped

	state   sendState
	wasSent bool        // the state was sent, perhaps in an earlier try
	peer    egress.Peer // of the last connection
	dropped int         // fields that were left out of the response
}

// exchange sends r when its slot permits that, and returns the final response, whose Request is r as it was
// sent. by signs each try; nil: it is sent as it is. exchange changes r's body, and with a signer its header.
func (s *sending) exchange(out *egress.Client, r *http.Request, by *signature.Signer) (*http.Response, error) {
	for try := 1; ; try++ {
		resp, err := s.try(out, r, by)
		if err == nil || try == egress.MaxTries || !egress.Repeat(r, err) {
			return resp, err
		}
		s.slot.Redial() // an unused permit would delay other requests
	}
}

// try makes one try of exchange.
func (s *sending) try(out *egress.Client, r *http.Request, by *signature.Signer) (*http.Response, error) {
	s.state = connecting
	conn, err := out.At(s.addr).Acquire(r.Context(), r, s.owner)
	if err != nil {
		return nil, err
	}
	s.state = connected
	s.peer = conn.Peer()
	err = s.ready(r)
	if err == nil && by != nil {
		err = by.Sign(r)
	}
	if err == nil {
		err = s.ready(r) // the permit of a fleet is for a moment, which may be over
	}
	if err != nil {
		conn.Release()
		return nil, err
	}
	began, err := conn.Send(r)
	if began {
		s.begun()
	}
	for err == nil {
		var resp *http.Response
		switch resp, err = conn.Receive(); {
		case err != nil:
		case !egress.IsInterim(resp):
			s.state, s.dropped = answered, conn.Dropped()
			return resp, nil
		case s.interim != nil:
			s.interim(resp)
		}
	}
	return nil, err
}

// ready waits for the permit of the slot, unless there is one that is still valid.
func (s *sending) ready(r *http.Request) error {
	if s.slot == nil || s.state == permitted && s.slot.Timely() {
		return nil
	}
	s.state = connected
	ready := func() error { return s.slot.Ready(r.Context()) }
	var err error
	if s.wait != nil {
		err = s.wait(ready)
	} else {
		err = ready()
	}
	if err != nil {
		return err
	}
	s.state = permitted
	return nil
}

// begun notes that the request is being sent: the gap to the next one begins.
func (s *sending) begun() {
	s.state, s.wasSent = sent, true
	s.slot.Written()
}
