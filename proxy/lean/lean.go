// Package lean serves the requests that nearly all are (GET, HEAD and CONNECT of
// HTTP/1.1, without a body) in the way that costs least: one goroutine for each
// connection reads, calls the handler and writes, and nothing else runs beside it.
// net/http's server reads on in the background of every request, to notice a client
// that leaves, and that costs more than all the rest; here only a request that takes
// long is watched.
//
// A [Front] stands before an http.Server. A connection whose next request is of
// another kind, or not well-formed, is handed over to that server, with all that was
// read and not answered, and stays there. So there is one judge of what is HTTP,
// net/http: what is served here is what its ReadRequest makes of the same octets, which
// a fuzz target holds it to, and whatever this package is not sure of goes to the server.
package lean

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// A Conn is a connection that may be served here. A listener's other ones go to the
// http.Server at once.
type Conn interface {
	net.Conn
	// Lean gives what to read from and write to in its place. It is closed by Conn.
	Lean() net.Conn
	// Full makes Conn what the http.Server is to have: its reads give ahead first.
	Full(ahead []byte)
}

// A Front serves what it can, by an http.Server's Handler, ConnContext, ConnState,
// ErrorLog, ReadHeaderTimeout and IdleTimeout, and leaves the rest to that. It stands in
// the server's place: Serve, Shutdown and Close are as there. Make one with New. Any
// number of goroutines may use it.
type Front struct {
	server *http.Server

	mu     sync.Mutex
	conns  map[*conn]struct{}
	ending atomic.Bool    // written under mu
	gone   sync.WaitGroup // of conns
}

// New gives a Front for s, which nobody else serves by.
func New(s *http.Server) *Front {
	return &Front{server: s, conns: make(map[*conn]struct{})}
}

// Serve answers the clients of l until Shutdown or Close, and returns
// http.ErrServerClosed then.
func (f *Front) Serve(l net.Listener) error {
	g := &gate{Listener: l, accepted: make(chan accepted), ended: make(chan struct{})}
	ctx := context.WithValue(context.Background(), http.ServerContextKey, f.server)
	var loop sync.WaitGroup
	loop.Go(func() { f.accept(ctx, g) })
	err := f.server.Serve(g)
	g.Close()
	loop.Wait()
	return err
}

// accept takes the connections of a listener. An error is the server's to deal with:
// it waits a while where that may help.
func (f *Front) accept(ctx context.Context, g *gate) {
	for {
		c, err := g.Listener.Accept()
		lean, ok := c.(Conn)
		if err != nil || !ok {
			if !g.give(c, err) {
				return
			}
			continue
		}
		f.start(ctx, g, lean)
	}
}

// start serves a connection in a goroutine of its own.
func (f *Front) start(ctx context.Context, g *gate, c Conn) {
	s := &conn{front: f, gate: g, whole: c}
	ctx, s.cancel = context.WithCancel(ctx)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ending.Load() {
		s.close()
		return
	}
	f.conns[s] = struct{}{}
	f.gone.Add(1)
	go s.serve(ctx) // it is Done when it leaves
}

// forget leaves a connection out of what Shutdown waits for.
func (f *Front) forget(c *conn) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.conns, c)
}

// Shutdown takes no more connections, closes those at rest and waits for the others
// until ctx ends, whose error it returns then. Those that were hijacked are not its
// own any more.
func (f *Front) Shutdown(ctx context.Context) error {
	f.end((*conn).closeAtRest)
	err := f.server.Shutdown(ctx)
	served := make(chan struct{})
	go func() { // ends with the last request
		defer close(served)
		f.gone.Wait()
	}()
	select {
	case <-served:
		return err
	case <-ctx.Done():
		return errors.Join(err, ctx.Err())
	}
}

// Close closes all connections but hijacked ones, and waits for nothing.
func (f *Front) Close() error {
	f.end((*conn).close)
	return f.server.Close()
}

// end lets nothing new in. The server closes the gates.
func (f *Front) end(close func(*conn)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ending.Store(true)
	for c := range f.conns {
		close(c)
	}
}

// state tells the server's hook.
func (f *Front) state(c net.Conn, s http.ConnState) {
	if f.server.ConnState != nil {
		f.server.ConnState(c, s)
	}
}

// A gate is the listener that the http.Server has: what is handed over comes out.
type gate struct {
	net.Listener
	accepted chan accepted
	ended    chan struct{}
	once     sync.Once
}

type accepted struct {
	conn net.Conn
	err  error
}

// give waits until the server takes it; false: the gate is closed, and c as well.
func (g *gate) give(c net.Conn, err error) bool {
	select {
	case g.accepted <- accepted{c, err}:
		return true
	case <-g.ended:
		if err == nil {
			c.Close()
		}
		return false
	}
}

// Accept gives the next connection that is for the server.
func (g *gate) Accept() (net.Conn, error) {
	select {
	case a := <-g.accepted:
		return a.conn, a.err
	case <-g.ended:
		return nil, net.ErrClosed
	}
}

// Close closes the listener.
func (g *gate) Close() (err error) {
	g.once.Do(func() {
		close(g.ended)
		err = g.Listener.Close()
	})
	return err
}

// past is a deadline that ends a read at once.
var past = time.Unix(1, 0)

// log says what the server would say by its log.
func (f *Front) log(format string, v ...any) {
	if l := f.server.ErrorLog; l != nil {
		l.Printf(format, v...)
	}
}
