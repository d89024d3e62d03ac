package egress

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"

	"robotsproxy/policy/memory"
	"robotsproxy/proxy/egress/ftp"
	"robotsproxy/robots"
)

// An ftpConn is a [Conn] for one request to an FTP server.
type ftpConn struct {
	net.Conn
	options ftp.Options
	pending
}

// acquireFTP connects to an FTP server.
func (c *Client) acquireFTP(ctx context.Context, r *http.Request, addr netip.Addr) (Conn, error) {
	if err := ftp.Check(r); err != nil {
		return nil, err
	}
	o, err := robots.ParseOrigin(r.URL.Scheme, r.URL.Host)
	if err != nil {
		return nil, fmt.Errorf("ftp: %w", err)
	}
	dial := func(ctx context.Context, host string, port uint16) (net.Conn, error) {
		return c.dialCounted(ctx, host, port, addr)
	}
	control, err := dial(ctx, o.Host, o.Port)
	if err != nil {
		return nil, fmt.Errorf("ftp: %w", err)
	}
	return &ftpConn{Conn: control, options: ftp.Options{Control: control, Dial: dial, ByName: c.parent != nil, Timeout: c.headerTimeout}}, nil
}

// Send implements [Conn].
func (f *ftpConn) Send(r *http.Request, work *memory.Work) (sent bool, err error) {
	return f.send(r, func(written func()) (*http.Response, error) {
		listing := reserve{work: work}
		f.options.Sent, f.options.Count = written, listing.set
		return ftp.RoundTrip(r, f.options)
	})
}

// Release implements [Conn].
func (f *ftpConn) Release() { f.Close() }

// Info implements [Conn].
func (f *ftpConn) Info() Info { return infoOf(f.Conn) }
