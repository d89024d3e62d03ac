package h1_test

import (
	"bufio"
	"bytes"
	"io"
	"log"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"robotsproxy/proxy/h1"
)

// front is a Server with a listener of pipes.
type front struct {
	*h1.Server
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
	log    bytes.Buffer
	served chan error
}

// start starts to serve h until end is called.
func start(h http.HandlerFunc, change ...func(*http.Server)) *front {
	f := &front{conns: make(chan net.Conn), closed: make(chan struct{}), served: make(chan error, 1)}
	s := &http.Server{Handler: h, ErrorLog: log.New(&f.log, "", 0), ReadHeaderTimeout: 30 * time.Second, IdleTimeout: 3 * time.Minute}
	for _, c := range change {
		c(s)
	}
	f.Server = h1.New(s)
	go func() { f.served <- f.Serve(f) }()
	return f
}

func (f *front) Accept() (net.Conn, error) {
	select {
	case c := <-f.conns:
		return c, nil
	case <-f.closed:
		return nil, net.ErrClosed
	}
}

// Close closes the listener.
func (f *front) Close() error {
	f.once.Do(func() { close(f.closed) })
	return nil
}

func (*front) Addr() net.Addr { return &net.TCPAddr{} }

// end shuts the server down and checks the results of Shutdown and Serve.
func (f *front) end(t *testing.T) {
	t.Helper()
	if err := f.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	if err := <-f.served; err != http.ErrServerClosed {
		t.Error(err)
	}
}

// dial returns the client's end of a new connection.
func (f *front) dial() net.Conn {
	client, server := net.Pipe()
	f.conns <- &pipe{Conn: server}
	return client
}

// pipe can be served directly by a Server.
type pipe struct {
	net.Conn
	ahead []byte
}

func (c *pipe) Direct() net.Conn      { return c.Conn }
func (c *pipe) HandOver(ahead []byte) { c.ahead = ahead }

func (c *pipe) Read(b []byte) (int, error) {
	if len(c.ahead) > 0 {
		n := copy(b, c.ahead)
		c.ahead = c.ahead[n:]
		return n, nil
	}
	return c.Conn.Read(b)
}

// ask sends a request and returns the body of its response.
func ask(t *testing.T, c net.Conn, br *bufio.Reader, request string) string {
	t.Helper()
	go io.WriteString(c, request)
	resp, err := http.ReadResponse(br, nil)
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}
