package signature

import (
	"bufio"
	"bytes"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dunglas/httpsfv"
	"github.com/google/go-cmp/cmp"
)

// The key of RFC 9421 B.1.4, as PEM and as a JWK.
const (
	rfcPEM = "-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEIJ+DYvh6SEqVTm50DFtMDoQikTmiCqirVv9mWG9qfSnF\n-----END PRIVATE KEY-----\n"
	rfcJWK = `{"kty":"OKP","crv":"Ed25519","kid":"test-key-ed25519","d":"n4Ni-HpISpVObnQMW0wOhCKROaIKqKtW_2ZYb2p9KcU","x":"JrQLj5P_89iXES9-vFgrIy29clF9CC_oPPsw3c5D0bs"}`
	rfcID  = ExampleKeyID

	agent = "https://bot.example/.well-known/http-message-signatures-directory"
)

func rfcKey(t testing.TB) *Key {
	t.Helper()
	key, err := ParseKey([]byte(rfcPEM))
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func newSigner(t testing.TB, key *Key) *Signer {
	t.Helper()
	s, err := New(Options{Key: key, Agent: agent, Valid: 5 * time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// received returns the request that an origin reads from head, over TLS.
func received(t testing.TB, head string) *http.Request {
	t.Helper()
	r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(strings.ReplaceAll(head, "\n", "\r\n"))))
	if err != nil {
		t.Fatal(err)
	}
	r.URL.Scheme = "https"
	return r
}

// sent returns a request as the proxy sends it.
func sent(t testing.TB, u string) *http.Request {
	t.Helper()
	r, err := http.NewRequest(http.MethodGet, u, nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestRFC9421B26(t *testing.T) {
	r := received(t, `POST /foo?param=Value&Pet=dog HTTP/1.1
Host: example.com
Date: Tue, 20 Apr 2021 02:07:55 GMT
Content-Type: application/json
Content-Length: 18
Signature-Input: sig-b26=("date" "@method" "@path" "@authority" "content-type" "content-length");created=1618884473;keyid="test-key-ed25519"
Signature: sig-b26=:wqcAqbmYJ2ji2glfAMaRy4gruYYnx2nEFN2HN6jrnDnQCK1u02Gb04v9EDgwUPiu4A0w6vuQv5lIp5WPpBKRCw==:

{"hello": "world"}`)
	inputs, err := httpsfv.UnmarshalDictionary(r.Header["Signature-Input"])
	if err != nil {
		t.Fatal(err)
	}
	member, _ := inputs.Get("sig-b26")
	key := rfcKey(t)
	if err := checkSignature(r, "sig-b26", member.(httpsfv.InnerList), key.Public()); err != nil {
		t.Error(err)
	}
	base, err := baseOf(r, member.(httpsfv.InnerList))
	if err != nil {
		t.Fatal(err)
	}
	item, _ := httpsfv.Marshal(httpsfv.NewItem(ed25519.Sign(key.private(), []byte(base))))
	if want := r.Header.Get("Signature"); "sig-b26="+item != want {
		t.Errorf("signed %s, want %s", item, want)
	}
	if _, err := Verify(r, []PublicKey{key.Public()}, time.Unix(1618884473, 0)); !errors.Is(err, ErrNone) {
		t.Errorf("Verify: %v, want ErrNone: the signature is not for Web Bot Auth", err)
	}
}

// draftHead is the Ed25519 vector of draft-ietf-webbotauth-httpsig-protocol-01 E.2.1, with the label of
// the signature and the key of its member the same, as the draft demands elsewhere.
const draftHead = `GET /path/to/resource HTTP/1.1
Host: example.com
Signature-Agent: agent2="https://signature-agent.test"
Signature-Input: agent2=("@authority" "signature-agent";key="agent2");created=1735689600;keyid="poqkLGiymh_W0uP6PZFw-dvez3QJT5SolqXBCW38r0U";alg="ed25519";expires=4889289600;nonce="n9p433xm+NJ3ph3upfBIGmsuwHw387YV7Q/F+6BSpGCVjYCqQw6rznNA8PVVLySrAWsv0hQtFioQb6E1YsauiA==";tag="web-bot-auth"
Signature: agent2=:RdNFx5Bj6au3YgAMQL/RzmUlZE8QZLIaXGRpw985hWnwPfMxT228NMk6ehRS1PSl4e8PhbNZACSanGdhEwYCCg==:

`

func TestVectorOfTheDraft(t *testing.T) {
	keys := []PublicKey{NewKey().Public(), rfcKey(t).Public()}
	got, err := Verify(received(t, draftHead), keys, time.Unix(1735689600, 0))
	want := Result{
		KeyID: rfcID, Agent: "https://signature-agent.test",
		Created: time.Unix(1735689600, 0).UTC(), Expires: time.Unix(4889289600, 0).UTC(),
		Nonce:   "n9p433xm+NJ3ph3upfBIGmsuwHw387YV7Q/F+6BSpGCVjYCqQw6rznNA8PVVLySrAWsv0hQtFioQb6E1YsauiA==",
		Covered: `"@authority" "signature-agent";key="agent2"`,
	}
	if d := cmp.Diff(want, got); d != "" || err != nil {
		t.Errorf("%s, %v", d, err)
	}
}

func TestThumbprint(t *testing.T) {
	x := ed25519.NewKeyFromSeed(make([]byte, 32)).Public().(ed25519.PublicKey)
	rfc8037, err := ParseDirectory([]byte(`{"keys":[{"kty":"OKP","crv":"Ed25519","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}`), &url.URL{})
	if err != nil || len(rfc8037) != 1 || rfc8037[0].ID() != "kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k" { // RFC 8037 A.3
		t.Errorf("%v, %v", rfc8037, err)
	}
	if newPublicKey(x).ID() == rfc8037[0].ID() {
		t.Error("two keys have the same ID")
	}
}

func TestSignedRequestVerifies(t *testing.T) {
	for _, c := range []struct{ name, url, host, authority string }{
		{"path and query are not signed", "https://example.com/a?b=c", "", "example.com"},
		{"default port (RFC 9110 4.2.3)", "https://example.com:443/", "", "example.com"},
		{"another port", "https://example.com:8443/", "", "example.com:8443"},
		{"the port of another scheme", "https://example.com:80/", "", "example.com:80"},
		{"plain HTTP", "http://example.com:80/", "", "example.com"},
		{"upper case", "https://EXAMPLE.com/", "", "example.com"},
		{"the Host field counts", "https://192.0.2.1/", "example.com", "example.com"},
		{"IPv6", "https://[2001:db8::1]/", "", "[2001:db8::1]"},
	} {
		t.Run(c.name, func(t *testing.T) {
			key := rfcKey(t)
			r := sent(t, c.url)
			r.Host = c.host
			if err := newSigner(t, key).Sign(r); err != nil {
				t.Fatal(err)
			}
			got, err := Verify(r, []PublicKey{key.Public()}, time.Now())
			if err != nil || got.Agent != agent || got.KeyID != rfcID {
				t.Errorf("%+v, %v", got, err)
			}
			if a := authorityOf(r); a != c.authority {
				t.Errorf("authority %q, want %q", a, c.authority)
			}
		})
	}
}

func TestFieldsOfASignedRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // from 2000-01-01T00:00:00Z
		r := sent(t, "https://example.com/")
		if err := newSigner(t, rfcKey(t)).Sign(r); err != nil {
			t.Fatal(err)
		}
		if got, want := r.Header.Get("Signature-Agent"), `sig1="`+agent+`"`; got != want {
			t.Errorf("Signature-Agent: %s, want %s", got, want)
		}
		input := r.Header.Get("Signature-Input")
		before, nonce, _ := strings.Cut(input, `;nonce="`)
		nonce, after, _ := strings.Cut(nonce, `"`)
		want := `sig1=("@authority" "signature-agent";key="sig1");created=946684800;keyid="` + rfcID + `";alg="ed25519";expires=946685100`
		if before != want || after != `;tag="web-bot-auth"` || len(nonce) != 88 {
			t.Errorf("Signature-Input: %s", input)
		}
	})
}

func TestVerifyRefuses(t *testing.T) {
	at := time.Unix(1735689600, 0)
	replace := func(old, new string) func(string) string {
		return func(head string) string {
			if !strings.Contains(head, old) {
				t.Fatalf("the head does not contain %s", old)
			}
			return strings.ReplaceAll(head, old, new)
		}
	}
	for _, c := range []struct {
		name   string
		change func(string) string
		at     time.Time
		want   error // nil: any
	}{
		{"another authority", replace("Host: example.com", "Host: example.org"), at, ErrSignature},
		{"another agent", replace("signature-agent.test", "signature-agent.example"), at, ErrSignature},
		{"another nonce", replace("n9p433", "n9p434"), at, ErrSignature},
		{"another time", replace("created=1735689600", "created=1735689599"), at, ErrSignature},
		{"another signature", replace("RdNFx5", "RdNFx6"), at, ErrSignature},
		{"expired", replace("", ""), time.Unix(4889289600, 0), ErrTime},
		{"not yet created", replace("", ""), at.Add(-time.Second), ErrTime},
		{"another key", replace(rfcID, "kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k"), at, ErrKey},
		{"another tag", replace("web-bot-auth", "other"), at, ErrNone},
		{"unsigned", replace("Signature-Input", "X-Input"), at, ErrNone},
		{"no signature", replace("Signature: agent2", "Signature: sig2"), at, nil},
		{"no expiry", replace(";expires=4889289600", ""), at, nil},
		{"another algorithm", replace(`"ed25519"`, `"rsa-pss-sha512"`), at, nil},
		{"the authority is not covered", replace(`"@authority" `, `"host" `), at, nil},
		{"the agent is not covered", replace(` "signature-agent";key="agent2")`, ")"), at, nil},
		{"a string in place of a dictionary (drafts before October 2025)", replace(`Signature-Agent: agent2=`, "Signature-Agent: "), at, nil},
		{"a member with parameters", replace(`signature-agent.test"`, `signature-agent.test";type=cimd`), at, nil},
		{"an agent without TLS", replace("https://", "http://"), at, nil},
		{"a component twice (RFC 9421 2.5)", replace(`("@authority"`, `("@authority" "@authority"`), at, nil},
		{"a component of a response", replace(`("@authority"`, `("@status" "@authority"`), at, nil},
		{"a field that is not there", replace(`("@authority"`, `("date" "@authority"`), at, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := Verify(received(t, c.change(draftHead)), []PublicKey{rfcKey(t).Public()}, c.at)
			if err == nil || c.want != nil && !errors.Is(err, c.want) {
				t.Errorf("%+v, %v, want the error %v", got, err, c.want)
			}
		})
	}
}

