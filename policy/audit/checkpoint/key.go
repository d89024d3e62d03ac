package checkpoint

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/mod/sumdb/note"
)

// A Key signs checkpoints.
type Key struct {
	note.Signer

	// Public is the key that verifies its signatures, in the form of [note.NewVerifier].
	Public string
}

var errNoKey = errors.New("there is no key")

// NewKey returns a new key as it stands in a file, a line without its line feed. The name must be neither empty nor have
// spaces or plus signs.
func NewKey(name string) (string, error) {
	secret, _, err := note.GenerateKey(rand.Reader, name)
	if err != nil {
		return "", err
	}
	if _, err := note.NewSigner(secret); err != nil {
		return "", fmt.Errorf("%q cannot be the name of a key", name)
	}
	return secret, nil
}

// ParseKeys returns the keys in a file, a line each; empty lines are ignored. There must be at least one. An error does not
// have what the file says, which is secret.
func ParseKeys(file []byte) (keys []Key, err error) {
	for number, line := range nonEmptyLines(file) {
		signer, err := note.NewSigner(line)
		if err != nil {
			return nil, fmt.Errorf("line %d: not a key that signs checkpoints", number)
		}
		public, err := publicKey(signer.Name(), line)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", number, err)
		}
		keys = append(keys, Key{signer, public})
	}
	if len(keys) == 0 {
		return nil, errNoKey
	}
	return keys, nil
}

// publicKey returns the public part of a key that note.NewSigner accepts.
func publicKey(name, secret string) (string, error) {
	// The parts are PRIVATE, KEY, the name, a hash, and, in base64, a byte for the algorithm and the seed.
	seed, err := base64.StdEncoding.DecodeString(strings.SplitN(secret, "+", 5)[4])
	if err != nil || len(seed) != 1+ed25519.SeedSize {
		return "", errors.New("not an Ed25519 key")
	}
	return note.NewEd25519VerifierKey(name, ed25519.NewKeyFromSeed(seed[1:]).Public().(ed25519.PublicKey))
}

// Verifiers returns what verifies the signatures of keys.
func Verifiers(keys []Key) note.Verifiers {
	known := make([]note.Verifier, len(keys))
	for i, k := range keys {
		// It was made of a valid key.
		known[i], _ = note.NewVerifier(k.Public)
	}
	return note.VerifierList(known...)
}

// ParsePublic returns the keys in a file with public keys, a line each, as [Key.Public] has them; empty lines are ignored, and
// so is a key that was there before. There must be at least one.
func ParsePublic(file []byte) (note.Verifiers, error) {
	var known []note.Verifier
	for number, line := range nonEmptyLines(file) {
		v, err := note.NewVerifier(line)
		if err != nil {
			return nil, fmt.Errorf("line %d: not a public key as `robotsproxy audit key --public` prints it", number)
		}
		// Two keys of one name and hash would be ambiguous.
		if !slices.ContainsFunc(known, func(k note.Verifier) bool { return k.Name() == v.Name() && k.KeyHash() == v.KeyHash() }) {
			known = append(known, v)
		}
	}
	if known == nil {
		return nil, errNoKey
	}
	return note.VerifierList(known...), nil
}

// nonEmptyLines returns the lines of a file that are not empty, without the spaces around them, by their numbers from 1.
func nonEmptyLines(file []byte) func(yield func(int, string) bool) {
	return func(yield func(int, string) bool) {
		number := 0
		for line := range strings.Lines(string(file)) {
			number++
			if line = strings.TrimSpace(line); line != "" && !yield(number, line) {
				return
			}
		}
	}
}
