package audit

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

// pseudonymOctets of a hash name a client: enough that no two of a billion have one.
const pseudonymOctets = 16

// Pseudonym gives the function that names a client by a hash, which whoever has key
// can make again and nobody else can: without a key, all addresses are soon tried.
func Pseudonym(key []byte) func(client string) string {
	return func(client string) string {
		if client == "" {
			return ""
		}
		mac := hmac.New(sha256.New, key)
		mac.Write([]byte(client))
		return hex.EncodeToString(mac.Sum(nil)[:pseudonymOctets])
	}
}

// IsPseudonym says whether a name may be one.
func IsPseudonym(name string) bool {
	octets, err := hex.DecodeString(name)
	return err == nil && len(octets) == pseudonymOctets
}

// Anonym names no client at all.
func Anonymous(string) string { return "" }

// discreet leaves out of an error's text what is not to be recorded of a client and
// of an address.
func discreet(text string, r *Record, o *Options) string {
	if o.Client != nil {
		if host := hostOf(r.Remote); host != "" {
			text = strings.ReplaceAll(text, host, "(client)")
		}
	}
	if o.DropQuery && r.Target != "" {
		if _, query, ok := strings.Cut(r.Target, "?"); ok && query != "" {
			text = strings.ReplaceAll(text, "?"+query, "")
		}
	}
	return text
}

// hostOf is the address of an address and port.
func hostOf(remote string) string {
	i := strings.LastIndexByte(remote, ':')
	if i < 0 {
		return remote
	}
	return strings.Trim(remote[:i], "[]")
}
