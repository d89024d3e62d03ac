package egress

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	framing "golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"robotsproxy/robots/testkit"
)

// A countingSigner signs with a number, or fails with err.
type countingSigner struct {
	n   int
	err error
}

func (s *countingSigner) Sign(r *http.Request) error {
	if s.err != nil {
		return s.err
	}
	s.n++
	r.Header["Signature"] = []string{strconv.Itoa(s.n)}
	return nil
}

// sendSigned sends a request as a caller does that signs each try.
func sendSigned(p Pinned, r *http.Request, s *countingSigner) (*http.Response, error) {
	for try := 1; ; try++ {
		conn, err := p.Acquire(r.Context(), r, nil)
		if err != nil {
			return nil, err
		}
		if err := s.Sign(r); err != nil {
			conn.Release()
			return nil, err
		}
		var resp *http.Response
		if _, err = conn.Send(r, nil); err == nil {
			resp, err = conn.Receive()
		}
		if err == nil || try == MaxTries || !Repeat(r, err) {
			return resp, err
		}
	}
}

// A signatureLog is what an origin has received.
type signatureLog struct {
	mu  sync.Mutex
	all []string // protocol and signature of each request
}

func (l *signatureLog) add(r *http.Request) (n int) {
	io.Copy(io.Discard, r.Body)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, r.Proto+" "+strings.Join(r.Header["Signature"], "|"))
	return len(l.all)
}

func (l *signatureLog) want(t *testing.T, proto string, numbers ...string) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, n := range numbers {
		numbers[i] = proto + " " + n
	}
	if !slices.Equal(l.all, numbers) {
		t.Errorf("the origin received %q, want %q", l.all, numbers)
	}
}

// signedRequests are the ways on which requests leave.
var signedRequests = []struct {
	name, scheme, method string
	protocols            []string // of the origin's TLS
	header               http.Header
	proto                string
}{
	{"plain", "http", "GET", nil, http.Header{}, "HTTP/1.1"},
	{"plain, with a body", "http", "POST", nil, http.Header{}, "HTTP/1.1"},
	{"TLS", "https", "GET", []string{"http/1.1"}, http.Header{}, "HTTP/1.1"},
	{"TLS, with a body", "https", "POST", []string{"http/1.1"}, http.Header{}, "HTTP/1.1"},
	{"HTTP/2", "https", "GET", []string{"h2"}, http.Header{}, "HTTP/2.0"},
	{"HTTP/2, another method", "https", "DELETE", []string{"h2"}, http.Header{}, "HTTP/2.0"},
	{"WebSocket", "https", "GET", []string{"h2", "http/1.1"}, http.Header{"Connection": {"Upgrade"}, "Upgrade": {"websocket"}}, "HTTP/1.1"},
}

func TestEachRequestIsSigned(t *testing.T) {
	ca := newAuthority(t)
	for _, c := range signedRequests {
		for _, o := range []Options{{}, {OneAddress: true}} {
			t.Run(c.name, func(t *testing.T) {
				var log signatureLog
				at := serveSigned(t, c.protocols, ca, func(_ http.ResponseWriter, r *http.Request) { log.add(r) })
				o.AllowPrivate, o.Roots = loopback, ca.pool
				d, s := newClient(t, o), &countingSigner{}
				for range 3 {
					r := newRequest(t, c.method, at, c.header)
					resp, err := sendSigned(d.At(d.KnownAddress(at.Host)), r, s)
					testkit.Must(t, err)
					resp.Body.Close()
				}
				log.want(t, c.proto, "1", "2", "3")
			})
		}
	}
}

func TestForwardedRequestIsSigned(t *testing.T) {
	eachParent(t, func(t *testing.T, p *fakeParent, ca *authority) {
		var log signatureLog
		at := serve(t, func(_ http.ResponseWriter, r *http.Request) { log.add(r) })
		s := &countingSigner{}
		r := newRequest(t, http.MethodGet, at, http.Header{})
		r.URL.Host = at.as("origin.test").Addr()
		r.Host = r.URL.Host
		resp, err := sendSigned(behind(t, p, ca).At(netip.Addr{}), r, s)
		testkit.Must(t, err)
		resp.Body.Close()
		log.want(t, "HTTP/1.1", "1")
	})
}

func TestUnsignedRequestIsNotSent(t *testing.T) {
	ca := newAuthority(t)
	for _, c := range signedRequests {
		t.Run(c.name, func(t *testing.T) {
			var log signatureLog
			at := serveSigned(t, c.protocols, ca, func(_ http.ResponseWriter, r *http.Request) { log.add(r) })
			d := newClient(t, Options{AllowPrivate: loopback, Roots: ca.pool})
			failed := errors.New("no key")
			_, err := sendSigned(d.At(netip.Addr{}), newRequest(t, c.method, at, c.header), &countingSigner{err: failed})
			if !errors.Is(err, failed) {
				t.Errorf("%v, want the error of the Signer", err)
			}
			resp, err := d.RoundTrip(newRequest(t, c.method, at, c.header)) // the client is still usable
			testkit.Must(t, err)
			resp.Body.Close()
			log.want(t, c.proto, "")
		})
	}
}

