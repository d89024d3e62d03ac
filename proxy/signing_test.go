package proxy_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"testing"
	"time"

	"robotsproxy/policy"
	"robotsproxy/proxy"
	"robotsproxy/proxy/signature"
	"robotsproxy/robots/testkit"
)

// newSigner returns a Signer and the key that verifies its signatures.
func newSigner(t testing.TB, agent string) (*signature.Signer, signature.PublicKey) {
	t.Helper()
	key := signature.NewKey()
	s, err := signature.New(signature.Options{Key: key, Agent: agent, Valid: time.Minute})
	testkit.Must(t, err)
	return s, key.Public()
}

// nonces returns the nonces of all requests that a site has received, each with a valid signature.
func (s *site) nonces(t *testing.T, key signature.PublicKey) (all []string) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.seen {
		found, err := signature.Verify(r, []signature.PublicKey{key}, time.Now())
		if err != nil {
			t.Errorf("%s %s: %v", r.Method, r.URL, err)
		}
		all = append(all, found.Nonce)
	}
	return all
}

func TestRequestsAreSigned(t *testing.T) {
	for _, route := range routes {
		for _, monitor := range []bool{false, true} {
			t.Run(route.name, func(t *testing.T) {
				t.Parallel()
				origin := route.serve(t, rules, func(http.ResponseWriter, *http.Request) {})
				by, key := newSigner(t, "https://bot.example/keys")
				r := start(t, setup{origins: []*httptest.Server{origin.Server}, front: route.front, change: func(o *proxy.Options) {
					o.Signers, o.Monitor = proxy.Signers{Default: by, PlainHTTP: true}, monitor
				}})
				c := route.client(r)
				for range 3 {
					resp, _, err := get(c, origin.URL+"/page")
					if err != nil || resp.StatusCode != http.StatusOK {
						t.Fatalf("%v, %v", resp, err)
					}
				}
				nonces := origin.nonces(t, key)
				slices.Sort(nonces)
				if len(nonces) != 4 || len(slices.Compact(nonces)) != 4 { // robots.txt, and three pages
					t.Errorf("%d nonces, want 4 that differ", len(nonces))
				}
				if rec := r.records.last(t, 1); rec.Signed != by.KeyID() || rec.Unsigned != "" {
					t.Errorf("recorded: signed %q, unsigned %q", rec.Signed, rec.Unsigned)
				}
			})
		}
	}
}

// TestTraceIsRefusedWhileSigning: the response would repeat the signature of the proxy (RFC 9110 9.3.8).
func TestTraceIsRefusedWhileSigning(t *testing.T) {
	t.Parallel()
	by, _ := newSigner(t, "https://bot.example/keys")
	origin := serve(t, false, "", hello)
	for _, c := range []struct {
		signers proxy.Signers
		want    int
	}{{proxy.Signers{Default: by, PlainHTTP: true}, http.StatusForbidden}, {proxy.Signers{Default: by}, http.StatusOK}, {proxy.Signers{}, http.StatusOK}} {
		r := start(t, setup{change: func(o *proxy.Options) { o.Signers = c.signers }})
		for _, method := range []string{"TRACE", "trace"} {
			if resp := r.send(method + " " + origin.URL + "/ HTTP/1.1\r\nHost: x\r\n\r\n"); resp.StatusCode != c.want {
				t.Errorf("%s with %+v: %s", method, c.signers, resp.Status)
			}
		}
	}
}

func TestWhatIsNotSigned(t *testing.T) {
	by, _ := newSigner(t, "https://bot.example/keys")
	own := http.Header{"Signature": {"a=:AAAA:"}, "Signature-Input": {`a=("@authority")`}, "Signature-Agent": {`a="https://other.example"`}}
	for _, c := range []struct {
		name     string
		tls      bool
		signers  proxy.Signers
		header   http.Header
		change   func(*proxy.Options)
		unsigned policy.Unsigned
	}{
		{"no signer", true, proxy.Signers{}, nil, nil, ""},
		{"plain HTTP", false, proxy.Signers{Default: by}, nil, nil, policy.UnsignedPlain},
		{"a request that the client has signed", true, proxy.Signers{Default: by}, own, nil, policy.UnsignedClient},
		{"the same without a signer", true, proxy.Signers{}, own, nil, policy.UnsignedClient},
		{"a single field of a signature", true, proxy.Signers{Default: by}, http.Header{"Signature-Agent": own["Signature-Agent"]}, nil, policy.UnsignedClient},
		{"a tunnel that is passed through", true, proxy.Signers{Default: by}, nil, func(o *proxy.Options) {
			o.PassThrough = func(string) bool { return true }
		}, policy.UnsignedTunnel},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			origin := serve(t, c.tls, rules, func(http.ResponseWriter, *http.Request) {})
			r := start(t, setup{origins: []*httptest.Server{origin.Server}, change: func(o *proxy.Options) {
				o.Signers = c.signers
				if c.change != nil {
					c.change(o)
				}
			}})
			client := r.client(false)
			if c.unsigned == policy.UnsignedTunnel {
				r.roots.AddCert(origin.Certificate())
			}
			req, err := http.NewRequest(http.MethodGet, origin.URL+"/page", nil)
			testkit.Must(t, err)
			if c.header != nil {
				req.Header = c.header.Clone()
			}
			resp, err := client.Do(req)
			testkit.Must(t, err)
			resp.Body.Close()
			client.CloseIdleConnections() // ends the tunnel
			page := origin.arrived(len(origin.paths()) - 1)
			for _, name := range []string{"Signature", "Signature-Input", "Signature-Agent"} {
				if !slices.Equal(page.Header[name], c.header[name]) {
					t.Errorf("%s: %q, want %q", name, page.Header[name], c.header[name])
				}
			}
			if rec := r.records.last(t, 1); rec.Signed != "" || rec.Unsigned != c.unsigned {
				t.Errorf("recorded: signed %q, unsigned %q, want %q", rec.Signed, rec.Unsigned, c.unsigned)
			}
		})
	}
}

