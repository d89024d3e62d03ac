package egress

import (
	"context"
	"errors"
	"net/http"
)

// maxInterimAhead is the maximum number of 1xx responses that wait for the goroutine of the request.
// Further ones are dropped: with HTTP/2, all streams of the connection would wait for it.
const maxInterimAhead = 8

// A pending request is sent by a library that returns only with the response. It runs on a goroutine of
// its own, so that its sender learns when the request was sent. The goroutine ends with the response, or
// with the request's context.
type pending struct {
	// ctx is the context of the request.
	ctx    context.Context
	events chan event

	// next is an event that was received already; the zero event: there is none.
	next event

	// interim is the number of 1xx responses.
	interim int
}

// An event is what became of a request. The zero event says that its head was written.
type event struct {
	resp *http.Response
	err  error
}

// send calls roundTrip on a goroutine. roundTrip must call written when the head was sent. If the request ends
// before that, send returns its error.
func (p *pending) send(r *http.Request, roundTrip func(written func()) (*http.Response, error)) (sent bool, err error) {
	p.ctx, p.events = r.Context(), make(chan event, maxInterimAhead+2)
	go func() {
		resp, err := roundTrip(func() { p.events <- event{} })
		p.events <- event{resp, err}
	}()
	p.next = <-p.events
	if p.next.err == nil {
		return true, nil
	}
	if p.ctx.Err() != nil {
		// The head may still be written after this.
		return true, context.Cause(p.ctx)
	}
	return false, p.next.err
}

// gotInterim passes on a 1xx response. An error ends the request.
func (p *pending) gotInterim(resp *http.Response) error {
	p.interim++
	switch {
	case p.interim > maxInterim:
		return errInterim
	case !IsInterim(resp):
		// RFC 9113 8.6.
		return errors.New("the origin switched protocols over HTTP/2")
	}
	if len(p.events) < maxInterimAhead {
		p.events <- event{resp: resp}
	}
	return nil
}

// Receive implements [Conn].
func (p *pending) Receive() (*http.Response, error) {
	e := p.next
	p.next = event{}
	// The zero event only says that the head was written.
	for e == (event{}) {
		e = <-p.events
	}
	return e.resp, causeOf(p.ctx, e.err)
}
