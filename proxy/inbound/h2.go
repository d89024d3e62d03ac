package inbound

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"time"

	"robotsproxy/proxy/h2"
)

// unencryptedProto is the key of TLSNextProto for the function of net/http that serves an HTTP/2
// connection without its own TLS, after the preface was read.
const unencryptedProto = "unencrypted_http2"

// setUpHTTP2 makes s serve HTTP/2 on h2Conns, with and without TLS. Request.TLS is then set for
// a request in the clear if its :scheme is https (RFC 9113 8.3.1). net/http shows :scheme only
// on connections that have a ConnectionState.
func setUpHTTP2(s *http.Server) {
	// Serve returns at once, after it has set up HTTP/2.
	s.Serve(noListener{})
	serve := s.TLSNextProto[unencryptedProto]
	if serve == nil {
		// Requests for https in the clear could not be recognised.
		s.Protocols.SetUnencryptedHTTP2(false)
		return
	}
	base := newHTTP2Base(s)
	s.TLSNextProto[unencryptedProto] = func(s *http.Server, c *tls.Conn, h http.Handler) {
		if under, ok := c.NetConn().(interface{ UnencryptedNetConn() net.Conn }); ok {
			c = tls.Client(newH2Conn(under.UnencryptedNetConn(), http2State(), s.HTTP2.WriteByteTimeout), nil)
		}
		serve(base, c, h)
	}
	s.TLSNextProto["h2"] = func(s *http.Server, c *tls.Conn, h http.Handler) {
		if err := readPreface(c, s.ReadHeaderTimeout); err != nil {
			s.ErrorLog.Printf("no HTTP/2 preface from %v: %v", c.RemoteAddr(), err)
			// net/http closes the connection.
			return
		}
		serve(base, tls.Client(newH2Conn(c, c.ConnectionState(), s.HTTP2.WriteByteTimeout), nil), h)
	}
}

// newHTTP2Base returns the server whose options net/http uses for the HTTP/2 connections of s.
func newHTTP2Base(s *http.Server) *http.Server {
	base := &http.Server{
		HTTP2:          s.HTTP2,
		ConnState:      s.ConnState,
		ErrorLog:       s.ErrorLog,
		MaxHeaderBytes: maxStandIn,
	}
	// This is for connections that have just begun, too.
	s.RegisterOnShutdown(func() { base.SetKeepAlivesEnabled(false) })
	return base
}

// http2State returns a TLS state that net/http accepts for HTTP/2 (RFC 9113 9.2).
func http2State() tls.ConnectionState {
	return tls.ConnectionState{
		Version: tls.VersionTLS13, CipherSuite: tls.TLS_AES_128_GCM_SHA256, HandshakeComplete: true, NegotiatedProtocol: "h2",
	}
}

// readPreface reads the preface within limit. The server sends its own preface after that.
// A client must not wait for it (RFC 9113 3.4).
func readPreface(c net.Conn, limit time.Duration) error {
	if err := c.SetReadDeadline(time.Now().Add(limit)); err != nil {
		return err
	}
	var b [len(h2.Preface)]byte
	if _, err := io.ReadFull(c, b[:]); err != nil {
		return err
	}
	if string(b[:]) != h2.Preface {
		return errors.New("unexpected first bytes")
	}
	return c.SetReadDeadline(time.Time{})
}

// A noListener is a closed listener.
type noListener struct{}

func (noListener) Accept() (net.Conn, error) { return nil, net.ErrClosed }
func (noListener) Close() error              { return nil }
func (noListener) Addr() net.Addr            { return &net.TCPAddr{} }
