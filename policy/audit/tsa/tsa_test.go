package tsa

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/digitorus/timestamp"

	"robotsproxy/policy/audit/trail"
	"robotsproxy/robots/testkit"
)

// text is what gets a time-stamp.
var text = []byte("robotsproxy/proxy-1\n9002\n")

// An authority signs time-stamps, by a certificate that its root has issued.
type authority struct {
	roots *x509.CertPool
	cert  *x509.Certificate
	key   *ecdsa.PrivateKey
}

func newAuthority(t testing.TB, usage x509.ExtKeyUsage) authority {
	t.Helper()
	issue := func(c, issuer *x509.Certificate, issuerKey *ecdsa.PrivateKey) (*x509.Certificate, *ecdsa.PrivateKey) {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		if issuer == nil {
			issuer, issuerKey = c, key
		}
		c.SerialNumber, c.NotBefore, c.NotAfter = big.NewInt(1), time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
		der, err := x509.CreateCertificate(rand.Reader, c, issuer, &key.PublicKey, issuerKey)
		if err == nil {
			c, err = x509.ParseCertificate(der)
		}
		if err != nil {
			t.Fatal(err)
		}
		return c, key
	}
	root, rootKey := issue(&x509.Certificate{Subject: pkix.Name{CommonName: "root"}, IsCA: true, BasicConstraintsValid: true}, nil, nil)
	a := authority{roots: x509.NewCertPool()}
	a.roots.AddCert(root)
	a.cert, a.key = issue(&x509.Certificate{Subject: pkix.Name{CommonName: "tsa"}, ExtKeyUsage: []x509.ExtKeyUsage{usage}}, root, rootKey)
	return a
}

// respond responds to a request after change has changed the token.
func (a authority) respond(t testing.TB, query []byte, change func(*timestamp.Timestamp)) []byte {
	t.Helper()
	req, err := timestamp.ParseRequest(query)
	if err != nil {
		t.Fatal(err)
	}
	token := &timestamp.Timestamp{
		HashAlgorithm: req.HashAlgorithm, HashedMessage: req.HashedMessage, Time: time.Now(), Nonce: req.Nonce,
		Policy: asn1.ObjectIdentifier{1, 2, 3}, AddTSACertificate: req.Certificates,
	}
	if change != nil {
		change(token)
	}
	response, err := token.CreateResponseWithOpts(a.cert, a.key, crypto.SHA256)
	if err != nil {
		t.Fatal(err)
	}
	return response
}

// TestRequest (RFC 3161 2.4): the token has to be of the anchor and of this request.
func TestRequest(t *testing.T) {
	a := newAuthority(t, x509.ExtKeyUsageTimeStamping)
	for _, c := range []struct {
		name    string
		status  int
		respond func(query []byte) []byte
		want    string // in the error; "": no error
	}{
		{"a token", 200, func(q []byte) []byte { return a.respond(t, q, nil) }, ""},
		{"a token of other data", 200, func(q []byte) []byte {
			return a.respond(t, q, func(token *timestamp.Timestamp) { sum := sha256.Sum256(nil); token.HashedMessage = sum[:] })
		}, "not for this text"},
		{"a token for another request", 200, func(q []byte) []byte {
			return a.respond(t, q, func(token *timestamp.Timestamp) { token.Nonce = big.NewInt(1) })
		}, "to another request"},
		{"a token without a nonce", 200, func(q []byte) []byte {
			return a.respond(t, q, func(token *timestamp.Timestamp) { token.Nonce = nil })
		}, "to another request"},
		{"a changed token", 200, func(q []byte) []byte {
			response := a.respond(t, q, nil)
			sum := sha256.Sum256(text)
			response[bytes.Index(response, sum[:])]++
			return response
		}, "Message digest mismatch"},
		{"a rejection", 200, func([]byte) []byte { return []byte{0x30, 5, 0x30, 3, 2, 1, 2} }, "rejected"},
		{"no response", 200, func([]byte) []byte { return nil }, "asn1"},
		{"a page", 200, func([]byte) []byte { return []byte("<html>") }, "asn1"},
		{"an endless response", 200, func([]byte) []byte { return make([]byte, maxResponse+1) }, "longer than 65536 bytes"},
		{"a failure", 503, func([]byte) []byte { return nil }, "status 503"},
		{"a redirect", 302, func([]byte) []byte { return nil }, "status 302"},
	} {
		t.Run(c.name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				query, err := io.ReadAll(r.Body)
				if err != nil || r.Method != http.MethodPost || r.Header.Get("Content-Type") != "application/timestamp-query" {
					t.Errorf("%s %s, %v", r.Method, r.Header, err)
				}
				w.WriteHeader(c.status)
				w.Write(c.respond(query))
			}))
			defer server.Close()
			response, err := Request(t.Context(), server.Client().Transport, server.URL, text)
			if c.want != "" {
				if err == nil || !strings.Contains(err.Error(), c.want) {
					t.Errorf("got %v, want %q", err, c.want)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if at, err := Verify(response, text, a.roots); err != nil || time.Since(at) > time.Minute {
				t.Errorf("Verify = %v, %v", at, err)
			}
		})
	}
}