func TestClientsHaveTheirOwnSigners(t *testing.T) {
	t.Parallel()
	origin := serve(t, true, rules, func(http.ResponseWriter, *http.Request) {})
	general, _ := newSigner(t, "https://bot.example/keys")
	by, key := newSigner(t, "https://lab-a.example/keys")
	r := start(t, setup{
		origins: []*httptest.Server{origin.Server},
		clients: []policy.Client{{Name: "lab-a", Networks: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}},
		change: func(o *proxy.Options) {
			o.Signers = proxy.Signers{Default: general, Clients: map[string]*signature.Signer{"lab-a": by}}
		},
	})
	if _, _, err := get(r.client(false), origin.URL+"/page"); err != nil {
		t.Fatal(err)
	}
	origin.nonces(t, key)
	if rec := r.records.last(t, 1); rec.Signed != by.KeyID() {
		t.Errorf("recorded: signed %q, want %q", rec.Signed, by.KeyID())
	}
}

func TestWebSocketHandshakeIsSigned(t *testing.T) {
	t.Parallel()
	origin := serve(t, true, rules, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Connection", "Upgrade")
		w.Header().Set("Upgrade", "websocket")
		w.WriteHeader(http.StatusSwitchingProtocols)
	})
	by, key := newSigner(t, "https://bot.example/keys")
	r := start(t, setup{origins: []*httptest.Server{origin.Server}, change: func(o *proxy.Options) { o.Signers.Default = by }})
	conn := r.tunnel(origin.host())
	_, err := io.WriteString(conn, "GET /ws HTTP/1.1\r\nHost: "+origin.host()+"\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
	testkit.Must(t, err)
	if _, err := io.ReadAtLeast(conn, make([]byte, 1<<10), len("HTTP/1.1 101")); err != nil {
		t.Fatal(err)
	}
	conn.Close()
	if n := len(origin.nonces(t, key)); n != 2 {
		t.Errorf("%d requests arrived, want robots.txt and the handshake", n)
	}
	if rec := r.records.last(t, 1); rec.Signed != by.KeyID() {
		t.Errorf("recorded: signed %q, want %q", rec.Signed, by.KeyID())
	}
}

// TestNothingIsSentUnsigned checks that a Signer that cannot sign refuses requests, those for
// robots.txt too.
func TestNothingIsSentUnsigned(t *testing.T) {
	for _, c := range []struct {
		name    string
		options func(*policy.Options)
	}{
		{"robots.txt", nil},
		{"a page", func(o *policy.Options) { o.Hosts = []policy.Host{{Match: "*", Robots: policy.Ignore, Reason: "test"}} }},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			origin := serve(t, true, rules, func(http.ResponseWriter, *http.Request) {})
			r := start(t, setup{origins: []*httptest.Server{origin.Server}, policyOptions: c.options, change: func(o *proxy.Options) {
				o.Signers.Default = &signature.Signer{}
			}})
			resp, body, err := get(r.client(false), origin.URL+"/page")
			testkit.Must(t, err)
			if resp.StatusCode != http.StatusInternalServerError {
				t.Errorf("%s: %s", resp.Status, body)
			}
			if paths := origin.paths(); len(paths) > 0 {
				t.Errorf("%q arrived", paths)
			}
			if rec := r.records.of(t, policy.ReasonInternal); rec.Signed != "" || rec.Unsigned != "" {
				t.Errorf("recorded: signed %q, unsigned %q", rec.Signed, rec.Unsigned)
			}
		})
	}
}