func TestNoncesDoNotRepeat(t *testing.T) {
	s, seen := newSigner(t, NewKey()), map[string]bool{}
	for range 1000 {
		r := sent(t, "https://example.com/")
		if err := s.Sign(r); err != nil {
			t.Fatal(err)
		}
		got, err := Verify(r, []PublicKey{s.key.Public()}, time.Now())
		if err != nil || got.Nonce == "" || seen[got.Nonce] {
			t.Fatalf("nonce %q, %v", got.Nonce, err)
		}
		seen[got.Nonce] = true
	}
}

func TestComponents(t *testing.T) {
	r := received(t, "POST /a%2Fb?x=1 HTTP/1.1\nHost: Example.com:443\nX-List: a\nX-List:  b \nX-Dict: k=(1 2);p, flag\n\n")
	for name, want := range map[string]string{
		`"@method"`:           "POST",
		`"@authority"`:        "example.com",
		`"@scheme"`:           "https",
		`"@path"`:             "/a%2Fb",
		`"@query"`:            "?x=1",
		`"@request-target"`:   "/a%2Fb?x=1",
		`"@target-uri"`:       "https://example.com/a%2Fb?x=1",
		`"host"`:              "Example.com:443",
		`"x-list"`:            "a, b",
		`"x-dict";key="k"`:    "(1 2);p",
		`"x-dict";key="flag"`: "?1",
	} {
		item, err := httpsfv.UnmarshalItem([]string{name})
		if err != nil {
			t.Fatal(err)
		}
		if got, err := component(r, item); got != want || err != nil {
			t.Errorf("%s: %q, %v, want %q", name, got, err, want)
		}
	}
	for _, name := range []string{`"x-dict";sf`, `"@path";req`, `"@query-param";name="x"`, `"X-List"`, `1`} {
		item, err := httpsfv.UnmarshalItem([]string{name})
		if err != nil {
			t.Fatal(err)
		}
		if got, err := component(r, item); err == nil {
			t.Errorf("%s: %q, want an error", name, got)
		}
	}
}

