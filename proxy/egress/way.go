package egress

import (
	"cmp"
	"context"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"strings"

	"robotsproxy/robots"
)

// A Way is a [Door] that leads to one address of the host that is asked for:
// what was held up for an address goes there and nowhere else, over kept
// connections too, wherever the name leads by then. Door.At makes one.
type Way struct {
	door *Door
	at   netip.Addr
}

// At gives the Way to an address, as [Door.Address] gave it for the host that
// will be asked for. With the zero Addr it is the Door itself.
func (d *Door) At(at netip.Addr) Way { return Way{d, at} }

// RoundTrip is [Door.RoundTrip].
func (w Way) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := w.door.send(r, w.at)
	if !w.at.IsValid() && (r.Body == nil || r.Body == http.NoBody) && errors.Is(err, ErrElsewhere) {
		resp, err = w.door.send(r, w.at) // nothing was sent, and nobody has waited for the address that failed
	}
	if err != nil {
		return nil, err
	}
	if err := closeUp(resp.Header); err != nil {
		resp.Body.Close()
		return nil, err
	}
	return resp, nil
}

// Reach is [Door.Reach].
func (w Way) Reach(ctx context.Context, o robots.Origin) error { return w.door.reachAt(ctx, o, w.at) }

// Dial is [Door.Dial].
func (w Way) Dial(ctx context.Context, host string, port uint16) (net.Conn, error) {
	conn, err := w.door.dial(ctx, host, port, w.at)
	w.door.tally.note(err)
	return conn, err
}

// sendOver sends r over a connection of t's. Where each host has one address, t
// is told to go to host@address, so that what it keeps for one address it never
// uses for another; what arrives is the same.
func (d *Door) sendOver(t *http.Transport, r *http.Request, at netip.Addr) (*http.Response, error) {
	if d.bindings == nil {
		return t.RoundTrip(r)
	}
	pinned, err := d.pin(r, at)
	if err != nil {
		if r.Body != nil {
			r.Body.Close()
		}
		return nil, err
	}
	resp, err := t.RoundTrip(pinned)
	if err != nil {
		return nil, err
	}
	resp.Request = r
	return resp, nil
}

// pin gives r as the Transport is to see it. Without an address it goes to the
// one that its host is bound to, and a host that is not bound to the one that
// answers first.
func (d *Door) pin(r *http.Request, at netip.Addr) (*http.Request, error) {
	o, err := robots.ParseOrigin(r.URL.Scheme, r.URL.Host)
	if err != nil {
		return nil, err
	}
	at = d.place(o.Host, at)
	if !at.IsValid() {
		if err := d.Reach(r.Context(), o); err != nil {
			return nil, err
		}
		if at, err = d.Address(r.Context(), o); err != nil { // bound by now, but where Reach had nothing to do
			return nil, err
		}
	}
	u := *r.URL
	u.Host = hostPort(o.Host+"@"+at.String(), o.Port)
	pinned := r.WithContext(r.Context())
	pinned.URL, pinned.Host = &u, cmp.Or(r.Host, r.URL.Host)
	return pinned, nil
}

// unpin finds in what the Transport dials the host and port, and the address to
// dial them at; zero: whichever answers. No host of a request has an "@".
func (d *Door) unpin(addr string) (string, netip.Addr, error) {
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
