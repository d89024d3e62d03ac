package egress

import (
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"reflect"
	"sync/atomic"
	"testing"

	"robotsproxy/robots"
)

// FuzzAnswer sends any response of an origin. What http.Transport reads is read in the same way; FuzzResponse of package
// h1 compares the header.
func FuzzAnswer(f *testing.F) {
	for _, answer := range []string{
		fine, chunked, early + fine, fine + fine, "HTTP/1.0 200 OK\r\n\r\ngood", "HTTP/1.1 204 No Content\r\n\r\n",
		"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\ngood", "HTTP/1.1 099 \r\n\r\n", "\r\n", "",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\nffffffffffffffff1\r\n",
	} {
		f.Add(answer, false)
		f.Add(answer, true)
	}
	log.SetOutput(io.Discard) // net/http's client logs unexpected data there
	f.Cleanup(func() { log.SetOutput(os.Stderr) })
	var answer atomic.Pointer[string]
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		f.Fatal(err)
	}
	over := make(chan struct{})
	f.Cleanup(func() { l.Close(); <-over })
	go func() {
		defer close(over)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			c.Read(make([]byte, 4<<10)) // the request
			io.WriteString(c, *answer.Load())
			c.Close()
		}
	}()
	d, standard := newClient(f, Options{AllowPrivate: loopback}), &http.Transport{DisableCompression: true}
	to := robots.Origin{Scheme: "http", Host: "127.0.0.1", Port: uint16(l.Addr().(*net.TCPAddr).Port)}
	f.Fuzz(func(t *testing.T, data string, head bool) {
		answer.Store(&data)
		d.CloseIdle() // the origin has closed its connections, which the pool may not know yet
		method := http.MethodGet
		if head {
			method = http.MethodHead
		}
		ours := answerBy(t, method, to.String(), d.RoundTrip)
		want := answerBy(t, method, to.String(), standard.RoundTrip)
		standard.CloseIdleConnections()
		if !want.broken && !reflect.DeepEqual(ours, want) {
			t.Errorf("%q:\nhere         %+v\nby net/http  %+v", data, ours, want)
		}
	})
}

// An outcome is the result of a request.
type outcome struct {
	status  int
	length  int64
	body    string
	trailer http.Header
	broken  bool
}

// answerBy sends a request in the way that the caller chooses.
func answerBy(t *testing.T, method, url string, send func(*http.Request) (*http.Response, error)) (o outcome) {
	r, err := http.NewRequestWithContext(t.Context(), method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := send(r)
	if err != nil {
		return outcome{broken: true}
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusSwitchingProtocols { // net/http's client would give the connection away
		return outcome{status: resp.StatusCode}
	}
	body, err := io.ReadAll(resp.Body)
	return outcome{resp.StatusCode, resp.ContentLength, string(body), resp.Trailer, err != nil}
}