func TestParseKey(t *testing.T) {
	own := NewKey()
	for name, text := range map[string]string{"PEM": rfcPEM, "JWK": rfcJWK, "after a certificate": "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n" + rfcPEM} {
		if key, err := ParseKey([]byte(text)); err != nil || key.ID() != rfcID {
			t.Errorf("%s: %v, %v", name, key, err)
		}
	}
	if key, err := ParseKey(own.PEM()); err != nil || key.ID() != own.ID() || !key.private().Equal(own.private()) {
		t.Errorf("a key is not read as it was written: %v", err)
	}
	for name, text := range map[string]string{
		"empty":               "",
		"a public key":        "-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEAJrQLj5P/89iXES9+vFgrIy29clF9CC/oPPsw3c5D0bs=\n-----END PUBLIC KEY-----\n",
		"encrypted":           strings.ReplaceAll(rfcPEM, "PRIVATE", "ENCRYPTED PRIVATE"),
		"cut":                 "-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEIJ+D\n-----END PRIVATE KEY-----\n",
		"EC":                  "-----BEGIN PRIVATE KEY-----\nMIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgFKbhfNZfpDsW43+0\n+JjUr9K+bTeuxopu653+hBaXGA7OHvcNAgEBBQDhRANCAAQ=\n-----END PRIVATE KEY-----\n",
		"a public JWK":        strings.Replace(rfcJWK, `"d"`, `"e"`, 1),
		"a JWK of two keys":   strings.Replace(rfcJWK, "JrQL", "JrQM", 1),
		"a JWK of X25519":     strings.Replace(rfcJWK, "Ed25519", "X25519", 1),
		"not a JWK":           `{"kty":`,
		"a JWK of wrong type": `{"kty":1}`,
	} {
		key, err := ParseKey([]byte(text))
		if err == nil {
			t.Errorf("%s: %v, want an error", name, key)
		} else if strings.Contains(err.Error(), "n4Ni") || strings.Contains(err.Error(), "BCIEIJ") {
			t.Errorf("%s: the error shows the key: %v", name, err)
		}
	}
}

