package proxy

import (
	"context"
	"net/http"
	"net/netip"
	"time"

	"robotsproxy/policy/memory"
	"robotsproxy/policy/pace"
	"robotsproxy/proxy/egress"
	"robotsproxy/proxy/signature"
)

// A sendState says how far the sending of a request has come. After an error the state stays; another try begins at
// connecting. A tunnel that is passed through goes from idle to connected.
//
//	idle → connecting → connected → permitted → sent → responded
//	           ↑────────────┴───────────┴─────────┘
type sendState uint8

const (
	idle       sendState = iota // nothing has happened
	connecting                  // egress looks for a kept connection, or makes one
	connected                   // there is a connection; the slot has not given its permit
	permitted                   // the permit was given; nothing was sent
	sent                        // a part of the request may have been sent
	responded                   // the final response has begun
)

// A sending is the sending of one request to its origin, with its slot. It belongs to one goroutine.
type sending struct {
	// out is the egress client of the request; nil: none is known yet.
	out *egress.Client

	// slot gives the permit; nil: the request is sent without one.
	slot *pace.Slot

	// addr is the address that the slot and the request are for; zero: any address of the host.
	addr netip.Addr

	// owner owns the connections that carry the client's login; nil: there are none.
	owner *egress.Owner

	// sender has it sent.
	sender sender

	// memory counts what the response holds in memory; nil: nothing is counted.
	memory *memory.Work

	state sendState

	// wasSent says that state has been sent, in this try or an earlier one.
	wasSent bool

	// sentAt is when a request without a slot was sent last; zero: it was not.
	sentAt time.Time

	// conn describes the last connection.
	conn egress.Info
}

// A sender has a request sent and waits for the response: a client's request, or a fetch.
type sender interface {
	// await calls slot.Ready. No time limit of the sender runs meanwhile.
	await(ctx context.Context, slot *pace.Slot) error
	// check returns why the request must not be sent now: its record could not be written, or its host is paused.
	check() error
	// sent notes that a part of the request may have been sent.
	sent()
	// passInterim passes a 1xx response on.
	passInterim(resp *http.Response)
}

// roundTrip sends r when its slot permits that, and returns the final response, whose Request is r as it was
// sent. signer signs each try; nil: it is sent as it is. roundTrip changes r's body, and with a signer its header.
func (s *sending) roundTrip(r *http.Request, signer *signature.Signer) (*http.Response, error) {
	for try := 1; ; try++ {
		resp, err := s.try(r, signer)
		if err == nil || try == egress.MaxTries || !egress.Repeat(r, err) {
			return resp, err
		}
		// An unused permit would delay other requests.
		s.slot.Redial()
		// Meanwhile the host may have been paused: it is not connected to again.
		if err := s.sender.check(); err != nil {
			return nil, err
		}
	}
}

// try makes one try of roundTrip.
func (s *sending) try(r *http.Request, signer *signature.Signer) (*http.Response, error) {
	s.state = connecting
	conn, err := s.out.At(s.addr).Acquire(r.Context(), r, s.owner)
	if err != nil {
		return nil, err
	}
	s.state = connected
	s.conn = conn.Info()
	err = s.ready(r.Context())
	if err == nil && signer != nil {
		if err = signer.Sign(r); err == nil {
			// Signing takes time, and a permit that replicas share is valid only for a moment.
			err = s.ready(r.Context())
		}
	}
	if err != nil {
		conn.Release()
		return nil, err
	}
	began, err := conn.Send(r, s.memory)
	if began {
		s.begun()
	}
	for err == nil {
		var resp *http.Response
		switch resp, err = conn.Receive(); {
		case err != nil:
		case !egress.IsInterim(resp):
			s.state, s.conn = responded, conn.Info()
			return resp, nil
		default:
			s.sender.passInterim(resp)
		}
	}
	return nil, err
}

// ready waits for the permit of the slot, unless there is one that is still valid. The wait may be long: after it, ready
// also checks whether what is sent can still be recorded, and may still be sent. That may take time too, so the permit is looked
// at last.
func (s *sending) ready(ctx context.Context) error {
	for {
		if err := s.sender.check(); err != nil {
			return err
		}
		if s.slot == nil || s.state == permitted && s.slot.Timely() {
			return nil
		}
		s.state = connected
		if err := s.sender.await(ctx, s.slot); err != nil {
			return err
		}
		s.state = permitted
	}
}

// begun notes that the request is being sent: the gap to the next one begins.
func (s *sending) begun() {
	s.state, s.wasSent = sent, true
	if s.slot == nil {
		s.sentAt = time.Now()
	}
	s.slot.Written()
	s.sender.sent()
}

// releaseSlot releases the slot, if there is one. Unlike s.slot.Release, it can be deferred before there is a slot.
func (s *sending) releaseSlot() { s.slot.Release() }

// detachSlot returns the concurrency slot of a response that may last for hours.
func (s *sending) detachSlot() error {
	if s.slot == nil {
		return nil
	}
	return s.slot.Detach()
}
