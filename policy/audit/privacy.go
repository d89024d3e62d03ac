package audit

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"net"
	"strings"

	"robotsproxy/robots/fetch"
)

// pseudonymBytes is how many bytes of a hash name a client. With 16, no two of a billion
// clients have the same name.
const pseudonymBytes = 16

// Pseudonym returns a function that names a client by a keyed hash (HMAC). With the key, the
// name of a client can be computed again. Without it, nobody can find the client by trying all
// addresses.
func Pseudonym(key []byte) func(client string) string {
	return func(client string) string {
		if client == "" {
			return ""
		}
		mac := hmac.New(sha256.New, key)
		mac.Write([]byte(client))
		return hex.EncodeToString(mac.Sum(nil)[:pseudonymBytes])
	}
}

// IsPseudonym reports whether a name has the form of a Pseudonym.
func IsPseudonym(name string) bool {
	b, err := hex.DecodeString(name)
	return err == nil && len(b) == pseudonymBytes
}

// Anonymous returns no name for any client.
func Anonymous(string) string { return "" }

// redact removes from an error's text the address of the client (remote), which can be hidden only where client is, and the query
// of the URL (target) if the Options leave it out of records.
func redact(text, remote, target string, o *Options) string {
	host, _, err := net.SplitHostPort(remote)
	if err != nil {
		host = remote
	}
	if host != "" {
		text = strings.ReplaceAll(text, host, "(client)")
	}
	if o.DropQuery {
		if _, query, _ := strings.Cut(target, "?"); query != "" {
			text = strings.ReplaceAll(text, "?"+query, "")
		}
	}
	return o.withoutQueries(text)
}

// withoutQueries removes the queries of the URLs in a text if the Options leave them out.
func (o *Options) withoutQueries(text string) string {
	if o.DropQuery {
		return fetch.DropQueries(text)
	}
	return text
}

// withoutQueriesIn is withoutQueries for a Preference, whose length then is that of what is left of it.
func (o *Options) withoutQueriesIn(p Preference) Preference {
	if text := o.withoutQueries(p.Text); text != p.Text {
		return Preference{text, len(text)}
	}
	return p
}
