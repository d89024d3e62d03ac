package egress

import (
	"bufio"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"

	"robotsproxy/robots/testkit"
)

// RFC 9110 9.3.2: a response to HEAD has no body. If an origin sends one, no request may
// get it as its response, however many requests share the connections.
func TestMoreThanWasAskedForIsNobodysAnswer(t *testing.T) {
	ca := newAuthority(t)
	for _, scheme := range []string{"http", "https"} {
		t.Run(scheme, func(t *testing.T) {
			o, l := listen(t, scheme, "127.0.0.1")
			if scheme == "https" {
				l = tls.NewListener(l, &tls.Config{Certificates: []tls.Certificate{ca.leaf(t, "127.0.0.1", later())}})
			}
			var serving sync.WaitGroup
			t.Cleanup(func() { l.Close(); serving.Wait() })
			serving.Go(func() {
				for {
					c, err := l.Accept()
					if err != nil {
						return
					}
					serving.Go(func() { desynchronised(c) })
				}
			})
			d := newClient(t, Options{AllowPrivate: loopback, Roots: ca.pool})
			var asking sync.WaitGroup
			for range 16 {
				asking.Go(func() {
					for range testkit.Rounds(25) {
						for _, method := range []string{http.MethodHead, http.MethodGet} {
							askSettled(t, d, method, o.String())
						}
					}
				})
			}
			asking.Wait()
		})
	}
}

// desynchronised answers HEAD with a body that looks like a response.
func desynchronised(c net.Conn) {
	defer c.Close()
	for br := bufio.NewReader(c); ; {
		r, err := http.ReadRequest(br)
		if err != nil {
			return
		}
		answer := "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ngood"
		if r.Method == http.MethodHead {
			answer = "HTTP/1.1 200 OK\r\nContent-Length: 45\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison"
		}
		io.WriteString(c, answer)
	}
}

func askSettled(t *testing.T, d *Client, method, url string) {
	r, err := http.NewRequestWithContext(t.Context(), method, url, nil)
	if err != nil {
		t.Error(err)
		return
	}
	resp, err := d.RoundTrip(r)
	if err != nil {
		t.Errorf("%s: %v", method, err)
		return
	}
	defer resp.Body.Close()
	if body, err := io.ReadAll(resp.Body); err != nil || method == http.MethodGet && string(body) != "good" {
		t.Errorf("%s: %q, %v", method, body, err)
	}
}
