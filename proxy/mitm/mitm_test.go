package mitm

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// pipe returns a TCP connection within this process: crypto/tls writes more than an unbuffered
// net.Pipe accepts.
func pipe(t testing.TB) (client, server net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if client, err = net.Dial("tcp", l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if server, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		client.Close()
		server.Close()
	})
	return client, server
}

// shake performs a handshake between a client and a. The client's state includes the session tickets,
// since the client has read a byte that follows them.
func shake(t testing.TB, a *Authority, host string, config *tls.Config) (client tls.ConnectionState, server *tls.Conn, err error) {
	t.Helper()
	near, far := pipe(t)
	ends := make(chan error, 1)
	secure := tls.Client(near, config)
	go func() {
		defer near.Close() // for the server, in case the client gives up
		err := secure.HandshakeContext(t.Context())
		if err == nil {
			_, err = io.ReadFull(secure, make([]byte, 1))
		}
		ends <- err
	}()
	server, err = a.Handshake(t.Context(), far, host, 443)
	if err == nil {
		_, err = server.Write([]byte("x"))
	} else {
		far.Close()
	}
	if clientErr := <-ends; err == nil {
		err = clientErr
	}
	return secure.ConnectionState(), server, err
}

func clientConfig(a *Authority, name string) *tls.Config {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(a.CertPEM())
	return &tls.Config{RootCAs: roots, ServerName: name}
}

func TestHandshakeNames(t *testing.T) {
	defer goleak.VerifyNone(t)
	a := newTestAuthority(t)
	tests := []struct {
		name, sni, host string // crypto/tls sends no SNI for an IP address
		sent            string // the name the server receives
	}{
		{"SNI is the host", "a.test", "a.test", "a.test"},
		{"SNI is another name: the SNI", "b.test", "a.test", "b.test"},
		{"SNI in a tunnel to an address", "a.test", "192.0.2.1", "a.test"},
		{"no SNI: the host, IPv4", "192.0.2.1", "192.0.2.1", ""},
		{"no SNI: the host, IPv6", "2001:db8::1", "2001:db8::1", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, server, err := shake(t, a, tt.host, clientConfig(a, tt.sni)) // the client verifies the certificate
			if err != nil {
				t.Fatal(err)
			}
			if got := server.ConnectionState().ServerName; got != tt.sent {
				t.Errorf("the server saw %q", got)
			}
		})
	}
	for name, sni := range map[string]string{"no SNI": "", "SNI with a port": "a.test:8443"} {
		t.Run(name+": the host, a name", func(t *testing.T) {
			config := clientConfig(a, sni)
			config.InsecureSkipVerify = true // the only setting with which crypto/tls sends no SNI; verified below
			config.VerifyConnection = func(state tls.ConnectionState) error {
				_, err := state.PeerCertificates[0].Verify(x509.VerifyOptions{Roots: config.RootCAs, DNSName: "a.test"})
				return err
			}
			if _, _, err := shake(t, a, "a.test", config); err != nil {
				t.Error(err)
			}
		})
	}
	if n := a.leaves.len(); n != 4 { // a.test, b.test and two addresses
		t.Errorf("%d names cached, want 4", n)
	}
}

func TestHandshakeRefuses(t *testing.T) {
	t.Parallel()
	a := newTestAuthority(t)
	none := &tls.Config{InsecureSkipVerify: true}
	if _, _, err := shake(t, a, "", none); !errors.Is(err, errNoName) {
		t.Errorf("neither SNI nor host: %v", err)
	}
	if _, _, err := shake(t, a, "*.test", none); !errors.Is(err, errBadName) {
		t.Errorf("a wildcard: %v", err)
	}
	wild := clientConfig(a, "*.example.test")
	if _, _, err := shake(t, a, "a.test", wild); !errors.Is(err, errBadName) {
		t.Errorf("a wildcard in the SNI: %v", err)
	}
	old := clientConfig(a, "a.test")
	old.MinVersion, old.MaxVersion = tls.VersionTLS10, tls.VersionTLS11
	if _, _, err := shake(t, a, "a.test", old); err == nil {
		t.Error("TLS 1.1 is accepted")
	}
	near, far := pipe(t)
	near.Close()
	for _, zero := range []*Authority{nil, {}} {
		if conn, err := zero.Handshake(t.Context(), far, "a.test", 443); err == nil || conn != nil {
			t.Error("the handshake succeeds without a CA")
		}
	}
}

