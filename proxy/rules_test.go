package proxy_test

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"io"
	"math/big"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"robotsproxy/policy"
	"robotsproxy/policy/pace"
	"robotsproxy/proxy"
	"robotsproxy/proxy/egress"
	"robotsproxy/proxy/mitm"
	"robotsproxy/robots/testkit"
)

// ruled is a rig whose Rules can be replaced.
type ruled struct {
	*rig
	rules         proxy.Rules
	policyOptions policy.Options
}

func startRuled(t testing.TB, s setup) *ruled {
	t.Helper()
	r := &ruled{}
	policyOptions, change := s.policyOptions, s.change
	s.policyOptions = func(o *policy.Options) {
		if policyOptions != nil {
			policyOptions(o)
		}
		r.policyOptions = *o
	}
	s.change = func(o *proxy.Options) {
		if change != nil {
			change(o)
		}
		r.rules = o.Rules
	}
	r.rig = start(t, s)
	return r
}

// use replaces the Rules after change has modified them and the policy options. The channel is closed
// when the previous Rules are no longer in use.
func (r *ruled) use(change func(*proxy.Rules, *policy.Options)) (over <-chan struct{}) {
	r.t.Helper()
	next, policyOptions := r.rules, r.policyOptions
	change(&next, &policyOptions)
	var err error
	next.Engine, err = r.rules.Engine.Renew(policyOptions)
	testkit.Must(r.t, err)
	over, err = r.handler.Use(next)
	testkit.Must(r.t, err)
	r.rules, r.policyOptions = next, policyOptions
	return over
}

func deny(_ *proxy.Rules, o *policy.Options) {
	o.Hosts = []policy.Host{{Match: "*", Robots: policy.Deny, Reason: closed}}
}

// TestUseAppliesToTheNextRequest covers persistent connections and tunnels too.
func TestUseAppliesToTheNextRequest(t *testing.T) {
	t.Parallel()
	for _, route := range routes {
		t.Run(route.name, func(t *testing.T) {
			origin := route.serve(t, rules, hello)
			r := startRuled(t, setup{front: route.front, origins: []*httptest.Server{origin.Server}})
			c := route.client(r.rig)
			ask := func() int {
				resp, _, err := get(c, origin.URL+"/page")
				testkit.Must(t, err)
				return resp.StatusCode
			}
			if got := ask(); got != 200 {
				t.Fatal(got)
			}
			over := r.use(deny)
			if got := ask(); got != 403 {
				t.Errorf("status %d by the new Rules", got)
			}
			<-over // no request is in flight
			r.use(func(_ *proxy.Rules, o *policy.Options) { o.Hosts = nil })
			if got := ask(); got != 200 {
				t.Errorf("status %d by the previous Rules", got)
			}
			if n := len(origin.paths()); n != 3 {
				t.Errorf("the origin saw %q", origin.paths())
			}
		})
	}
}

// TestUseKeepsRequestsInFlight checks that requests finish under the Rules they started with.
func TestUseKeepsRequestsInFlight(t *testing.T) {
	t.Parallel()
	begun, release := make(chan struct{}), make(chan struct{})
	origin := serve(t, false, rules, func(w http.ResponseWriter, q *http.Request) {
		if q.URL.Path == "/held" {
			io.WriteString(w, "first ")
			w.(http.Flusher).Flush()
			close(begun)
			<-release
		}
		io.WriteString(w, "as "+q.UserAgent())
	})
	r := startRuled(t, setup{
		limits: pace.Limits{PerSecond: 1e6, Burst: 10, MaxConcurrent: 1, MaxWait: 1 << 40, MaxQueue: 10},
		change: func(o *proxy.Options) { o.UserAgent = "Before/1" },
	})
	var asked sync.WaitGroup
	ask := func(path, want string) {
		asked.Go(func() {
			if _, body, err := get(r.client(false), origin.URL+path); err != nil || body != want {
				t.Errorf("%s: %q, %v", path, body, err)
			}
		})
	}
	ask("/held", "first as Before/1")
	<-begun
	ask("/waits", "as Before/1")
	testkit.Eventually(t, "a request waits", func() bool { return waiting(r) == 1 })
	over := r.use(func(u *proxy.Rules, o *policy.Options) {
		u.UserAgent = "After/1"
		deny(u, o)
	})
	later := r.use(deny) // no request has started under the Rules in between
	for _, c := range []<-chan struct{}{over, later} {
		select {
		case <-c:
			t.Error("the previous Rules are reported unused")
		default:
		}
	}
	close(release)
	asked.Wait()
	<-over
	<-later
	if resp, _, err := get(r.client(false), origin.URL+"/"); err != nil || resp.StatusCode != 403 {
		t.Errorf("%v %v", resp, err)
	}
}