// TestEachTryIsSigned: an idle connection proves dead, and the request goes to another one.
func TestEachTryIsSigned(t *testing.T) {
	for name, header := range map[string]http.Header{
		"plain":       {},
		"with Expect": {"Expect": {"100-continue"}},
	} {
		t.Run(name, func(t *testing.T) {
			var log signatureLog
			at := serveSigned(t, nil, nil, func(w http.ResponseWriter, r *http.Request) {
				if log.add(r) == 2 {
					panic(http.ErrAbortHandler)
				}
			})
			d, s := newClient(t, Options{AllowPrivate: loopback}), &countingSigner{}
			for range 2 {
				resp, err := sendSigned(d.At(netip.Addr{}), newRequest(t, http.MethodGet, at, header), s)
				testkit.Must(t, err)
				resp.Body.Close()
			}
			log.want(t, "HTTP/1.1", "1", "2", "3")
		})
	}
}

// TestEachTryOverHTTP2IsSigned: the origin refuses a stream, or accepts no more of them on its connection, and
// the request is sent again. A signature that the origin has seen must not be used twice.
func TestEachTryOverHTTP2IsSigned(t *testing.T) {
	ca := newAuthority(t)
	for name, refuse := range map[string]func(f *framing.Framer, stream uint32){
		"REFUSED_STREAM": func(f *framing.Framer, stream uint32) { f.WriteRSTStream(stream, framing.ErrCodeRefusedStream) },
		"GOAWAY": func(f *framing.Framer, stream uint32) {
			f.WriteGoAway(stream-1, framing.ErrCodeNo, nil)
			f.WriteRSTStream(stream, framing.ErrCodeRefusedStream)
		},
		"GOAWAY without a reset": func(f *framing.Framer, stream uint32) { f.WriteGoAway(stream-1, framing.ErrCodeNo, nil) },
	} {
		for _, method := range []string{http.MethodGet, http.MethodPost} {
			t.Run(name+" "+method, func(t *testing.T) {
				var log signatureLog
				at := serveStreams(t, ca, func(f *framing.Framer, stream uint32, r *http.Request) {
					if n := log.add(r); n == 1 || n == 3 {
						refuse(f, stream)
						return
					}
					var head bytes.Buffer
					hpack.NewEncoder(&head).WriteField(hpack.HeaderField{Name: ":status", Value: "200"})
					f.WriteHeaders(framing.HeadersFrameParam{StreamID: stream, BlockFragment: head.Bytes(), EndHeaders: true, EndStream: true})
				})
				d, s := newClient(t, Options{AllowPrivate: loopback, Roots: ca.pool}), &countingSigner{}
				for range 2 {
					r := newRequest(t, method, at, http.Header{})
					r.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader("body")), nil }
					resp, err := sendSigned(d.At(netip.Addr{}), r, s)
					testkit.Must(t, err)
					resp.Body.Close()
				}
				log.want(t, "HTTP/2.0", "1", "2", "3", "4")
			})
		}
	}
}

// serveStreams starts an HTTP/2 origin that calls each for each stream.
func serveStreams(t *testing.T, ca *authority, each func(f *framing.Framer, stream uint32, r *http.Request)) *origin {
	t.Helper()
	o, l := listen(t, "https", "127.0.0.1")
	l = tls.NewListener(l, &tls.Config{Certificates: []tls.Certificate{ca.leaf(t, "127.0.0.1", later())}, NextProtos: []string{"h2"}})
	var all sync.WaitGroup
	t.Cleanup(func() {
		l.Close()
		all.Wait()
	})
	all.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			t.Cleanup(func() { conn.Close() })
			all.Go(func() {
				defer conn.Close()
				if _, err := io.ReadFull(conn, make([]byte, len(framing.ClientPreface))); err != nil {
					return
				}
				f := framing.NewFramer(conn, conn)
				f.ReadMetaHeaders = hpack.NewDecoder(4<<10, nil)
				f.WriteSettings()
				for {
					read, err := f.ReadFrame()
					if err != nil {
						return
					}
					if h, ok := read.(*framing.MetaHeadersFrame); ok {
						r := &http.Request{Proto: "HTTP/2.0", Header: http.Header{}, Body: http.NoBody}
						for _, field := range h.RegularFields() {
							r.Header.Add(field.Name, field.Value)
						}
						each(f, h.StreamID, r)
					}
				}
			})
		}
	})
	return o
}

// serveSigned starts an origin with these protocols of TLS; nil: without TLS.
func serveSigned(t *testing.T, protocols []string, ca *authority, h http.HandlerFunc) *origin {
	t.Helper()
	if protocols == nil {
		return serve(t, h)
	}
	return serveOver(t, h, &tls.Config{Certificates: []tls.Certificate{ca.leaf(t, "127.0.0.1", later())}, NextProtos: protocols})
}

func newRequest(t *testing.T, method string, to *origin, header http.Header) *http.Request {
	t.Helper()
	body := map[string]string{http.MethodPost: "body"}[method]
	r, err := http.NewRequestWithContext(t.Context(), method, to.String()+"/", strings.NewReader(body))
	testkit.Must(t, err)
	r.Header = header.Clone()
	return r
}
