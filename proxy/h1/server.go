// Package h1 serves simple HTTP/1.1 requests (GET, HEAD and CONNECT without a body)
// at a lower cost than net/http. One goroutine for each connection reads the request,
// calls the handler and writes the response. net/http's server reads in the background
// of every request to notice that the client disconnects, which costs more than all
// the rest. This package does so only for requests that take long.
//
// A [Server] stands in front of an http.Server. If the next request of a connection is
// of another kind, or not well-formed, the Server hands the connection over to the
// http.Server, with all that was read and not answered, for good. So net/http alone
// decides what is HTTP: a fuzz target checks that this package reads a request as
// http.ReadRequest does, or not at all. The exception is Request.URL: it has the
// scheme and the authority of an absolute target, and nothing else. A handler finds the
// target in Request.RequestURI as it was sent, and must not change the URL, which
// requests share.
//
// For the other side, requests to origins, [WriteHead] and [WriteBody] write a request,
// and [ReadResponse] reads a response: as net/http does, but also what browsers and curl
// read and net/http refuses.
package h1

import (
	"bufio"
	"context"
	"errors"
	"net"
	"net/http"
	"net/url"
	"runtime/debug"
	"sync"
)

// readBuffer is the size of a connection's reader, in bytes. A request with a longer head goes to the http.Server.
const readBuffer = 4 << 10

// bufReaders holds readers that are not in use.
var bufReaders = sync.Pool{New: func() any { return bufio.NewReaderSize(nil, readBuffer) }}

// A Server serves simple requests with the Handler, ConnContext, ConnState, ErrorLog,
// ReadHeaderTimeout and IdleTimeout of an http.Server, and leaves all other connections
// to that server. Serve, Shutdown and Close do what they do in net/http. Any number of
// goroutines may use a Server. Use [New] to make one.
type Server struct {
	fallback *http.Server
	conns    Group[*conn]
}

// New returns a Server in front of fallback. The caller must not use fallback to serve.
func New(fallback *http.Server) *Server {
	return &Server{fallback: fallback}
}

// Serve serves the connections of l until Shutdown or Close, and then returns
// http.ErrServerClosed.
func (s *Server) Serve(l net.Listener) error {
	g := NewHandoff(l)
	ctx := context.WithValue(context.Background(), http.ServerContextKey, s.fallback)
	var loop sync.WaitGroup
	loop.Go(func() { s.acceptLoop(ctx, g) })
	err := s.fallback.Serve(g)
	g.Close()
	loop.Wait()
	return err
}

// acceptLoop accepts the connections of a listener. Errors go to the http.Server, which
// waits and tries again after temporary ones.
func (s *Server) acceptLoop(ctx context.Context, g *Handoff) {
	for {
		c, err := g.Listener.Accept()
		full, ok := c.(Conn)
		if err != nil || !ok {
			if !g.Give(c, err) {
				if err == nil {
					c.Close()
				}
				return
			}
			continue
		}
		served := &conn{server: s.fallback, group: &s.conns, handoff: g, full: full}
		ctx, cancel := context.WithCancel(ctx)
		served.cancel = cancel
		if !s.conns.Add(served) {
			served.close()
			continue
		}
		// Shutdown waits for the goroutine until it removes the connection from s.conns.
		go serve(ctx, served)
	}
}

// Shutdown accepts no more connections, closes the idle ones and waits for the others
// until ctx ends; then it returns the error of ctx. It does not wait for hijacked
// connections.
func (s *Server) Shutdown(ctx context.Context) error {
	s.conns.End((*conn).closeIdle)
	err := s.fallback.Shutdown(ctx)
	served := make(chan struct{})
	// The goroutine ends after the last request.
	go func() {
		defer close(served)
		s.conns.Wait()
	}()
	select {
	case <-served:
		return err
	case <-ctx.Done():
		return errors.Join(err, ctx.Err())
	}
}

// Close closes all connections except hijacked ones, and waits for nothing.
func (s *Server) Close() error {
	s.conns.End((*conn).close)
	return s.fallback.Close()
}

// serve serves the requests of c until the connection ends or is handed over or hijacked.
func serve(ctx context.Context, c *conn) {
	c.rw = c.full.Direct()
	c.br = bufReaders.Get().(*bufio.Reader)
	c.br.Reset(c)
	c.watchEnded.L = &c.mu
	defer c.cancel()
	c.setState(http.StateNew)
	defer func() {
		fault := recover()
		if log := c.server.ErrorLog; log != nil && fault != nil && fault != http.ErrAbortHandler {
			log.Printf("h1: panic while serving %v: %v\n%s", c.full.RemoteAddr(), fault, debug.Stack())
		}
		c.end()
		if c.br != nil {
			c.br.Reset(nil)
			bufReaders.Put(c.br)
		}
	}()
	template := newTemplate(ctx, c)
	for first := true; ; first = false {
		read, err := c.next(first)
		if err != nil {
			if first && c.inHandshake() {
				c.handOver(nil)
			}
			return
		}
		r, size := parseRequest(read, template)
		if r == nil {
			c.handOver(read)
			return
		}
		c.br.Discard(size)
		// This comes before begin: a connection that is new when Shutdown begins gets no request.
		c.setState(http.StateActive)
		if !c.begin() {
			return
		}
		// Nobody else would close the connection after Shutdown has begun.
		if !answer(c, r) || c.group.ended.Load() {
			c.drain()
			return
		}
		c.setState(http.StateIdle)
	}
}

// newTemplate returns a request with the fields that all requests of the connection share.
func newTemplate(ctx context.Context, c *conn) *http.Request {
	if hook := c.server.ConnContext; hook != nil {
		ctx = hook(ctx, c.full)
	}
	r := http.Request{Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, URL: new(url.URL), Body: http.NoBody}
	r.RemoteAddr = c.full.RemoteAddr().String()
	return r.WithContext(context.WithValue(ctx, http.LocalAddrContextKey, c.full.LocalAddr()))
}

// answer serves a request and reports whether another may follow.
func answer(c *conn, r *http.Request) bool {
	defer func() {
		if !c.gone.Load() {
			c.stopWatching()
		}
	}()
	a := newResponse(c, r)
	defer a.release()
	c.server.Handler.ServeHTTP(a, r)
	return a.finish()
}