func TestHandshakeALPN(t *testing.T) {
	t.Parallel()
	a := newTestAuthority(t)
	tests := []struct {
		name   string
		offers []string
		want   string
	}{
		{"none", nil, ""},
		{"both", []string{"h2", "http/1.1"}, "h2"},
		{"both, the other way round", []string{"http/1.1", "h2"}, "h2"},
		{"http/1.1", []string{"http/1.1"}, "http/1.1"},
		{"h2", []string{"h2"}, "h2"},
		{"curl -0: http/1.0 alone", []string{"http/1.0"}, ""},
		{"http/1.0 and http/1.1", []string{"http/1.0", "http/1.1"}, "http/1.1"},
		{"unknown ones", []string{"spdy/3.1", "acme"}, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			config := clientConfig(a, "a.test")
			config.NextProtos = tt.offers
			state, server, err := shake(t, a, "a.test", config)
			if err != nil {
				t.Fatal(err)
			}
			if got := server.ConnectionState().NegotiatedProtocol; got != tt.want || state.NegotiatedProtocol != tt.want {
				t.Errorf("chose %q, the client saw %q, want %q", got, state.NegotiatedProtocol, tt.want)
			}
		})
	}
}

// TestHandshakeResumes checks that sessions resume, also if only one connection negotiates ALPN.
func TestHandshakeResumes(t *testing.T) {
	t.Parallel()
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		for _, offers := range [][2]string{{"h2", "h2"}, {"http/1.1", "http/1.0"}, {"http/1.0", "http/1.1"}} {
			t.Run(fmt.Sprintf("%s, %s then %s", tls.VersionName(version), offers[0], offers[1]), func(t *testing.T) {
				a := newTestAuthority(t)
				config := clientConfig(a, "a.test")
				config.MaxVersion = version
				config.ClientSessionCache = tls.NewLRUClientSessionCache(1)
				for i, offer := range offers {
					config = config.Clone()
					config.NextProtos = []string{offer}
					state, _, err := shake(t, a, "a.test", config)
					if err != nil {
						t.Fatal(err)
					}
					if state.DidResume != (i > 0) {
						t.Errorf("connection %d: resumed: %t", i, state.DidResume)
					}
				}
			})
		}
	}
}

func TestHandshakeEndsWithItsContext(t *testing.T) {
	defer goleak.VerifyNone(t)
	a := newTestAuthority(t)
	_, far := pipe(t) // a client that sends nothing
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if conn, err := a.Handshake(ctx, far, "a.test", 443); !errors.Is(err, context.DeadlineExceeded) || conn != nil {
		t.Errorf("Handshake = %v, %v", conn, err)
	}
}

func TestCertPEMIsACopy(t *testing.T) {
	t.Parallel()
	a := newTestAuthority(t)
	clear(a.CertPEM())
	if a.CertPEM()[0] != '-' {
		t.Error("a caller can change it")
	}
}

// BenchmarkHandshake includes both sides and the client's verification.
func BenchmarkHandshake(b *testing.B) {
	a := newTestAuthority(b)
	for name, cache := range map[string]tls.ClientSessionCache{"full": nil, "resumed": tls.NewLRUClientSessionCache(1)} {
		b.Run(name, func(b *testing.B) {
			config := clientConfig(a, "www.example.test")
			config.ClientSessionCache = cache
			b.ReportAllocs()
			for b.Loop() {
				near, far := pipe(b) // included in the time
				handshakeOnce(b, a, near, far, config)
				near.Close()
				far.Close()
			}
		})
	}
}

func handshakeOnce(b *testing.B, a *Authority, near, far net.Conn, config *tls.Config) {
	ends := make(chan error, 1)
	go func() {
		client := tls.Client(near, config)
		_, err := io.ReadFull(client, make([]byte, 1))
		ends <- err
	}()
	server, err := a.Handshake(b.Context(), far, "www.example.test", 443)
	if err == nil {
		_, err = server.Write([]byte("x"))
	}
	if err = errors.Join(err, <-ends); err != nil {
		b.Fatal(err)
	}
}
