// Package inbound serves the connections of a proxy's clients: it accepts them, reads their requests, with HTTP/1.1
// and HTTP/2, in the clear and over TLS, and hands each request over to the [Handler] of its connection. A Handler may
// turn the connection of a CONNECT into a tunnel ([Request.AcceptTunnel]) whose requests then arrive in the same way
// ([Tunnel.Serve]). Connections that a firewall redirects here are served too ([Server.ServeTransparent]).
//
// A request arrives with what the client has sent: its target byte for byte ([Request.Target]), and what is wrong with
// it. Requests that net/http would answer itself, or whose streams it would reset, arrive like all others. Package h1
// serves most HTTP/1.1 requests, which costs less, and net/http's server serves all others.
//
// Connections have a limit for all clients and one for each client, and count in the memory budget. What a client may
// request, how fast, and what is recorded of it is the business of the Handler.
package inbound

import (
	"bufio"
	"crypto/tls"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"robotsproxy/policy/memory"
	"robotsproxy/proxy/h1"
	"robotsproxy/robots"
)

// A Handler answers the requests of one connection, or of one tunnel. Several goroutines may call ServeRequest at once.
type Handler interface {
	// ServeRequest answers a request.
	ServeRequest(*Request)
	// Refuse records what arrived on the connection and is no request that ServeRequest could get. It returns the
	// response, which is not sent if the Refusal is Silent.
	Refuse(Refusal) *http.Response
	// Closed is called once, when the connection or the tunnel is closed.
	Closed()
}

// A Refusal is what arrived on a connection in place of a request.
type Refusal struct {
	// Method and Sent are the method and the request target that the client has sent, as far as they could be read. For a
	// redirected connection that carries no request, Sent is its original destination, as host:port.
	Method, Sent string

	// Silent says that the client can get no response.
	Silent bool

	// Err says why it is refused: it is ErrConfined, ErrLoop, ErrMalformed, ErrTLSInTheClear, ErrPlainHTTP or memory.ErrShort.
	Err error
}

// Options are the parameters of New. All are required.
type Options struct {
	// Accept returns the Handler of a client's connection to the proxy's own port.
	Accept func(*Conn) Handler

	// Rules returns the present Rules.
	Rules func() Rules

	Memory *memory.Budget
	Log    *slog.Logger

	// HeadTimeout is for the head of a request or a TLS handshake, and twice that for the first byte in a tunnel.
	HeadTimeout time.Duration

	// WriteTimeout ends an HTTP/2 connection that accepts no bytes for so long.
	WriteTimeout time.Duration
}

// Rules are what may change while a Server serves.
type Rules struct {
	// TLS is for the proxy's own port; nil: no TLS. It cannot be turned on or off.
	TLS *tls.Config

	// MaxConns is the maximum number of open connections of all clients, MaxConnsPerClient that of one.
	MaxConns, MaxConnsPerClient int

	// ShareOf returns the key of the share of an address whose client is not known yet.
	ShareOf func(address string) string

	// CheckPort returns why a redirected connection to a host must not be served, and IsOwn reports whether the proxy has
	// made the connection itself.
	CheckPort func(host string, port uint16) error
	IsOwn     func(from, to netip.AddrPort) bool
}

// A Server serves the connections of clients. Make one with New and end it with Shutdown. Any number of goroutines may
// use it.
type Server struct {
	o     Options
	outer *h1.Server

	// inner serves the connections inside intercepted tunnels, which handoff passes to it.
	inner   *h1.Server
	handoff *h1.Handoff

	// hijacked has the connections that were taken over from net/http: tunnels and upgraded connections.
	hijacked h1.Group[*Raw]

	// conns counts the connections to the proxy's own port.
	conns clientConns

	// draining is set when each response is the last of its connection.
	draining atomic.Bool
	counts   counts
}

// A Conn is a client's connection to the proxy's own port.
type Conn struct {
	net.Conn

	// OverLimit says that the client has too many connections, and that the requests of this one must be refused.
	OverLimit bool

	server  *Server
	handler Handler
	place   place

	// redirect is the original destination of the connection; nil: the client connected to the proxy.
	redirect *redirect

	// memory is the connection in the memory budget, for the share of the address, until Close. It is zero if unbudgeted is
	// set, because the budget had no space.
	memory     memory.Work
	unbudgeted bool
	once       sync.Once
}

// A Request is a request of a client. Only the goroutine that serves it may use it.
type Request struct {
	// HTTP is the request as net/http has read it. Its Method, URL and RequestURI may not be what the client has sent.
	HTTP *http.Request

	// Method and Sent are the method and the request target (RFC 9112 3.2) that the client has sent.
	Method, Sent string

	// Fault says what is wrong with the head; nil: nothing.
	Fault error

	// Target is what is requested. A CONNECT has only an Origin, whose scheme is guessed from its port. TargetErr says why
	// there is no Target, and is Fault if there is one; it is ErrMalformed, and may be ErrNoSite, or ErrMisdirected.
	Target    robots.Target
	TargetErr error

	// Conn is the connection to the proxy's own port on which the request arrived. It may carry the Tunnel in which the
	// request arrived; nil: it arrived in none. Only a Request that no Server has made has no Conn.
	Conn   *Conn
	Tunnel *Tunnel

	// Writer writes the response.
	Writer http.ResponseWriter

	// under is the connection under HTTP/1; nil with HTTP/2 over TLS.
	under net.Conn

	// stream is the connection in a CONNECT that arrived as a stream of HTTP/2; nil: there is none, or not yet. copies are the
	// goroutines that copy between both.
	stream *streamConn
	copies sync.WaitGroup

	// counted says that the request is counted as in progress on Conn.
	counted bool
}

// A Tunnel is a client's connection after its CONNECT was answered, whose requests are served. Its first reads
// return the bytes that the server has read ahead.
type Tunnel struct {
	net.Conn
	ahead *bufio.Reader

	// raw is the connection as it was taken over, until Serve.
	raw *Raw

	// Origin is the origin in the CONNECT; its scheme is a guess. Authority is it in the form of a Host header.
	Origin    robots.Origin
	Authority string

	server  *Server
	handler Handler

	// carrier is the connection to the proxy's own port that carries the tunnel.
	carrier *Conn

	// secured is when the TLS handshake in the tunnel ended; zero: the client speaks no TLS in it. serverName is the
	// server name of the handshake; "": none.
	secured    time.Time
	serverName string

	// memory is the tunnel in the memory budget, until Close.
	memory memory.Work

	// spoke says that a request has begun to arrive; with HTTP/2, that the client has sent its preface.
	spoke atomic.Bool
	once  sync.Once
}

// A Raw is a client's connection that was taken over from its server. What the server has read ahead is in Ahead. Conn is
// the connection that the kernel can copy from and to, or the one with TLS, and may be closed before. The owner calls Close once.
type Raw struct {
	net.Conn
	Ahead *bufio.Reader

	whole  net.Conn
	server *Server

	// end is how a shutdown ends whole.
	end func(net.Conn)
}
