package e2e

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"runtime"
	"strings"
	"testing"
	"time"

	"robotsproxy/robots/testkit"

	"github.com/google/go-cmp/cmp"
	"github.com/miekg/dns"
)

// straight returns a client that connects to an origin without a proxy.
func straight(t *testing.T, o *Origin) *http.Client {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(Trusted(t).PEM)
	addr := o.Addr()
	tr := &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: roots, ServerName: o.Name},
		DialContext: func(ctx context.Context, _, hostport string) (net.Conn, error) {
			_, port, _ := net.SplitHostPort(hostport)
			return new(net.Dialer).DialContext(ctx, "tcp", net.JoinHostPort(addr, port))
		},
	}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, Timeout: testkit.Patience}
}

func TestHarnessOriginLogsWhatArrives(t *testing.T) {
	t.Parallel()
	body := RandomBytes(64 << 10)
	o := NewOrigin(t, "harness", "User-agent: *\nDisallow:\n")
	o.Handle("/page", SizedPage(body))
	client := straight(t, o)
	for _, scheme := range []string{"http", "https"} {
		before := time.Now()
		if got := Get(t, client, o.URL(scheme, "/page?q=1"), "X-Test", "yes"); !bytes.Equal(got.Body, body) {
			t.Errorf("%s: %d bytes, want %d", scheme, len(got.Body), len(body))
		}
		if got := Get(t, client, o.URL(scheme, "/robots.txt")); string(got.Body) != "User-agent: *\nDisallow:\n" {
			t.Errorf("robots.txt is %q", got.Body)
		}
		hits := o.Arrivals(scheme)
		if len(hits) != 2 || len(o.Pages(scheme)) != 1 {
			t.Fatalf("%s: %d arrivals, %d of pages", scheme, len(hits), len(o.Pages(scheme)))
		}
		h := hits[0]
		got := []string{h.Method, h.Path, h.Host, h.Header.Get("X-Test")}
		if diff := cmp.Diff([]string{"GET", "/page?q=1", o.Hostport(scheme), "yes"}, got); diff != "" {
			t.Errorf("%s: logged (-want +got):\n%s", scheme, diff)
		}
		if h.At.Before(before.Add(-time.Millisecond)) || h.At.After(time.Now()) {
			t.Errorf("%s: arrived at %v, asked at %v", scheme, h.At, before)
		}
	}
	if o.Connections() != 2 {
		t.Errorf("%d connections, want 2", o.Connections())
	}
}

// A busy origin reads requests late, so the log has the kernel's time of arrival.
func TestHarnessArrivalIsTheKernels(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("other kernels are not asked for the time of arrival")
	}
	lc := net.ListenConfig{Control: stampNew}
	l, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	server, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	exchange := func() (before, at, sent time.Time) {
		before = time.Now()
		io.WriteString(c, "GET ")
		sent = time.Now()
		testkit.Eventually(t, "the origin is late", func() bool { return time.Since(sent) > 50*time.Millisecond })
		n, at, err := readStamped(server.(*net.TCPConn), make([]byte, 16))
		if n != 4 || err != nil {
			t.Fatalf("read %d bytes, %v", n, err)
		}
		return before, at, sent
	}
	// Linux starts to stamp segments some time after the first socket asks for stamps.
	testkit.Eventually(t, "segments are stamped", func() bool {
		_, at, sent := exchange()
		return !at.After(sent.Add(time.Millisecond))
	})
	before, at, sent := exchange()
	if at.Before(before.Add(-time.Millisecond)) || at.After(sent.Add(time.Millisecond)) {
		t.Errorf("arrived %v after it was sent, and was read %v after", at.Sub(before), time.Since(sent))
	}
}

