package requests

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"robotsproxy/cmd/internal/e2e"
)

// signing starts a proxy that signs requests. keyid and jwk are those of its key.
func signing(t *testing.T, plainHTTP bool) (p *e2e.Proxy, keyid string, jwk json.RawMessage) {
	t.Helper()
	key := filepath.Join(t.TempDir(), "bot.pem")
	sign := map[string]any{"key": key, "agent": "https://bot.test/.well-known/http-message-signatures-directory", "plain_http": plainHTTP}
	h := e2e.NewSetup(t, e2e.Unpaced.With(e2e.Settings{"identity.sign": sign, "usage.purposes": []string{"tdm"}, "usage.tdmrep": true}))
	e2e.Command(t, "identity", "key", "-c", h.Config).Want(t, 0)
	var shown struct {
		KeyID string
		Keys  []json.RawMessage
	}
	if err := json.Unmarshal([]byte(e2e.Command(t, "identity", "show", "--json", "-c", h.Config).Want(t, 0).Stdout), &shown); err != nil {
		t.Fatal(err)
	}
	return e2e.StartSetup(t, h), shown.KeyID, shown.Keys[0]
}

// A received is a request as an origin has received it, for verify_signature.cjs.
type received struct {
	URL     string            `json:"url"`
	Method  string            `json:"method"`
	Headers map[string]string `json:"headers"`
}

func receivedFrom(h e2e.Hit) received {
	r := received{h.Scheme + "://" + h.Host + h.Path, h.Method, map[string]string{"host": h.Host}}
	for name, values := range h.Header {
		r.Headers[strings.ToLower(name)] = strings.Join(values, ", ")
	}
	return r
}

// verifyByPeer returns what the npm package says about each request: the nonce or an error.
func verifyByPeer(t *testing.T, node []string, jwk json.RawMessage, later int, all []received) []string {
	t.Helper()
	text, err := json.Marshal(map[string]any{"jwk": jwk, "later": later, "requests": all})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "requests.json")
	e2e.WriteFile(t, file, string(text))
	return strings.Fields(e2e.RunPeer(t, append(node, file), e2e.CleanEnv()).Want(t, 0).Stdout)
}

// TestPeerVerifiesSignatures: the reference implementation verifies each request that leaves over TLS, and
// those for robots.txt and tdmrep.json too.
func TestPeerVerifiesSignatures(t *testing.T) {
	t.Parallel()
	node := e2e.NeedModule("web-bot-auth", e2e.Script("verify_signature.cjs"))(t)
	p, keyid, jwk := signing(t, false)
	var all []received
	for _, o := range []*e2e.Origin{e2e.NewOrigin(t, "signed", e2e.Forbidding), e2e.NewOrigin2(t, "signed2", e2e.Forbidding)} {
		o.Handle("/page", func(w http.ResponseWriter, r *http.Request) { io.Copy(w, r.Body) })
		for _, h2 := range []bool{false, true} {
			for _, method := range []string{http.MethodGet, http.MethodPost} {
				if got := e2e.Do(t, p.Client(t, h2), method, o.URL("https", fmt.Sprintf("/page?h2=%t&%s", h2, method)), strings.NewReader("body"), "User-Agent", e2e.FooBot); got.Status != http.StatusOK {
					t.Fatalf("%s: %d", method, got.Status)
				}
			}
		}
		for _, h := range o.Arrivals("https") {
			all = append(all, receivedFrom(h))
		}
		if r := e2e.AwaitRecord(t, p.Audit, o.URL("https", "/page?h2=true&GET")); r.Signed != keyid {
			t.Errorf("recorded: signed %q, want %q", r.Signed, keyid)
		}
	}
	nonces := verifyByPeer(t, node, jwk, 0, all)
	slices.Sort(nonces)
	if len(all) != 12 || len(slices.Compact(slices.Clone(nonces))) != len(all) || strings.Contains(strings.Join(nonces, " "), "error:") {
		t.Errorf("%d requests, the peer says %q", len(all), nonces)
	}
	wantErrors := func(what string, later int) {
		t.Helper()
		said := verifyByPeer(t, node, jwk, later, all)
		if len(said) != len(all) || slices.ContainsFunc(said, func(s string) bool { return !strings.HasPrefix(s, "error:") }) {
			t.Errorf("%s: the peer says %q", what, said)
		}
	}
	wantErrors("expired signatures", 301) // valid: 5m
	for i := range all {
		all[i].URL = strings.Replace(all[i].URL, "signed", "sighed", 1)
	}
	wantErrors("another authority", 0)
}

// TestSignaturesAreAccountedFor: from the request, as it arrived, to the report.
func TestSignaturesAreAccountedFor(t *testing.T) {
	t.Parallel()
	o := e2e.NewOrigin(t, "accounted", e2e.Forbidding)
	o.Handle("/page", func(http.ResponseWriter, *http.Request) {})
	p, keyid, _ := signing(t, true)
	e2e.Get(t, p.Client(t, false), o.URL("http", "/page"))
	e2e.Get(t, p.Client(t, false), o.URL("https", "/page"), "Signature-Agent", `a="https://client.test"`)
	if r := e2e.AwaitRecord(t, p.Audit, o.URL("https", "/page")); r.Signed != "" || r.Unsigned != "client" {
		t.Errorf("recorded: signed %q, unsigned %q", r.Signed, r.Unsigned)
	}
	page := o.Pages("http")[0]
	head := strings.Builder{}
	fmt.Fprintf(&head, "%s %s HTTP/1.1\nHost: %s\n", page.Method, page.Path, page.Host)
	page.Header.Write(&head)
	file := filepath.Join(t.TempDir(), "head.txt")
	e2e.WriteFile(t, file, head.String())
	if out := e2e.Command(t, "identity", "verify", "-c", p.Config, "--http", file).Want(t, 0); !strings.Contains(out.Stdout, "key      "+keyid) {
		t.Errorf("identity verify says %q", out.Stdout)
	}
	fetches := 0
	for _, l := range e2e.ReadLines(t, p.Audit) {
		if l.Kind != "robots" && l.Kind != "tdmrep" {
			continue
		}
		if fetches++; l.Signed != keyid {
			t.Errorf("the fetch of %s is recorded with the signature %q", l.URL, l.Signed)
		}
	}
	if fetches != 4 { // robots.txt and tdmrep.json, of both schemes
		t.Errorf("%d fetches are recorded, want 4", fetches)
	}
	report := e2e.Command(t, "audit", "report", "-c", p.Config).Want(t, 0).Stdout
	if want := "1 of 2 requests that were sent (50 %), with the key " + keyid; !strings.Contains(report, want) {
		t.Errorf("the report lacks %q:\n%s", want, report)
	}
}
