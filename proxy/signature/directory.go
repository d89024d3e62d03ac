package signature

import (
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
)

const (
	// DirectoryPath is the path of a key directory that stands for the whole domain.
	DirectoryPath = "/.well-known/http-message-signatures-directory"

	// DirectoryType is the media type of a key directory at DirectoryPath.
	DirectoryType = "application/http-message-signatures-directory+json"

	// maxKeys is how many keys a directory that is read may have.
	maxKeys = 100
)

// Directory returns the key directory with keys, a JWK Set (RFC 7517 5).
func Directory(keys ...PublicKey) []byte {
	// Keys consist of strings, so there is no error.
	text, _ := json.MarshalIndent(map[string][]PublicKey{"keys": keys}, "", "  ")
	return append(text, '\n')
}

// ParseDirectory returns the Ed25519 keys of the key directory that was read from a URL. It ignores
// keys of other kinds. In a directory at DirectoryPath, the kid of a key has to be its thumbprint.
func ParseDirectory(text []byte, from *url.URL) ([]PublicKey, error) {
	var set struct {
		Keys []jwk `json:"keys"`
	}
	if err := json.Unmarshal(text, &set); err != nil || set.Keys == nil {
		return nil, errors.New("not a JWK Set")
	}
	if len(set.Keys) > maxKeys {
		return nil, fmt.Errorf("%d keys, the maximum is %d", len(set.Keys), maxKeys)
	}
	var keys []PublicKey
	for i, k := range set.Keys {
		if k.Type != typeOKP || k.Curve != curveEd25519 {
			continue
		}
		x, err := base64.RawURLEncoding.DecodeString(k.X)
		if err != nil || len(x) != ed25519.PublicKeySize {
			return nil, fmt.Errorf("key %d is malformed", i+1)
		}
		p := newPublicKey(x)
		if from.Path == DirectoryPath && k.ID != "" && k.ID != p.id {
			return nil, fmt.Errorf("key %d has the kid %q, but must have its thumbprint %s", i+1, k.ID, p.id)
		}
		keys = append(keys, p)
	}
	return keys, nil
}

// DirectoryURL returns the URL at which verifiers find the keys of an agent: the agent itself or,
// if the agent is an origin alone, as in the first draft of the protocol, DirectoryPath there.
func DirectoryURL(agent string) (*url.URL, error) {
	u, err := checkAgent(agent)
	if err == nil && (u.Path == "" || u.Path == "/") && u.RawQuery == "" {
		u.Path = DirectoryPath
	}
	return u, err
}

// checkAgent returns an error if agent is no absolute https URL without user information and fragment.
func checkAgent(agent string) (*url.URL, error) {
	u, err := url.Parse(agent)
	if err != nil || u.Scheme != "https" || u.Hostname() == "" || u.User != nil || u.Fragment != "" {
		return nil, errors.New("must be an https:// URL with a host, without a password and a fragment")
	}
	return u, nil
}
