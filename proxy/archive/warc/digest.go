package warc

import (
	"bytes"
	"crypto/md5"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base32"
	"encoding/hex"
	"fmt"
	"hash"
	"strings"
)

// A digest computes the hash that a field has, and compares it. The zero value computes nothing.
type digest struct {
	hash.Hash

	// field is the value of the field, and want the hash in it. compared says that the content has it.
	field    string
	want     []byte
	compared bool
}

// algorithms are the algorithms of digests by their names in lower case, without hyphens.
var algorithms = map[string]func() hash.Hash{
	"md5": md5.New, "sha1": sha1.New, "sha256": sha256.New, "sha384": sha512.New384, "sha512": sha512.New,
}

// parseDigest reads a field such as "sha256:6c5b…". The hash may be in hexadecimal digits or in
// base32 with or without padding: the format does not say which. known is false if the algorithm
// is unknown.
func parseDigest(field string) (d digest, known bool, err error) {
	name, value, _ := strings.Cut(field, ":")
	newHash := algorithms[strings.ReplaceAll(strings.ToLower(name), "-", "")]
	if newHash == nil {
		return d, false, nil
	}
	d = digest{Hash: newHash(), field: field}
	if d.want, err = hex.DecodeString(value); err != nil || len(d.want) != d.Size() {
		d.want, err = base32.StdEncoding.WithPadding(base32.NoPadding).DecodeString(strings.TrimRight(strings.ToUpper(value), "="))
	}
	if err != nil || len(d.want) != d.Size() {
		return digest{}, true, fmt.Errorf("invalid digest: %.100q", field)
	}
	return d, true, nil
}

// matches reports whether what was hashed has the digest of the field.
func (d digest) matches() bool { return bytes.Equal(d.Sum(nil), d.want) }
