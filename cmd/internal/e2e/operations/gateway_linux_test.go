package operations

import (
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"robotsproxy/cmd/internal/e2e"
	"robotsproxy/robots/testkit"
)

const (
	transparentPort = 8082
	crawlerUID      = 65533
)

// Addresses of the origin, and addresses of the gateway that the origin sees.
var (
	originAddrs  = []string{"10.77.2.2", "fd77:2::2"}
	gatewayAddrs = []string{"10.77.2.1", "fd77:2::1"}
)

// originHost connects this network namespace, the gateway, with the namespace origin.
const originHost = `
ip netns add origin; ip -n origin link set lo up
ip link add wan0 type veth peer name eth0 netns origin
ip addr add 10.77.2.1/24 dev wan0; ip addr add fd77:2::1/64 dev wan0 nodad; ip link set wan0 up
ip -n origin addr add 10.77.2.2/24 dev eth0; ip -n origin addr add fd77:2::2/64 dev eth0 nodad
ip -n origin link set eth0 up
ip -n origin route add default via 10.77.2.1; ip -n origin route add default via fd77:2::1
`

// crawlerHost connects the gateway with the network namespace crawler and makes it a router.
const crawlerHost = `
ip netns add crawler; ip -n crawler link set lo up
ip link add lan0 type veth peer name eth0 netns crawler
ip addr add 10.77.1.1/24 dev lan0; ip addr add fd77:1::1/64 dev lan0 nodad; ip link set lan0 up
ip -n crawler addr add 10.77.1.2/24 dev eth0; ip -n crawler addr add fd77:1::2/64 dev eth0 nodad
ip -n crawler link set eth0 up
ip -n crawler route add default via 10.77.1.1; ip -n crawler route add default via fd77:1::1
echo 1 > /proc/sys/net/ipv4/ip_forward; echo 1 > /proc/sys/net/ipv6/conf/all/forwarding
`

// TestRouter checks that crawlers behind a router reach an origin only through the proxy on it.
func TestRouter(t *testing.T) {
	t.Parallel()
	if !inside(t) {
		return
	}
	sh(t, originHost+crawlerHost)
	checkGateway(t, host("crawler"), "router.nft", map[string]string{"crawlers": `"lan0"`})
}

// TestHost checks that one user of a machine reaches an origin only through the proxy on it.
func TestHost(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("two users need root")
	}
	if !inside(t) {
		return
	}
	sh(t, originHost)
	checkGateway(t, user(crawlerUID), "host.nft", map[string]string{"crawler": fmt.Sprint(crawlerUID)})
}

// checkGateway applies rules and checks which destinations clients reach.
func checkGateway(t *testing.T, crawler place, rules string, definitions map[string]string) {
	o, rest := newOrigin(t), new(sink)
	for _, addr := range originAddrs {
		for _, port := range otherPorts {
			rest.listen(t, host("origin"), net.JoinHostPort(addr, port))
		}
		c, err := dial(crawler, "tcp", net.JoinHostPort(addr, "25")) // without the rules, the connection succeeds
		testkit.Must(t, err)
		c.Close()
	}
	testkit.Eventually(t, "connections arrive", func() bool { return len(rest.all()) == len(originAddrs) })

	p := e2e.StartProxy(t, e2e.Unpaced.With(e2e.Settings{
		"listen_transparent": fmt.Sprintf("[::]:%d", transparentPort), "open": true,
		"egress.allow_private": []string{"10.77.2.0/24", "fd77:2::/64"},
	}))
	definitions["proxy_port"] = fmt.Sprint(transparentPort)
	applyRules(t, rules, definitions)
	for _, addr := range originAddrs {
		for _, scheme := range []string{"http", "https", "h2"} {
			o.checkPages(t, p, crawler, scheme, addr)
		}
		tryOtherPorts(t, crawler, addr)
	}
	if got := rest.all()[len(originAddrs):]; len(got) > 0 {
		t.Errorf("arrived at the origin: %q", got)
	}
	if peers := o.peers(); slices.ContainsFunc(peers, func(peer string) bool { return !slices.Contains(gatewayAddrs, peer) }) {
		t.Errorf("connections to the origin came from %v", peers)
	}
	for _, r := range e2e.ReadAudit(t, p.Audit) {
		if r.Via != "transparent" {
			t.Errorf("record without via: %+v", r)
		}
	}
}