func TestKeyIsNotShown(t *testing.T) {
	key := rfcKey(t)
	s := newSigner(t, key)
	var out bytes.Buffer
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%x", "%d"} {
		fmt.Fprintf(&out, verb+" "+verb+" "+verb+"\n", key, s, struct{ K *Key }{key})
	}
	for _, log := range []*slog.Logger{slog.New(slog.NewTextHandler(&out, nil)), slog.New(slog.NewJSONHandler(&out, nil))} {
		log.Info("key", "key", key, "signer", s)
	}
	text, err := json.Marshal([]any{key, s})
	if err != nil {
		t.Fatal(err)
	}
	out.Write(text)
	seed := key.private().Seed()
	for form, secret := range map[string]string{
		"base64url": "n4Ni-HpISp", "base64": "n4Ni+HpISp", "hex": fmt.Sprintf("%x", seed[:8]), "decimal": strings.Trim(fmt.Sprint(seed[:8]), "[]"),
		"Go": strings.Trim(fmt.Sprintf("%#v", seed[:8]), "[]byte{}"),
	} {
		if strings.Contains(out.String(), secret) {
			t.Errorf("the key is shown as %s:\n%s", form, out.String())
		}
	}
	if !strings.Contains(out.String(), rfcID) {
		t.Error("the ID is not shown")
	}
}

func TestSignFailsClosed(t *testing.T) {
	good := newSigner(t, rfcKey(t))
	for name, c := range map[string]struct {
		s *Signer
		r *http.Request
	}{
		"nil":                   {nil, sent(t, "https://example.com/")},
		"zero":                  {&Signer{}, sent(t, "https://example.com/")},
		"no authority":          {good, &http.Request{URL: &url.URL{Scheme: "https"}, Header: http.Header{}}},
		"an injected component": {good, &http.Request{URL: &url.URL{Scheme: "https"}, Host: "a\n\"@method\": GET", Header: http.Header{}}},
	} {
		if err := c.s.Sign(c.r); !errors.Is(err, ErrSign) || Signed(c.r.Header) {
			t.Errorf("%s: %v, %v, want ErrSign and no fields", name, err, c.r.Header)
		}
	}
	valid := Options{Key: rfcKey(t), Agent: agent, Valid: time.Minute}
	for name, change := range map[string]func(*Options){
		"no key":                   func(o *Options) { o.Key = nil },
		"no agent":                 func(o *Options) { o.Agent = "" },
		"an agent without TLS":     func(o *Options) { o.Agent = "http://bot.example/" },
		"an agent with a password": func(o *Options) { o.Agent = "https://a:b@bot.example/" },
		"an agent beyond ASCII":    func(o *Options) { o.Agent = "https://bot.example/ä" },
		"no time":                  func(o *Options) { o.Valid = 0 },
		"a week":                   func(o *Options) { o.Valid = 7 * 24 * time.Hour },
	} {
		o := valid
		change(&o)
		if _, err := New(o); err == nil {
			t.Errorf("%s: want an error", name)
		}
	}
}

