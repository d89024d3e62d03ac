package proxy

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"time"
)

// unencrypted is under what net/http keeps how a connection is served whose preface of
// HTTP/2 has been read, and that no TLS of net/http's own is under.
const unencrypted = "unencrypted_http2"

// setUpHTTP2 has a server serve HTTP/2 on h2Conns, under TLS as well. Thereby it tells, of a
// request by HTTP/2 in the clear, which scheme it is for: its Request.TLS is set for https
// (RFC 9113 8.3.1). net/http keeps :scheme to itself, but for connections that know the
// state of their TLS.
func setUpHTTP2(s *http.Server) {
	s.Serve(noListener{}) // ends at once, and has set HTTP/2 up
	serve := s.TLSNextProto[unencrypted]
	if serve == nil {
		s.Protocols.SetUnencryptedHTTP2(false) // rather not at all than https in the clear
		return
	}
	base := newHTTP2Base(s)
	s.TLSNextProto[unencrypted] = func(s *http.Server, c *tls.Conn, h http.Handler) {
		if under, ok := c.NetConn().(interface{ UnencryptedNetConn() net.Conn }); ok {
			c = tls.Client(newH2Conn(under.UnencryptedNetConn(), http2State(), s.HTTP2.WriteByteTimeout), nil)
		}
		serve(base, c, h)
	}
	s.TLSNextProto["h2"] = func(s *http.Server, c *tls.Conn, h http.Handler) {
		if err := readPreface(c, s.ReadHeaderTimeout); err != nil {
			s.ErrorLog.Printf("no preface of HTTP/2 from %v: %v", c.RemoteAddr(), err)
			return // which closes it
		}
		serve(base, tls.Client(newH2Conn(c, c.ConnectionState(), s.HTTP2.WriteByteTimeout), nil), h)
	}
}

// newHTTP2Base gives what net/http serves HTTP/2 connections of s by in place of s: with the
// limit of heads that HTTP/2 needs.
func newHTTP2Base(s *http.Server) *http.Server {
	base := &http.Server{
		HTTP2:          s.HTTP2,
		ConnState:      s.ConnState,
		ErrorLog:       s.ErrorLog,
		MaxHeaderBytes: maxHead - slopHTTP2,
	}
	s.RegisterOnShutdown(func() { base.SetKeepAlivesEnabled(false) }) // also for connections that have just begun
	return base
}

// http2State is a state that HTTP/2 takes (RFC 9113 9.2).
func http2State() tls.ConnectionState {
	return tls.ConnectionState{Version: tls.VersionTLS13, CipherSuite: tls.TLS_AES_128_GCM_SHA256, HandshakeComplete: true, NegotiatedProtocol: "h2"}
}

// clientPreface is what each client of HTTP/2 begins with (RFC 9113 3.4).
const clientPreface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

// readPreface reads it, in time. The server's own is sent after that, for which no client may
// wait (RFC 9113 3.4).
func readPreface(c net.Conn, limit time.Duration) error {
	if err := c.SetReadDeadline(time.Now().Add(limit)); err != nil {
		return err
	}
	var b [len(clientPreface)]byte
	if _, err := io.ReadFull(c, b[:]); err != nil {
		return err
	}
	if string(b[:]) != clientPreface {
		return errors.New("it begins with something else")
	}
	return c.SetReadDeadline(time.Time{})
}

// noListener has no connections.
type noListener struct{}

func (noListener) Accept() (net.Conn, error) { return nil, net.ErrClosed }
func (noListener) Close() error              { return nil }
func (noListener) Addr() net.Addr            { return &net.TCPAddr{} }
