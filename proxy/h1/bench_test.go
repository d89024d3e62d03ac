package h1_test

import (
	"bytes"
	"io"
	"net"
	"net/http"
	"testing"

	"robotsproxy/proxy/h1"
)

// BenchmarkServe compares a Server with net/http's: requests for a page of 1 KiB on one connection.
func BenchmarkServe(b *testing.B) {
	page := bytes.Repeat([]byte("x"), 1<<10)
	for _, front := range []bool{true, false} {
		name := "net_http"
		if front {
			name = "h1"
		}
		b.Run(name, func(b *testing.B) {
			s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				h := w.Header()
				h["Content-Length"], h["Content-Type"], h["Date"] = []string{"1024"}, []string{"text/plain"}, nil
				w.Write(page)
			})}
			serve, end := s.Serve, s.Close
			if front {
				f := h1.New(s)
				serve, end = f.Serve, f.Close
			}
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				b.Fatal(err)
			}
			done := make(chan error)
			go func() { done <- serve(directListener{l}) }()
			c, err := net.Dial("tcp", l.Addr().String())
			if err != nil {
				b.Fatal(err)
			}
			answer := make([]byte, len("HTTP/1.1 200 OK\r\nContent-Length: 1024\r\nContent-Type: text/plain\r\n\r\n")+len(page))
			b.ReportAllocs()
			for b.Loop() {
				io.WriteString(c, get)
				if _, err := io.ReadFull(c, answer); err != nil {
					b.Fatal(err)
				}
			}
			c.Close()
			end()
			<-done
		})
	}
}

// directListener accepts connections that a Server can serve.
type directListener struct{ net.Listener }

func (l directListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &pipe{Conn: c}, nil
}