func TestDirectory(t *testing.T) {
	one, two := rfcKey(t).Public(), NewKey().Public()
	at, err := DirectoryURL("https://bot.example")
	if err != nil || at.String() != agent {
		t.Errorf("%s, %v", at, err)
	}
	if other, err := DirectoryURL("https://bot.example/keys.json?v=1"); err != nil || other.String() != "https://bot.example/keys.json?v=1" {
		t.Errorf("%s, %v", other, err)
	}
	text := Directory(one, two)
	if strings.Contains(string(text), `"d"`) || !strings.Contains(string(text), `"kid": "`+rfcID+`"`) {
		t.Errorf("%s", text)
	}
	keys, err := ParseDirectory(text, at)
	if err != nil || len(keys) != 2 || keys[0].ID() != one.ID() || keys[1].ID() != two.ID() {
		t.Errorf("%v, %v", keys, err)
	}
	other := strings.Replace(string(text), rfcID, "one", 1)
	if _, err := ParseDirectory([]byte(other), at); err == nil {
		t.Error("a kid at the well-known path must be the thumbprint")
	}
	if keys, err := ParseDirectory([]byte(other), &url.URL{Path: "/jwks.json"}); err != nil || len(keys) != 2 {
		t.Errorf("elsewhere a kid may be any name: %v, %v", keys, err)
	}
	for name, text := range map[string]string{
		"no JSON": "<html>", "no set": `{"kty":"OKP"}`, "a short key": `{"keys":[{"kty":"OKP","crv":"Ed25519","x":"AAAA"}]}`,
		"too many keys": `{"keys":[` + strings.Repeat(`{"kty":"RSA"},`, maxKeys) + `{"kty":"RSA"}]}`,
	} {
		if keys, err := ParseDirectory([]byte(text), at); err == nil {
			t.Errorf("%s: %v, want an error", name, keys)
		}
	}
	if keys, err := ParseDirectory([]byte(`{"keys":[{"kty":"RSA","n":"x"}]}`), at); err != nil || len(keys) != 0 {
		t.Errorf("keys of other kinds: %v, %v", keys, err)
	}
}

func FuzzVerify(f *testing.F) {
	f.Add("example.com", `agent2="https://signature-agent.test"`, `agent2=("@authority" "signature-agent";key="agent2");created=1;expires=9;keyid="`+rfcID+`";tag="web-bot-auth"`, "agent2=:AAAA:")
	f.Add("", "", `a=();tag="web-bot-auth"`, "")
	f.Add("a", `a="https://a"`, `a=("host" "@query" "signature-input";key="a");tag="web-bot-auth"`, "a=:AA==:")
	key, err := ParseKey([]byte(rfcPEM))
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, host, agent, input, signature string) {
		r := &http.Request{Method: "GET", Host: host, URL: &url.URL{Scheme: "https", Path: "/"}, Header: http.Header{
			"Signature-Agent": {agent}, "Signature-Input": {input}, "Signature": {signature}}}
		if got, err := Verify(r, []PublicKey{key.Public()}, time.Unix(5, 0)); err == nil {
			t.Errorf("a signature was made without the key: %+v", got)
		}
		s := &Signer{key, `"https://bot.example"`, time.Minute}
		if s.Sign(r) != nil {
			return
		}
		if _, err := Verify(r, []PublicKey{key.Public()}, time.Now()); err != nil {
			t.Errorf("host %q: %v", host, err)
		}
	})
}

func FuzzParseKey(f *testing.F) {
	f.Add([]byte(rfcPEM))
	f.Add([]byte(rfcJWK))
	f.Fuzz(func(t *testing.T, text []byte) {
		key, err := ParseKey(text)
		if err != nil {
			return
		}
		if again, err := ParseKey(key.PEM()); err != nil || again.ID() != key.ID() {
			t.Errorf("%v, %v", again, err)
		}
	})
}

func BenchmarkSign(b *testing.B) {
	s, r := newSigner(b, NewKey()), sent(b, "https://example.com/")
	b.ReportAllocs()
	for b.Loop() {
		if err := s.Sign(r); err != nil {
			b.Fatal(err)
		}
	}
}