// waiting returns the number of requests that wait in the Pacer.
func waiting(r *ruled) int { return r.pacer.Stats().Waiting }

// TestUseAnotherPassword checks that a client whose password has changed must log in again, even on
// persistent connections and in tunnels. Other clients need not.
func TestUseAnotherPassword(t *testing.T) {
	t.Parallel()
	for _, route := range routes {
		t.Run(route.name, func(t *testing.T) {
			origin := route.serve(t, rules, hello)
			old := hashOf(t, secret)
			r := startRuled(t, setup{origins: []*httptest.Server{origin.Server}, clients: []policy.Client{{Name: "lab-a", PasswordHash: old}}})
			r.url.User = url.UserPassword("lab-a", secret)
			c := r.client(route.h2)
			ask := func(want int, client string) {
				t.Helper()
				n := len(r.records.all)
				resp, _, err := get(c, origin.URL+"/page")
				switch {
				case err != nil && want == 407 && strings.Contains(err.Error(), "Proxy Authentication"): // for a CONNECT
				case err != nil || resp.StatusCode != want:
					t.Fatalf("%v, %v, want %d", resp, err, want)
				}
				if rec := r.records.last(t, n+1); rec.Request.Client != client {
					t.Errorf("client %q, want %q", rec.Request.Client, client)
				}
			}
			ask(200, "lab-a")
			r.use(func(_ *proxy.Rules, o *policy.Options) { // another option of the client
				o.Clients = []policy.Client{{Name: "lab-a", PasswordHash: old, Quota: policy.Quota{Requests: 100}}}
			})
			ask(200, "lab-a")
			r.use(func(_ *proxy.Rules, o *policy.Options) {
				o.Clients = []policy.Client{{Name: "lab-a", PasswordHash: hashOf(t, "another")}}
			})
			ask(407, "127.0.0.1")
			ask(407, "127.0.0.1") // the tunnel has ended, so a CONNECT is refused
			r.use(func(_ *proxy.Rules, o *policy.Options) {
				o.Clients = []policy.Client{{Name: "lab-b", Networks: here}}
			})
			r.url.User = nil
			c = r.client(route.h2)
			ask(200, "lab-b")
			r.use(func(_ *proxy.Rules, o *policy.Options) {
				o.Clients = []policy.Client{{Name: "lab-c", Networks: here}}
			})
			ask(200, "lab-c")
			r.use(func(_ *proxy.Rules, o *policy.Options) {
				o.Clients = []policy.Client{{Name: "lab-c", Networks: elsewhere}}
			})
			ask(403, "127.0.0.1")
		})
	}
}

func selfSigned(t *testing.T, name string) tls.Certificate {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	testkit.Must(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{name}, NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	testkit.Must(t, err)
	leaf, err := x509.ParseCertificate(der)
	testkit.Must(t, err)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}
}

// TestUseAnotherCertificate checks that only new connections get the new certificate.
func TestUseAnotherCertificate(t *testing.T) {
	t.Parallel()
	origin := serve(t, false, rules, hello)
	r := startRuled(t, setup{front: overTLS})
	kept, br := r.dial()
	ask := func() {
		t.Helper()
		io.WriteString(kept, "GET "+origin.URL+"/page HTTP/1.1\r\nHost: x\r\n\r\n")
		resp, err := http.ReadResponse(br, nil)
		testkit.Must(t, err)
		io.Copy(io.Discard, resp.Body)
		if resp.StatusCode != 200 {
			t.Error(resp.Status)
		}
	}
	ask()
	before := kept.(*tls.Conn).ConnectionState().PeerCertificates[0]
	other := selfSigned(t, "example.com")
	r.use(func(u *proxy.Rules, _ *policy.Options) {
		u.TLS = &tls.Config{Certificates: []tls.Certificate{other}}
	})
	ask()
	r.roots.AddCert(other.Leaf)
	fresh, _ := r.dial()
	testkit.Must(t, fresh.(*tls.Conn).Handshake())
	if after := fresh.(*tls.Conn).ConnectionState().PeerCertificates[0]; after.Equal(before) || !after.Equal(other.Leaf) {
		t.Error("the previous certificate is used")
	}
	ask()
}

