// Package signature signs requests with an HTTP Message Signature (RFC 9421) in the way of Web Bot
// Auth (draft-ietf-webbotauth-httpsig-protocol-01), by which an origin learns who operates a
// crawler, and verifies such signatures.
//
// A signature covers the authority of the request and the URL of the key directory, and nothing else:
// neither method, path, fields nor body. Whoever reads it can use it for any request to the same
// authority until it expires.
//
// The package has no files and no network, and only Ed25519. It fails closed: a [Signer] that cannot
// sign returns ErrSign, and what it has not signed must not be sent. Any number of goroutines may
// share a Signer and a [Key].
package signature

import (
	"cmp"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/dunglas/httpsfv"
)

// The fields of a signed request.
const (
	fieldAgent     = "Signature-Agent"
	fieldInput     = "Signature-Input"
	fieldSignature = "Signature"
)

// The bounds of Options.Valid.
const (
	// MinValid leaves time for the difference of two clocks.
	MinValid = 10 * time.Second
	// MaxValid is the longest time that the draft recommends.
	MaxValid = 24 * time.Hour
)

const (
	label     = "sig1"
	tag       = "web-bot-auth"
	algorithm = "ed25519"

	// nonceSize is the size of the nonce in bytes. Earlier drafts recommend it, and some verifiers require it.
	nonceSize = 64

	// covered is what a signature covers.
	covered = `("@authority" "signature-agent";key="` + label + `")`
)

// ErrSign is in the chain of each error of Sign.
var ErrSign = errors.New("cannot sign the request")

// Signed reports whether a request has a field of a signature.
func Signed(h http.Header) bool {
	return h[fieldSignature] != nil || h[fieldInput] != nil || h[fieldAgent] != nil
}

// Options make a Signer.
type Options struct {
	Key *Key

	// Agent is the https URL of the directory that has the key.
	Agent string

	// Valid is how long a signature is valid, between MinValid and MaxValid.
	Valid time.Duration
}

// A Signer signs requests. The zero Signer cannot.
type Signer struct {
	key *Key

	// agent is the member of Signature-Agent as it is sent.
	agent string
	valid time.Duration
}

// New makes a Signer.
func New(o Options) (*Signer, error) {
	if o.Key == nil {
		return nil, errors.New("signature: no key")
	}
	if _, err := checkAgent(o.Agent); err != nil {
		return nil, fmt.Errorf("signature: the agent %w", err)
	}
	agent, err := httpsfv.Marshal(httpsfv.NewItem(o.Agent))
	if err != nil {
		return nil, errors.New("signature: the agent must be ASCII: write other characters with %")
	}
	if o.Valid < MinValid || o.Valid > MaxValid {
		return nil, fmt.Errorf("signature: valid must be between %v and %v", MinValid, MaxValid)
	}
	return &Signer{o.Key, agent, o.Valid}, nil
}

// KeyID returns the ID of the key.
func (s *Signer) KeyID() string { return s.key.ID() }

// Sign signs r: it sets the three fields in its header. Each call makes another nonce. After an error,
// which wraps ErrSign, r must not be sent.
func (s *Signer) Sign(r *http.Request) error {
	authority := authorityOf(r)
	if s == nil || s.key == nil {
		return fmt.Errorf("%w: no key", ErrSign)
	}
	if authority == "" || strings.IndexFunc(authority, func(c rune) bool { return c <= ' ' || c > '~' }) >= 0 {
		return fmt.Errorf("%w: its authority is invalid", ErrSign)
	}
	params := s.params(time.Now())
	base := `"@authority": ` + authority + "\n" +
		`"signature-agent";key="` + label + `": ` + s.agent + "\n" +
		`"@signature-params": ` + params
	signature := ed25519.Sign(s.key.private(), []byte(base))
	r.Header[fieldAgent] = []string{label + "=" + s.agent}
	r.Header[fieldInput] = []string{label + "=" + params}
	r.Header[fieldSignature] = []string{label + "=:" + base64.StdEncoding.EncodeToString(signature) + ":"}
	return nil
}

// params returns the signature parameters of a signature that is made at now (RFC 9421 2.3).
func (s *Signer) params(now time.Time) string {
	var nonce [nonceSize]byte
	// Read returns no error since Go 1.24.
	rand.Read(nonce[:])
	b := make([]byte, 0, 300)
	b = strconv.AppendInt(append(b, covered+";created="...), now.Unix(), 10)
	b = append(append(b, `;keyid="`...), s.key.id...)
	b = strconv.AppendInt(append(b, `";alg="`+algorithm+`";expires=`...), now.Add(s.valid).Unix(), 10)
	b = base64.StdEncoding.AppendEncode(append(b, `;nonce="`...), nonce[:])
	return string(append(b, `";tag="`+tag+`"`...))
}

// authorityOf returns the authority of a request, normalised (RFC 9421 2.2.3): in lower case, and
// without the default port of its scheme.
func authorityOf(r *http.Request) string {
	authority := strings.ToLower(cmp.Or(r.Host, r.URL.Host))
	port := ":80"
	if schemeOf(r) == "https" {
		port = ":443"
	}
	return strings.TrimSuffix(authority, port)
}

// schemeOf returns the scheme of a request, which a server knows from its connection alone.
func schemeOf(r *http.Request) string {
	if r.URL.Scheme == "" && r.TLS != nil {
		return "https"
	}
	return cmp.Or(strings.ToLower(r.URL.Scheme), "http")
}
