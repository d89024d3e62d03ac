package egress

import (
	"context"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/netip"

	"robotsproxy/proxy/egress/ftp"
)

// roundTripFTP sends a request for an ftp URL, and calls GetConn, GotConn and WroteHeaders of its httptrace.
func (d *Client) roundTripFTP(r *http.Request, at netip.Addr) (*http.Response, error) {
	trace := httptrace.ContextClientTrace(r.Context())
	if trace == nil {
		trace = new(httptrace.ClientTrace)
	}
	way := d.At(at)
	var control net.Conn
	o := ftp.Options{ByName: d.parent != nil, Timeout: d.headerTimeout, Sent: trace.WroteHeaders}
	o.Dial = func(ctx context.Context, host string, port uint16) (net.Conn, error) {
		if control != nil {
			return way.Dial(ctx, host, port)
		}
		if trace.GetConn != nil {
			trace.GetConn(hostPort(host, port))
		}
		conn, err := way.Dial(ctx, host, port)
		control = conn
		return conn, err
	}
	if trace.GotConn != nil {
		o.Ready = func(context.Context) error {
			trace.GotConn(httptrace.GotConnInfo{Conn: control}) // which may take its time
			return nil
		}
	}
	return ftp.RoundTrip(r, o)
}