// TestUseAnotherAuthority checks that new tunnels use the new CA and existing tunnels continue.
func TestUseAnotherAuthority(t *testing.T) {
	t.Parallel()
	origin := serve(t, true, rules, hello)
	r := startRuled(t, setup{origins: []*httptest.Server{origin.Server}})
	kept := r.tunnel(origin.host(), "http/1.1")
	br := bufio.NewReader(kept)
	ask := func() {
		t.Helper()
		io.WriteString(kept, "GET /page HTTP/1.1\r\nHost: "+origin.host()+"\r\n\r\n")
		resp, err := http.ReadResponse(br, nil)
		testkit.Must(t, err)
		io.Copy(io.Discard, resp.Body)
	}
	ask()
	authority, err := mitm.LoadOrCreate(t.TempDir())
	testkit.Must(t, err)
	r.use(func(u *proxy.Rules, _ *policy.Options) { u.Authority = authority })
	ask()
	r.roots.AddCert(authority.Certificate())
	chain := r.tunnel(origin.host()).ConnectionState().PeerCertificates
	if testkit.Must(t, chain[0].CheckSignatureFrom(authority.Certificate())); len(chain) != 2 {
		t.Errorf("a chain of %d", len(chain))
	}
	ask()
}

// TestUseConnectionLimits: a raised limit admits a waiting connection, a lowered one closes no connection.
func TestUseConnectionLimits(t *testing.T) {
	t.Parallel()
	origin := serve(t, false, rules, hello)
	r := startRuled(t, setup{change: func(o *proxy.Options) { o.MaxConns, o.MaxConnsPerClient = 1, 1 }})
	ask := func(c io.ReadWriter) int {
		io.WriteString(c, "GET "+origin.URL+"/page HTTP/1.1\r\nHost: x\r\n\r\n")
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		testkit.Must(t, err)
		io.Copy(io.Discard, resp.Body)
		return resp.StatusCode
	}
	first, _ := r.dial()
	if got := ask(first); got != 200 {
		t.Fatal(got)
	}
	second, _ := r.dial() // in the listen backlog
	r.use(func(u *proxy.Rules, _ *policy.Options) { u.MaxConns, u.MaxConnsPerClient = 2, 2 })
	if got := ask(second); got != 200 {
		t.Error(got)
	}
	r.use(func(u *proxy.Rules, _ *policy.Options) { u.MaxConns, u.MaxConnsPerClient = 10, 1 })
	third, _ := r.dial()
	if got := ask(third); got != 429 {
		t.Errorf("over the limit per client: %d", got)
	}
	for _, c := range []io.ReadWriter{first, second} {
		if got := ask(c); got != 200 {
			t.Errorf("an open connection: %d", got)
		}
	}
}

// TestUseAnotherEgressClient checks that the proxy detects loops through both egress clients, and that
// the previous client has no connections left once it is unused.
func TestUseAnotherEgressClient(t *testing.T) {
	t.Parallel()
	origin := serve(t, false, rules, hello)
	r := startRuled(t, setup{})
	_, _, err := get(r.client(false), origin.URL+"/page")
	testkit.Must(t, err)
	via := origin.arrived(1).Header.Get("Via")
	before := r.rules.Egress
	other, err := egress.New(egress.Options{AllowPrivate: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, Previous: before})
	testkit.Must(t, err)
	defer other.Close()
	over := r.use(func(u *proxy.Rules, _ *policy.Options) { u.Egress = other })
	before.CloseIdle()
	<-over
	before.Close()
	for _, c := range []struct {
		via  string
		want int
	}{{"", 200}, {"Via: " + via + "\r\n", 502}} {
		if resp := r.send("GET " + origin.URL + "/page HTTP/1.1\r\nHost: x\r\n" + c.via + "\r\n"); resp.StatusCode != c.want {
			t.Errorf("%q: %s", c.via, resp.Status)
		}
	}
	if got := origin.arrived(2).Header.Get("Via"); got != via {
		t.Errorf("Via %q, before %q", got, via)
	}
}

// TestUseRefuses checks that invalid Rules are rejected and the active ones stay.
func TestUseRefuses(t *testing.T) {
	t.Parallel()
	origin := serve(t, false, rules, hello)
	r := startRuled(t, setup{})
	stranger, err := egress.New(egress.Options{})
	testkit.Must(t, err)
	defer stranger.Close()
	for name, change := range map[string]func(*proxy.Rules){
		"no engine":                  func(u *proxy.Rules) { u.Engine = nil },
		"no authority":               func(u *proxy.Rules) { u.Authority = nil },
		"an unrelated egress client": func(u *proxy.Rules) { u.Egress = stranger },
		"TLS on a plain listener":    func(u *proxy.Rules) { u.TLS = &tls.Config{} },
		"a negative limit":           func(u *proxy.Rules) { u.MaxConns = -1 },
	} {
		next := r.rules
		next.UserAgent = "After/1"
		change(&next)
		if _, err := r.handler.Use(next); err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
	_, _, err = get(r.client(false), origin.URL+"/page")
	testkit.Must(t, err)
	if got := origin.arrived(1).Header.Get("User-Agent"); got == "After/1" {
		t.Error("half of refused Rules are active")
	}
}
