package egress

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"robotsproxy/policy/memory"
	"robotsproxy/proxy/socket"
	"robotsproxy/robots"
)

// A Conn is a connection that one request has for itself: a connection of HTTP/1.1 or of FTP, or a stream of
// HTTP/2. Its methods are called on one goroutine, in this order:
//
//	Release, if the request is not sent
//	Send
//	Receive, until the response is not a 1xx or there is an error
//
// A connection of HTTP/1.1 returns to the pool when the body was read to its end; an earlier Close closes it.
// Info may be called at any time. The caller must cancel the context of the request when it no longer needs the
// response: a goroutine may wait for that.
type Conn interface {
	// Send sends the head of a request, and begins to send its body. The caller may change
	// neither r nor its header until the response has ended. sent reports whether a part of r may have been
	// sent, also if there is an error. After an error the Conn has ended; [Repeat] says whether another one
	// may be tried. The error is the cause of r's context if that has ended. If there is none, the Conn
	// closes r's body; after an error the caller closes it, unless it sends r again.
	//
	// What the response holds in memory counts in work until its End; nil: it is not counted. If there is no memory, Receive
	// or a Read of the body fails with memory.ErrShort.
	Send(r *http.Request, work *memory.Work) (sent bool, err error)

	// Receive waits for a response to r. Those with a status of 1xx come before the final one (RFC
	// 9110 15.2); 101 is final (RFC 9110 7.8), and its Body then is an io.ReadWriteCloser. Errors are as for Send.
	Receive() (*http.Response, error)

	// Release gives back a Conn that has sent nothing.
	Release()

	// Info describes the connection.
	Info() Info
}

// An Info describes a Conn.
type Info struct {
	// Addr is the address of the other end, which is the origin or the upstream proxy; zero: unknown.
	Addr netip.Addr

	// TLS is the version of TLS, as in crypto/tls; 0: none.
	TLS uint16

	// Legacy says that the version of TLS is older than 1.2, or that the cipher suite is one that crypto/tls
	// does not use by default.
	Legacy bool

	// Dropped is how many fields of the final response were left out, because they cannot be passed on. It is
	// known after Receive, and 0 for HTTP/2 and FTP.
	Dropped int
}

func infoOf(conn net.Conn) Info {
	i := Info{Addr: socket.AddrPort(conn.RemoteAddr()).Addr()}
	if secure, ok := conn.(*tls.Conn); ok {
		state := secure.ConnectionState()
		i.TLS, i.Legacy = state.Version, isLegacy(state)
	}
	return i
}

// maxInterim is the maximum number of 1xx responses to one request.
const maxInterim = 100

var errInterim = fmt.Errorf("the origin sent more than %d interim responses", maxInterim)

// IsInterim reports whether another response to the same request follows (RFC 9110 15.2).
func IsInterim(resp *http.Response) bool {
	return resp.StatusCode/100 == 1 && resp.StatusCode != http.StatusSwitchingProtocols
}

// isLegacy reports whether a connection has a version of TLS or a cipher suite that crypto/tls does not
// use by default.
func isLegacy(s tls.ConnectionState) bool {
	insecure := func(suite *tls.CipherSuite) bool { return suite.ID == s.CipherSuite }
	return s.Version < tls.VersionTLS12 || slices.ContainsFunc(tls.InsecureCipherSuites(), insecure)
}

// An endpoint is an origin at one address. If addr is zero, it is the origin at any of
// its addresses.
type endpoint struct {
	robots.Origin
	addr netip.Addr
}

// clone returns a copy that can be kept: the host of e may be part of a long URL.
func (e endpoint) clone() endpoint {
	e.Host = strings.Clone(e.Host)
	return e
}

// causeOf returns the cause of ctx instead of err, if ctx has ended. It leaves nil and io.EOF as they are.
func causeOf(ctx context.Context, err error) error {
	if err != nil && err != io.EOF && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}