func TestHarnessNames(t *testing.T) {
	t.Parallel()
	name, addr := NewName("names")
	Names.Point("both.test", netip.MustParseAddr("127.9.9.9"), netip.MustParseAddr("::1"))
	for _, network := range []string{"udp", "tcp"} {
		for _, c := range []struct {
			name  string
			qtype uint16
			rcode int
			want  []string
		}{
			{name, dns.TypeA, dns.RcodeSuccess, []string{addr.String()}},
			{strings.ToUpper(name), dns.TypeA, dns.RcodeSuccess, []string{addr.String()}},
			{name, dns.TypeAAAA, dns.RcodeSuccess, nil},
			{"both.test", dns.TypeAAAA, dns.RcodeSuccess, []string{"::1"}},
			{"nowhere.test", dns.TypeA, dns.RcodeNameError, nil},
		} {
			query := new(dns.Msg).SetQuestion(dns.Fqdn(c.name), c.qtype)
			reply, _, err := (&dns.Client{Net: network}).Exchange(query, Names.addr())
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, rr := range reply.Answer {
				got = append(got, rr.String()[strings.LastIndex(rr.String(), "\t")+1:])
			}
			if diff := cmp.Diff(c.want, got); diff != "" || reply.Rcode != c.rcode {
				t.Errorf("%s %s %d: rcode %d, (-want +got):\n%s", network, c.name, c.qtype, reply.Rcode, diff)
			}
		}
	}
}

func TestHarnessSettings(t *testing.T) {
	t.Parallel()
	got := Settings{
		"listen": "127.0.0.1:1", "pace.burst": 3, "pace.max_wait": "1s", "mode": nil, "egress.allow_private": []string{"127.0.0.0/8"},
	}.YAML(t)
	want := "egress:\n  allow_private: [\"127.0.0.0/8\"]\nlisten: \"127.0.0.1:1\"\npace:\n  burst: 3\n  max_wait: \"1s\"\n"
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestHarnessEnvironmentIsClean(t *testing.T) {
	for _, name := range []string{"HTTPS_PROXY", "no_proxy", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "NODE_EXTRA_CA_CERTS", "NODE_USE_ENV_PROXY", "WGETRC"} {
		t.Setenv(name, "leaked")
	}
	t.Setenv("E2E_HARMLESS", "kept")
	env := strings.Join(CleanEnv("ALL_PROXY=own"), "\n")
	if strings.Contains(env, "leaked") || !strings.Contains(env, "kept") || !strings.Contains(env, "ALL_PROXY=own") {
		t.Errorf("environment of children:\n%s", env)
	}
}

// Each peer must report what it fetched, here without a proxy.
func TestHarnessPeers(t *testing.T) {
	t.Parallel()
	o := NewOrigin(t, "peers", "")
	body := RandomBytes(1 << 10)
	o.Handle("/page", SizedPage(body))
	o.Handle("/denied", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Why", "because")
		w.WriteHeader(http.StatusForbidden)
		io.WriteString(w, "no\n")
	})
	base := fmt.Sprintf("http://%s:%d", o.Addr(), o.Ports["http"])
	for _, p := range Peers {
		t.Run(p.Name, func(t *testing.T) {
			argv := p.Need(t)
			got := p.Fetch(t, argv, CleanEnv(), []string{base + "/page", base + "/denied"})
			if got[0].Status != http.StatusOK || !bytes.Equal(got[0].Body, body) {
				t.Errorf("page: %v", got[0])
			}
			if got[1].Status != http.StatusForbidden || string(got[1].Body) != "no\n" || got[1].Header.Get("X-Why") != "because" {
				t.Errorf("denied: %v, body %q", got[1], got[1].Body)
			}
		})
	}
}

func TestMain(m *testing.M) { Main(m) }

// The garbage collector closes a listener that nobody refers to. Two test processes would then
// take ports of one block.
func TestHarnessKeepsItsPortBlock(t *testing.T) {
	first := FreePort(t) / blockPorts * blockPorts
	for range 2 {
		finalized := make(chan struct{})
		runtime.SetFinalizer(&struct{ kept [64]byte }{}, func(any) { close(finalized) })
		runtime.GC()
		testkit.Within(t, "the finalizers run", finalized)
	}
	if l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", first)); err == nil {
		l.Close()
		t.Error("the first port of the block is free")
	}
}

func TestHarnessDeadEnd(t *testing.T) {
	t.Parallel()
	at := testkit.DeadEnd(t, "127.0.0.1")
	if c, err := net.Dial("tcp", at); err == nil {
		c.Close()
		t.Errorf("%s takes a connection", at)
	}
	if l, err := net.Listen("tcp", at); err == nil {
		l.Close()
		t.Errorf("%s is free for another program", at)
	}
}
