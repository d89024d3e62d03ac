package mitm

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"slices"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// plaintextAlerts is a connection on which a TLS 1.3 client sends its alerts unencrypted, like OpenSSL.
type plaintextAlerts struct{ net.Conn }

func (c plaintextAlerts) Write(b []byte) (int, error) {
	if b[0] == 23 { // encrypted record
		_, err := c.Conn.Write([]byte{21, 3, 3, 0, 2, 2, 48})
		return len(b), err
	}
	return c.Conn.Write(b)
}

// TestFaults checks that each kind of failed handshake is counted under its own name.
func TestFaults(t *testing.T) {
	defer goleak.VerifyNone(t)
	offer := func(config *tls.Config) func(net.Conn) {
		return func(c net.Conn) { tls.Client(c, config).Handshake() }
	}
	for _, c := range []struct {
		name   string
		client func(net.Conn)
		want   Fault
	}{
		{"does not know the CA, TLS 1.3", offer(&tls.Config{RootCAs: x509.NewCertPool(), ServerName: "a.test"}), FaultUntrusted},
		{"does not know the CA, TLS 1.2", offer(&tls.Config{RootCAs: x509.NewCertPool(), ServerName: "a.test", MaxVersion: tls.VersionTLS12}), FaultUntrusted},
		{"does not know the CA, unencrypted alert", func(c net.Conn) {
			offer(&tls.Config{RootCAs: x509.NewCertPool(), ServerName: "a.test"})(plaintextAlerts{c})
		}, FaultUntrusted},
		{"disconnects", func(net.Conn) {}, FaultClosed},
		{"resets the connection", func(c net.Conn) { c.(*net.TCPConn).SetLinger(0) }, FaultClosed},
		{"disconnects within its ClientHello", func(c net.Conn) { c.Write([]byte{22, 3, 1, 2, 0, 1}) }, FaultClosed},
		{"is silent", func(c net.Conn) { io.Copy(io.Discard, c) }, FaultTimeout},
		{"speaks HTTP", func(c net.Conn) { io.WriteString(c, "GET / HTTP/1.1\r\n\r\n") }, FaultProtocol},
		{"has no version in common", offer(&tls.Config{InsecureSkipVerify: true, ServerName: "a.test", MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11}), FaultProtocol},
		{"names no host", offer(&tls.Config{InsecureSkipVerify: true}), FaultNoCertificate},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := newTestAuthority(t)
			near, far := pipe(t)
			gone := make(chan struct{})
			go func() {
				defer close(gone)
				defer near.Close()
				c.client(near)
			}()
			limit := 10 * time.Second
			if c.want == FaultTimeout {
				limit = 50 * time.Millisecond
			}
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			_, err := a.Handshake(ctx, far, "", 443)
			if err == nil {
				t.Fatal("the handshake succeeded")
			}
			far.Close()
			<-gone
			failed := a.Stats().Failed
			if len(failed) != len(allFaults) {
				t.Errorf("%d faults are reported, want all %d", len(failed), len(allFaults))
			}
			for fault, n := range failed {
				if want := map[bool]uint64{true: 1}[fault == c.want]; n != want {
					t.Errorf("%d times %s, want %d: %v", n, fault, want, err)
				}
			}
		})
	}
}

func TestStats(t *testing.T) {
	t.Parallel()
	a := newTestAuthority(t)
	for _, name := range []string{"a.test", "b.test", "a.test"} {
		if _, _, err := shake(t, a, name, clientConfig(a, name)); err != nil {
			t.Fatal(err)
		}
	}
	s := a.Stats()
	if s.Leaves != 2 || s.Minted != 2 || !s.NotAfter.Equal(a.Certificate().NotAfter) {
		t.Errorf("%+v", s)
	}
	for fault, n := range s.Failed {
		if n != 0 {
			t.Errorf("%d times %s", n, fault)
		}
	}
}

// TestFaultHosts: a host counts once, by the certificate's rejection if there was one, else by an unused
// tunnel, and the table is bounded.
func TestFaultHosts(t *testing.T) {
	rejection := &net.OpError{Op: "remote error", Err: tls.AlertError(48)}
	var f Faults
	for range 2 {
		f.addHost("c.test", FaultUnused)
		f.Add("c.test", io.EOF)
		f.addHost("b.test", FaultUnused)
		f.Add("b.test", io.EOF)
		f.Add("a.test", io.EOF)
		f.Add("b.test", rejection)
		f.Add("b.test", io.EOF)
		f.Add("", rejection)
	}
	if got := f.Hosts(FaultUntrusted); !slices.Equal(got, []string{"b.test"}) {
		t.Errorf("rejected for %q", got)
	}
	if got := f.Hosts(FaultUnused); !slices.Equal(got, []string{"c.test"}) {
		t.Errorf("unused for %q", got)
	}
	if got := f.Hosts(FaultClosed); !slices.Equal(got, []string{"a.test"}) {
		t.Errorf("closed for %q", got)
	}
	for i := range 2 * maxFaultHosts {
		f.Add(fmt.Sprintf("h%d.test", i), io.EOF)
	}
	if n := len(f.Hosts(FaultClosed)) + len(f.Hosts(FaultUntrusted)) + len(f.Hosts(FaultUnused)); n != maxFaultHosts {
		t.Errorf("%d hosts are known, want at most %d", n, maxFaultHosts)
	}
}
