package egress

import (
	"net"
	"net/http"

	"robotsproxy/policy/memory"
	"robotsproxy/proxy/egress/ftp"
)

// An ftpConn is a [Conn] for one request to an FTP server.
type ftpConn struct {
	net.Conn
	options ftp.Options
	pending
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