// TestVerify (RFC 3161 2.3): only a certificate for time-stamping that leads to a root is trusted.
func TestVerify(t *testing.T) {
	a, other, web := newAuthority(t, x509.ExtKeyUsageTimeStamping), newAuthority(t, x509.ExtKeyUsageTimeStamping), newAuthority(t, x509.ExtKeyUsageServerAuth)
	query, err := timestamp.CreateRequest(bytes.NewReader(text), &timestamp.RequestOptions{Hash: crypto.SHA256, Certificates: true})
	if err != nil {
		t.Fatal(err)
	}
	good := a.respond(t, query, nil)
	for _, c := range []struct {
		name     string
		response []byte
		text     []byte
		roots    *x509.CertPool
		trusted  bool
		readable bool
	}{
		{"trusted", good, text, a.roots, true, true},
		{"without roots", good, text, nil, false, true},
		{"another authority", good, text, other.roots, false, true},
		{"a certificate for web servers", web.respond(t, query, nil), text, web.roots, false, true},
		{"no certificate", a.respond(t, query, func(token *timestamp.Timestamp) { token.AddTSACertificate = false }), text, a.roots, false, true},
		{"before the certificate was valid", a.respond(t, query, func(token *timestamp.Timestamp) { token.Time = time.Now().Add(-2 * time.Hour) }), text, a.roots, false, true},
		{"another text", good, text[1:], a.roots, false, false},
		{"garbage", []byte("x"), text, a.roots, false, false},
	} {
		at, err := Verify(c.response, c.text, c.roots)
		if (err == nil) != c.trusted || c.readable == at.IsZero() || c.readable && !c.trusted && !errors.Is(err, ErrUntrusted) {
			t.Errorf("%s: %v, %v", c.name, at, err)
		}
	}
}

// FuzzVerify: no response makes Verify panic, and only the one that was signed is trusted.
func FuzzVerify(f *testing.F) {
	a := newAuthority(f, x509.ExtKeyUsageTimeStamping)
	query, err := timestamp.CreateRequest(bytes.NewReader(text), &timestamp.RequestOptions{Hash: crypto.SHA256, Certificates: true})
	if err != nil {
		f.Fatal(err)
	}
	good := a.respond(f, query, nil)
	f.Add(0, byte(0), len(good))
	f.Add(9, byte(1), 100)
	f.Fuzz(func(t *testing.T, at int, by byte, length int) {
		response := bytes.Clone(good[:min(uint(length), uint(len(good)))])
		if len(response) > 0 {
			response[uint(at)%uint(len(response))] ^= by
		}
		Verify(response, text, a.roots)
		Verify(response, text, nil)
	})
}

// TestSaveAndList: List also has what earlier versions have saved, of anchors.
func TestSaveAndList(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "stamps")
	if all, err := List(dir); err != nil || all != nil {
		t.Errorf("no directory: %v, %v", all, err)
	}
	for _, seq := range []uint64{9002, 800, 800} {
		testkit.Must(t, Save(dir, seq, text, []byte("x")))
	}
	earlier := trail.Anchor{Seq: 1000, Hash: strings.Repeat("0", 32)}
	testkit.Must(t, os.WriteFile(filepath.Join(dir, "1000-"+earlier.Hash+".tsr"), []byte("x"), 0o600))
	sum := sha256.Sum256(text)
	of := func(seq int) string { return filepath.Join(dir, fmt.Sprintf("%d-%x.tsr", seq, sum[:16])) }
	all, err := List(dir)
	want := []Response{
		{Path: of(800), Text: text},
		{Path: filepath.Join(dir, "1000-"+earlier.Hash+".tsr"), Text: []byte(earlier.String()), Anchor: earlier},
		{Path: of(9002), Text: text},
	}
	if err != nil || !reflect.DeepEqual(all, want) {
		t.Errorf("List = %+v, %v", all, err)
	}
}

// TestSaveFails: what could not be written is not a response, which verification would reject.
func TestSaveFails(t *testing.T) {
	dir := t.TempDir()
	testkit.Must(t, Save(dir, 1, text, []byte("x")))
	names, err := filepath.Glob(filepath.Join(dir, "*.tsr"))
	testkit.Must(t, err)
	blocked := strings.TrimSuffix(names[0], ".tsr") + ".checkpoint"
	testkit.Must(t, errors.Join(os.Remove(names[0]), os.Remove(blocked), os.MkdirAll(filepath.Join(blocked, "x"), 0o700)))
	if err := Save(dir, 1, text, []byte("x")); err == nil {
		t.Error("no error")
	}
	if all, err := List(dir); err != nil || len(all) > 0 {
		t.Errorf("List = %v, %v", all, err)
	}
}
