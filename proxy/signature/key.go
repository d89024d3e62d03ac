package signature

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
)

// blockPKCS8 is the type of a PEM block with an unencrypted private key (RFC 7468 10).
const blockPKCS8 = "PRIVATE KEY"

// ExampleKeyID is the ID of the key in RFC 9421 B.1.4, which must not sign anything but examples.
const ExampleKeyID = "poqkLGiymh_W0uP6PZFw-dvez3QJT5SolqXBCW38r0U"

// A PublicKey is an Ed25519 key that verifies signatures. The zero PublicKey verifies none.
type PublicKey struct {
	key ed25519.PublicKey
	id  string
}

func newPublicKey(key ed25519.PublicKey) PublicKey {
	// RFC 7638 3: the required members in the order of their names, without white space. RFC 8037 2
	// names them.
	sum := sha256.Sum256([]byte(`{"crv":"Ed25519","kty":"OKP","x":"` + base64.RawURLEncoding.EncodeToString(key) + `"}`))
	return PublicKey{key, base64.RawURLEncoding.EncodeToString(sum[:])}
}

// ID returns the JWK thumbprint of the key (RFC 7638, SHA-256), which is the keyid of its signatures.
func (p PublicKey) ID() string { return p.id }

// A jwk is an Ed25519 key as a JSON Web Key (RFC 7517, RFC 8037 2).
type jwk struct {
	Type  string `json:"kty"`
	Curve string `json:"crv"`
	ID    string `json:"kid,omitempty"`
	X     string `json:"x"`

	// D is the private part, which a public key does not have.
	D   string `json:"d,omitempty"`
	Use string `json:"use,omitempty"`
}

const (
	typeOKP      = "OKP"
	curveEd25519 = "Ed25519"
)

// MarshalJSON returns the key as a JWK.
func (p PublicKey) MarshalJSON() ([]byte, error) {
	x := base64.RawURLEncoding.EncodeToString(p.key)
	return json.Marshal(jwk{Type: typeOKP, Curve: curveEd25519, ID: p.id, X: x, Use: "sig"})
}

// A Key is an Ed25519 key that signs. It never prints its private part: formatted or logged it is its
// ID, and in JSON it is its public key. NewKey or ParseKey make one.
type Key struct {
	PublicKey

	// private is a function, because fmt prints the fields of a nested struct.
	private func() ed25519.PrivateKey
}

func newKey(private ed25519.PrivateKey) *Key {
	return &Key{newPublicKey(private.Public().(ed25519.PublicKey)), func() ed25519.PrivateKey { return private }}
}

// NewKey makes a random key.
func NewKey() *Key {
	// With rand.Reader there is no error since Go 1.24.
	_, private, _ := ed25519.GenerateKey(rand.Reader)
	return newKey(private)
}

// ParseKey reads a private key: PEM with PKCS #8 (RFC 8410 7), or a JWK. Its errors contain nothing of
// the text.
func ParseKey(text []byte) (*Key, error) {
	text = bytes.TrimSpace(text)
	if bytes.HasPrefix(text, []byte("{")) {
		return parseJWK(text)
	}
	for {
		var block *pem.Block
		if block, text = pem.Decode(text); block == nil {
			return nil, errors.New("contains neither a PEM private key (PKCS #8) nor a JWK")
		}
		switch block.Type {
		case "ENCRYPTED " + blockPKCS8:
			return nil, errors.New("is encrypted: store the key unencrypted, with mode 0600")
		case blockPKCS8:
			key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
			if err != nil {
				return nil, errors.New("contains a malformed private key")
			}
			private, ok := key.(ed25519.PrivateKey)
			if !ok {
				return nil, fmt.Errorf("contains a %T: only Ed25519 keys sign requests", key)
			}
			return newKey(private), nil
		}
	}
}

func parseJWK(text []byte) (*Key, error) {
	var k jwk
	if json.Unmarshal(text, &k) != nil {
		return nil, errors.New("contains a malformed JWK")
	}
	if k.Type != typeOKP || k.Curve != curveEd25519 {
		return nil, errors.New(`contains another JWK than kty "OKP" with crv "Ed25519"`)
	}
	seed, err := base64.RawURLEncoding.DecodeString(k.D)
	if err != nil || len(seed) != ed25519.SeedSize {
		return nil, errors.New("contains a JWK without a valid private part (d)")
	}
	key := newKey(ed25519.NewKeyFromSeed(seed))
	if x, err := base64.RawURLEncoding.DecodeString(k.X); err != nil || !bytes.Equal(x, key.key) {
		return nil, errors.New("contains a JWK whose public part (x) does not belong to its private part (d)")
	}
	return key, nil
}

// Public returns the key that verifies the signatures of k.
func (k *Key) Public() PublicKey { return k.PublicKey }

// PEM returns the private key as ParseKey reads it, to be stored.
func (k *Key) PEM() []byte {
	// An Ed25519 key causes no error.
	der, _ := x509.MarshalPKCS8PrivateKey(k.private())
	return pem.EncodeToMemory(&pem.Block{Type: blockPKCS8, Bytes: der})
}

// Format prints the ID, whatever the verb.
func (k *Key) Format(f fmt.State, _ rune) { io.WriteString(f, k.id) }
