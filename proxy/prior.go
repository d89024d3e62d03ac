package proxy

import (
	"crypto/tls"
	"net"
	"net/http"
)

// unencrypted is under what net/http keeps how HTTP/2 in the clear is served.
const unencrypted = "unencrypted_http2"

// tellScheme has a server tell, of a request by HTTP/2 in the clear, which
// scheme it is for: its Request.TLS is set for https (RFC 9113 8.3.1). net/http
// keeps :scheme to itself, but for connections that know the state of their TLS.
func tellScheme(s *http.Server) {
	s.Serve(noListener{}) // ends at once, and has set HTTP/2 up
	serve := s.TLSNextProto[unencrypted]
	if serve == nil {
		s.Protocols.SetUnencryptedHTTP2(false) // rather not at all than https in the clear
		return
	}
	s.TLSNextProto[unencrypted] = func(s *http.Server, c *tls.Conn, h http.Handler) {
		if under, ok := c.NetConn().(interface{ UnencryptedNetConn() net.Conn }); ok {
			c = tls.Client(priorConn{under.UnencryptedNetConn()}, nil)
		}
		serve(s, c, h)
	}
}

// A priorConn is a connection on which HTTP/2 is spoken in the clear, with
// prior knowledge. It says of itself what lets net/http tell the scheme.
type priorConn struct{ net.Conn }

// UnencryptedNetConn is how net/http finds it under the TLS that there is none of.
func (c priorConn) UnencryptedNetConn() net.Conn { return c }

// ConnectionState is one that HTTP/2 takes (RFC 9113 9.2).
func (c priorConn) ConnectionState() tls.ConnectionState {
	return tls.ConnectionState{Version: tls.VersionTLS13, CipherSuite: tls.TLS_AES_128_GCM_SHA256, HandshakeComplete: true, NegotiatedProtocol: "h2"}
}

// noListener has no connections.
type noListener struct{}

func (noListener) Accept() (net.Conn, error) { return nil, net.ErrClosed }
func (noListener) Close() error              { return nil }
func (noListener) Addr() net.Addr            { return &net.TCPAddr{} }
