package egress

import (
	"bytes"
	"compress/gzip"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"robotsproxy/proxy/h1"
)

// Bodies and heads pass unchanged, and the environment has no effect.
func TestRoundTripChangesNothing(t *testing.T) {
	t.Setenv("http_proxy", "http://127.0.0.1:1")
	t.Setenv("HTTP_PROXY", "http://127.0.0.1:1")
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	io.WriteString(z, "hello")
	z.Close()
	o := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if got := r.Header.Get("Accept-Encoding"); got != "" {
			t.Errorf("Accept-Encoding: %s was added", got)
		}
		if r.URL.Path == "/elsewhere" {
			http.Redirect(w, r, "/", http.StatusFound)
			return
		}
		w.Header().Set("Content-Encoding", "gzip")
		w.Write(packed.Bytes())
	})
	d := newClient(t, Options{AllowPrivate: loopback})
	resp, body, err := get(t, d, o.String())
	if err != nil || body != packed.String() || resp.Uncompressed {
		t.Errorf("%q, %v", body, err)
	}
	if resp, _, err := get(t, d, o.String()+"/elsewhere"); err != nil || resp.StatusCode != http.StatusFound {
		t.Errorf("%v, %v: a redirect is the client's to follow", resp, err)
	}
}

func TestRoundTripLimits(t *testing.T) {
	o := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/silent" {
			<-r.Context().Done()
			return
		}
		if r.URL.Path == "/fields" {
			fields, _ := strconv.Atoi(r.URL.RawQuery)
			w.Header()["Field"] = make([]string, fields)
			return
		}
		w.Header().Set("Long", strings.Repeat("x", h1.MaxHead))
	})
	patient := newClient(t, Options{AllowPrivate: loopback})
	if _, _, err := get(t, patient, o.String()); err == nil || !strings.Contains(err.Error(), "exceeds") {
		t.Errorf("a head of %d bytes: %v", h1.MaxHead, err)
	}
	for fields, fit := range map[int]bool{h1.MaxFields - 10: true, h1.MaxFields + 1: false, 3 * h1.MaxFields: false} {
		for _, method := range []string{http.MethodGet, http.MethodPost} { // without a body, and with an empty one
			r, err := http.NewRequestWithContext(t.Context(), method, fmt.Sprint(o.String(), "/fields?", fields), nil)
			if err != nil {
				t.Fatal(err)
			}
			resp, err := patient.RoundTrip(r)
			if err == nil {
				resp.Body.Close()
			}
			if fit != (err == nil) || !fit && !strings.Contains(err.Error(), "exceeds") {
				t.Errorf("%s, %d fields: %v", method, fields, err)
			}
		}
	}
	_, _, err := get(t, newClient(t, Options{AllowPrivate: loopback, HeaderTimeout: 50 * time.Millisecond}), o.String()+"/silent")
	if timeout, ok := err.(interface{ Timeout() bool }); !ok || !timeout.Timeout() {
		t.Errorf("no head: %v, want a timeout", err)
	}
}

// TLS sessions are resumed by other connections.
func TestRoundTripTLS(t *testing.T) {
	ca := newAuthority(t)
	var resumed []bool
	o := serve(t, func(w http.ResponseWriter, r *http.Request) {
		resumed = append(resumed, r.TLS.DidResume)
		if r.TLS.Version < tls.VersionTLS12 {
			t.Errorf("TLS version %x", r.TLS.Version)
		}
		w.Header().Set("Connection", "close")
	}, ca.leaf(t, "127.0.0.1", later()))
	d := newClient(t, Options{AllowPrivate: loopback, Roots: ca.pool})
	for range 2 {
		if _, _, err := get(t, d, o.String()); err != nil {
			t.Fatal(err)
		}
		<-o.hung
	}
	if want := []bool{false, true}; fmt.Sprint(resumed) != fmt.Sprint(want) {
		t.Errorf("resumed: %v, want %v", resumed, want)
	}
}