// otherPorts are ports of the origin without HTTP or TLS. The proxy may not use some of them.
var otherPorts = []string{"25", "53", "8022"}

// tryOtherPorts sends data that is neither HTTP nor TLS.
func tryOtherPorts(t *testing.T, crawler place, addr string) {
	for _, port := range otherPorts {
		c, err := dial(crawler, "tcp", net.JoinHostPort(addr, port))
		if err != nil {
			continue // it was already reset
		}
		testkit.Must(t, c.SetDeadline(time.Now().Add(testkit.Patience)))
		c.Write([]byte("SSH-2.0-test\r\n")) // may be reset
		if n, err := c.Read(make([]byte, 100)); err == nil {
			t.Errorf("port %s of %s answered %d bytes", port, addr, n)
		}
		c.Close()
	}
	for _, port := range append(otherPorts, "443") {
		if port == "53" {
			continue // on one machine, the rules let DNS pass
		}
		c, err := dial(crawler, "udp", net.JoinHostPort(addr, port))
		testkit.Must(t, err)
		for range 3 {
			c.Write([]byte("a packet")) // is rejected
		}
		c.Close()
	}
}

// An origin serves origin.test in its network namespace. It records connections and requests.
type origin struct {
	mu       sync.Mutex
	from     []string
	requests []string
}

func newOrigin(t *testing.T) *origin {
	const name = "origin.test"
	o := new(origin)
	var addrs []netip.Addr
	certificate := e2e.Trusted(t).Leaf(t, name, time.Now().Add(24*time.Hour))
	server := &http.Server{Handler: o, ErrorLog: log.New(io.Discard, "", 0), ConnState: o.connected}
	t.Cleanup(func() { server.Close() })
	for _, addr := range originAddrs {
		addrs = append(addrs, netip.MustParseAddr(addr))
		go server.Serve(listen(t, host("origin"), net.JoinHostPort(addr, "80")))
		secure := &tls.Config{Certificates: []tls.Certificate{certificate}}
		go server.Serve(tls.NewListener(listen(t, host("origin"), net.JoinHostPort(addr, "443")), secure))
	}
	e2e.Names.Point(name, addrs...)
	return o
}

func (o *origin) connected(c net.Conn, state http.ConnState) {
	if state == http.StateNew {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.from = append(o.from, c.RemoteAddr().(*net.TCPAddr).AddrPort().Addr().Unmap().String())
	}
}

// peers returns the addresses from which connections came.
func (o *origin) peers() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.from)
}

func (o *origin) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	o.mu.Lock()
	o.requests = append(o.requests, r.URL.Path)
	o.mu.Unlock()
	if r.URL.Path == "/robots.txt" {
		io.WriteString(w, e2e.Forbidding)
	}
}

// checkPages requests an allowed and a disallowed page.
func (o *origin) checkPages(t *testing.T, p *e2e.Proxy, crawler place, scheme, addr string) {
	c := client(t, p, crawler, addr, scheme == "h2")
	if scheme == "h2" {
		scheme = "https"
	}
	for path, want := range map[string]int{"/page": http.StatusOK, "/no": http.StatusForbidden} {
		if r := e2e.Get(t, c, scheme+"://origin.test"+path); r.Status != want {
			t.Errorf("%s://origin.test%s at %s: status %d, want %d", scheme, path, addr, r.Status, want)
		}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if slices.Contains(o.requests, "/no") || !slices.Contains(o.requests, "/page") {
		t.Errorf("requests at the origin: %q", o.requests)
	}
	o.requests = nil
}
