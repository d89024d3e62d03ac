package egress

import (
	"cmp"
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/netip"
	"strings"

	"robotsproxy/robots"
)

// A Pinned is a [Client] that leads to one address of the host that is asked for:
// what was held up for an address goes there and nowhere else, over kept
// connections too, wherever the name leads by then. Client.At makes one.
type Pinned struct {
	client *Client
	at     netip.Addr
}

// At gives the Pinned to an address, as [Client.Address] gave it for the host that
// will be asked for. With the zero Addr it is the Client itself.
func (d *Client) At(at netip.Addr) Pinned { return Pinned{d, at} }

// RoundTrip is [Client.RoundTrip].
func (w Pinned) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := w.client.send(r, w.at)
	if !w.at.IsValid() && (r.Body == nil || r.Body == http.NoBody) && errors.Is(err, ErrElsewhere) {
		resp, err = w.client.send(r, w.at) // nothing was sent, and nobody has waited for the address that failed
	}
	if err != nil {
		return nil, err
	}
	if err := checkFields(resp.Header); err != nil {
		resp.Body.Close()
		return nil, err
	}
	return resp, nil
}

// Reach is [Client.Reach].
func (w Pinned) Reach(ctx context.Context, o robots.Origin) error {
	return w.client.reachAt(ctx, o, w.at)
}

// Dial is [Client.Dial].
func (w Pinned) Dial(ctx context.Context, host string, port uint16) (net.Conn, error) {
	conn, err := w.client.dial(ctx, host, port, w.at)
	w.client.tally.note(err)
	return conn, err
}

// destination is where r goes. Where each host has one address, that is at, else the
// one that its host is bound to, and for a host that is not bound the one that answers
// first.
func (d *Client) destination(r *http.Request, at netip.Addr) (spot, error) {
	o, err := robots.ParseOrigin(r.URL.Scheme, r.URL.Host)
	if err != nil || d.bindings == nil {
		return spot{Origin: o}, err
	}
	at = d.place(o.Host, at)
	if !at.IsValid() {
		if err := d.Reach(r.Context(), o); err != nil {
			return spot{}, err
		}
		if at, err = d.Address(r.Context(), o); err != nil { // bound by now, but where Reach had nothing to do
			return spot{}, err
		}
	}
	return spot{o, at}, nil
}

// sendOver sends r over a connection of t's.
func (d *Client) sendOver(t *http.Transport, r *http.Request, at spot) (*http.Response, error) {
	sent := r
	switch {
	case t != d.transport:
	case at.Scheme == "http" || !d.contacts.http2(at.Origin):
		sent = r.WithContext(httptrace.WithClientTrace(r.Context(), d.pool.lending(at.own())))
	case headBytes(r) > maxKeptHead:
		sent = r.WithContext(r.Context())
		sent.Close = true
	}
	if d.bindings != nil {
		sent = pinned(sent, at)
	}
	resp, err := t.RoundTrip(sent)
	if err != nil {
		return nil, err
	}
	resp.Request = r
	return resp, nil
}

// maxKeptHead bounds, in bytes, the head of a request after which its HTTP/2 connection is used for
// other requests. net/http keeps the buffers of a connection at the size that the longest request
// head made them, three times that head. Few heads are longer than 2 KiB.
const maxKeptHead = 4 << 10

// headBytes gives about how many bytes the head of r has.
func headBytes(r *http.Request) int {
	n := len(r.URL.Host) + len(r.URL.RawPath) + len(r.URL.Path) + len(r.URL.RawQuery)
	for name, values := range r.Header {
		for _, v := range values {
			n += len(name) + len(v)
		}
	}
	return n
}

// pinned gives r as a Transport is to see it where each host has one address: it is told
// to go to host@address, so that what it keeps for one address it never uses for another.
// What arrives is the same.
func pinned(r *http.Request, at spot) *http.Request {
	u := *r.URL
	u.Host = hostPort(at.Host+"@"+at.at.String(), at.Port)
	p := r.WithContext(r.Context())
	p.URL, p.Host = &u, cmp.Or(r.Host, r.URL.Host)
	return p
}

// unpin finds in what the Transport dials the host and port, and the address to
// dial them at; zero: whichever answers. No host of a request has an "@".
func (d *Client) unpin(addr string) (string, netip.Addr, error) {
	if d.bindings == nil {
		return addr, netip.Addr{}, nil
	}
	both, port, err := net.SplitHostPort(addr)
	if err != nil {
		return "", netip.Addr{}, err
	}
	host, text, _ := strings.Cut(both, "@")
	at, err := netip.ParseAddr(text)
	return net.JoinHostPort(host, port), at, err
}