// RFC 9113 8.6: HTTP/2 has no Upgrade, so the request uses HTTP/1.1, whatever connections
// are idle.
func TestUpgradeIsAskedByHTTP1(t *testing.T) {
	ca := newAuthority(t)
	spoken := make(chan string, 2)
	o := serve(t, func(_ http.ResponseWriter, r *http.Request) { spoken <- r.Proto }, ca.leaf(t, "127.0.0.1", later()))
	d := newClient(t, Options{AllowPrivate: loopback, Roots: ca.pool})
	if err := d.At(netip.Addr{}).Reach(t.Context(), o.Origin); err != nil {
		t.Fatal(err)
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, o.String(), nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Connection", "Upgrade")
	r.Header.Set("Upgrade", "websocket")
	resp, err := d.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if _, _, err := get(t, d, o.String()); err != nil {
		t.Fatal(err)
	}
	if asked, other := <-spoken, <-spoken; asked != "HTTP/1.1" || other != "HTTP/2.0" {
		t.Errorf("asked by %s, other requests by %s", asked, other)
	}
	if n := o.accepted.Load(); n != 2 {
		t.Errorf("%d connections, want the one that waited and one for the upgrade", n)
	}
}

// TestUpgradeIsAskedOnANewConnection: an idle connection may be about to close, and a
// change of protocols is requested only once.
func TestUpgradeIsAskedOnANewConnection(t *testing.T) {
	ca := newAuthority(t)
	for _, scheme := range []string{"http", "https"} {
		o := parrot(t, scheme, ca, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
		d := newClient(t, Options{AllowPrivate: loopback, Roots: ca.pool})
		for range 2 {
			if _, _, err := get(t, d, o.String()); err != nil {
				t.Fatal(err)
			}
		}
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, o.String(), nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header = http.Header{"Connection": {"Upgrade"}, "Upgrade": {"websocket"}}
		resp, err := d.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if n := o.accepted.Load(); n != 2 {
			t.Errorf("%s: %d connections, want 2", scheme, n)
		}
	}
}

// BenchmarkRoundTrip measures requests for pages to an origin that does almost nothing.
func BenchmarkRoundTrip(b *testing.B) {
	ca := newAuthority(b)
	for _, scheme := range []string{"http", "https"} {
		for _, size := range []int{1 << 10, 64 << 10} {
			o := parrot(b, scheme, ca, fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: %d\r\n\r\n%s", size, strings.Repeat("x", size)))
			d := newClient(b, Options{AllowPrivate: loopback, Roots: ca.pool})
			b.Run(fmt.Sprintf("%s/%dKiB", scheme, size>>10), func(b *testing.B) {
				b.SetBytes(int64(size))
				b.ReportAllocs()
				b.SetParallelism(16)
				b.RunParallel(func(pb *testing.PB) {
					buffer := make([]byte, 32<<10)
					for pb.Next() {
						r, err := http.NewRequestWithContext(b.Context(), http.MethodGet, o.String(), nil)
						if err != nil {
							b.Error(err)
							return
						}
						resp, err := d.RoundTrip(r)
						if err != nil {
							b.Error(err)
							return
						}
						io.CopyBuffer(struct{ io.Writer }{io.Discard}, resp.Body, buffer)
						resp.Body.Close()
					}
				})
			})
			d.CloseIdle()
		}
	}
}

// parrot is an origin that answers every request with the same bytes.
func parrot(t testing.TB, scheme string, ca *authority, answer string) *origin {
	t.Helper()
	o, l := listen(t, scheme, "127.0.0.1")
	if scheme == "https" {
		l = tls.NewListener(l, &tls.Config{Certificates: []tls.Certificate{ca.leaf(t, "127.0.0.1", later())}})
	}
	data := []byte(answer)
	var serving sync.WaitGroup
	t.Cleanup(func() { l.Close(); serving.Wait() })
	serving.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			serving.Go(func() {
				defer c.Close()
				for b := make([]byte, 4<<10); ; {
					n, err := c.Read(b) // a head arrives in one piece here
					if err != nil || !bytes.HasSuffix(b[:n], []byte("\r\n\r\n")) {
						return
					}
					c.Write(data)
				}
			})
		}
	})
	return o
}

func TestReachKnownAllocatesNothing(t *testing.T) {
	o := serve(t, hello)
	d := newClient(t, Options{AllowPrivate: loopback})
	n := testing.AllocsPerRun(100, func() {
		if err := d.At(netip.Addr{}).Reach(t.Context(), o.Origin); err != nil {
			t.Fatal(err)
		}
	})
	if n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkReachKnown(b *testing.B) {
	o := serve(b, hello)
	d := newClient(b, Options{AllowPrivate: loopback})
	b.ReportAllocs()
	for b.Loop() {
		if err := d.At(netip.Addr{}).Reach(b.Context(), o.Origin); err != nil {
			b.Fatal(err)
		}
	}
}
