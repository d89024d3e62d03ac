package proxy_test

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"robotsproxy/policy"
	"robotsproxy/policy/pace"
	"robotsproxy/proxy"
	"robotsproxy/robots/testkit"
)

// fewSlots limits a host to n concurrent requests and allows a short wait.
func fewSlots(n int) pace.Limits {
	return pace.Limits{PerSecond: 1e6, Burst: 1e6, MaxConcurrent: n, MaxWait: 8 * time.Second, MaxQueue: 9}
}

// endless is an origin with a page that never ends and an upload that is answered when it is complete.
func endless(t *testing.T) *site {
	return serve(t, false, "", func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/endless":
			for part := make([]byte, 64<<10); ; {
				if _, err := w.Write(part); err != nil {
					return
				}
			}
		case "/upload":
			io.Copy(io.Discard, r.Body)
		}
	})
}

// twoClients are the setup of a rig with limits, in which elsewhere is not the same client as others.
func twoClients(limits pace.Limits) setup {
	other := policy.Client{Name: "elsewhere", Networks: []netip.Prefix{netip.MustParsePrefix("127.0.0.2/32")}}
	return setup{limits: limits, clients: []policy.Client{other}, open: true}
}

// elsewhere returns a client at another address.
func (r *rig) elsewhere() *http.Client {
	c := r.client(false)
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}
	c.Transport.(*http.Transport).DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
		return dialer.DialContext(ctx, network, addr)
	}
	return c
}

// TestConnectionsOfLoopback checks that the connections from all loopback addresses count together, but not those of a
// client with a name.
func TestConnectionsOfLoopback(t *testing.T) {
	t.Parallel()
	origin := serve(t, false, "", hello)
	s := twoClients(pace.Limits{})
	s.change = func(o *proxy.Options) { o.MaxConnsPerClient = 2 }
	r := start(t, s)
	for _, c := range []struct {
		address byte
		status  int
	}{{3, http.StatusOK}, {4, http.StatusOK}, {5, http.StatusTooManyRequests}, {1, http.StatusTooManyRequests}, {2, http.StatusOK}, {2, http.StatusOK}} {
		conn, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, c.address)}}).Dial("tcp", r.url.Host)
		testkit.Must(t, err)
		defer conn.Close()
		_, err = io.WriteString(conn, "GET "+origin.URL+"/page HTTP/1.1\r\nHost: x\r\n\r\n")
		testkit.Must(t, err)
		if resp, err := http.ReadResponse(bufio.NewReader(conn), nil); err != nil || resp.StatusCode != c.status {
			t.Errorf("127.0.0.%d: %v %v, want %d", c.address, resp, err, c.status)
		}
	}
	if rec := r.records.of(t, policy.ReasonLimit); rec.Request.Client != "127.0.0.5" {
		t.Errorf("recorded as %s", rec.Request.Client)
	}
}

// holds sends a request and reads only the head of the response.
func (r *rig) holds(raw string) (net.Conn, *bufio.Reader) {
	r.t.Helper()
	c, br := r.dial()
	_, err := io.WriteString(c, raw)
	testkit.Must(r.t, err)
	return c, br
}

// TestSlowReadersOfOneClient checks that a client that holds all slots of a host does not block another.
func TestSlowReadersOfOneClient(t *testing.T) {
	testkit.Long(t, realClock)
	t.Parallel()
	for _, slots := range []int{1, 2} {
		origin := endless(t)
		r := start(t, twoClients(fewSlots(slots)))
		var readers []*bufio.Reader
		for range slots {
			_, br := r.holds("GET " + origin.URL + "/endless HTTP/1.1\r\nHost: x\r\n\r\n")
			_, err := http.ReadResponse(br, nil)
			testkit.Must(t, err)
			readers = append(readers, br)
		}
		if resp, _, err := get(r.elsewhere(), origin.URL+"/page"); err != nil || resp.StatusCode != http.StatusOK {
			t.Fatalf("%d slots: another client is answered %v, %v", slots, resp, err)
		}
		for _, br := range readers {
			if _, err := io.CopyN(io.Discard, br, 16<<20); err != nil { // more than the buffers on both sides hold
				t.Errorf("%d slots: a transfer does not continue: %v", slots, err)
			}
		}
	}
}

// TestSlowUploadWhileOthersWait checks that the upload is answered 408 and that its record gives the reason.
func TestSlowUploadWhileOthersWait(t *testing.T) {
	testkit.Long(t, realClock)
	t.Parallel()
	origin := endless(t)
	r := start(t, twoClients(fewSlots(1)))
	c, br := r.holds("POST " + origin.URL + "/upload HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n")
	go drip(c, strings.Repeat("x", 10_000))
	testkit.Eventually(t, "the upload arrives", func() bool { return slices.Contains(origin.paths(), "/upload") })
	if resp, _, err := get(r.elsewhere(), origin.URL+"/page"); err != nil || resp.StatusCode != http.StatusOK {
		t.Errorf("another client is answered %v, %v", resp, err)
	}
	resp, err := http.ReadResponse(br, nil)
	testkit.Must(t, err)
	if resp.StatusCode != http.StatusRequestTimeout || !strings.Contains(resp.Header.Get("Proxy-Status"), "http_request_error") {
		t.Errorf("the upload is answered %s, %q", resp.Status, resp.Header.Get("Proxy-Status"))
	}
	for n := 1; n <= 2; n++ {
		rec := r.records.last(t, n)
		if slow := rec.Request.Method == http.MethodPost; slow != (rec.Err != nil) || slow != (rec.Status == http.StatusRequestTimeout) || rec.Decision.Verdict != policy.Allow {
			t.Errorf("record: %+v", rec)
		} else if slow && !strings.Contains(rec.Err.Error(), "too slow while others waited") {
			t.Errorf("the record says %v", rec.Err)
		}
	}
}

// remotes is a listener whose connections have these remote addresses, in turn.
type remotes struct {
	net.Listener
	addrs []string
}

func (l *remotes) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	addr := net.TCPAddrFromAddrPort(netip.MustParseAddrPort(l.addrs[0]))
	l.addrs = l.addrs[1:]
	return addressedConn{c, addr}, nil
}

type addressedConn struct {
	net.Conn
	addr net.Addr
}

func (c addressedConn) RemoteAddr() net.Addr { return c.addr }

// TestClientsOfOneNetwork checks that an IPv6 /56 network counts as one client and is recorded by address.
func TestClientsOfOneNetwork(t *testing.T) {
	testkit.Long(t, realClock)
	t.Parallel()
	origin := endless(t)
	limits := fewSlots(1)
	limits.MaxWait = 2 * time.Second
	statuses := []int{http.StatusOK, http.StatusTooManyRequests, http.StatusOK}
	r := start(t, setup{limits: limits, listen: func(l net.Listener) net.Listener {
		return &remotes{l, []string{"[2001:db8:1:2::1]:1000", "[2001:db8:1:ff:ffff::9]:1000", "[2001:db8:1:100::1]:1000"}}
	}})
	for i, path := range []string{"/endless", "/page", "/page"} {
		// The first client does not read the body.
		resp := r.send("GET " + origin.URL + path + " HTTP/1.1\r\nHost: x\r\nUser-Agent: FooBot/1.0\r\n\r\n")
		if resp.StatusCode != statuses[i] {
			t.Errorf("client %d: %s, want %d", i, resp.Status, statuses[i])
		}
	}
	if rec := r.records.last(t, 2); rec.Request.Client != "2001:db8:1:100::1" {
		t.Errorf("recorded as %s", rec.Request.Client)
	}
}
