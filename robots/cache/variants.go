package cache

import (
	"slices"
	"strings"
	"sync"

	"robotsproxy/robots"
)

const (
	// MaxTokens is the number of product tokens for which the file of one origin is kept
	// at once, beside the proxy's own.
	MaxTokens = 8

	// maxTokensEach is how many of these tokens one client may cause.
	maxTokensEach = 2

	// maxTokenBytes is how long a product token may be to have a file of its own.
	maxTokenBytes = 64
)

// A key names one file in the cache; see [Query].
type key struct {
	origin robots.Origin
	token  string // "": the proxy's own
	direct bool   // see Query
}

// variants has the product tokens for which an origin's file is kept, or being fetched,
// and the clients that caused that. The zero value is empty; any number of goroutines may
// use it.
type variants struct {
	mu sync.Mutex // guards all below; no other lock is taken under it
	of map[robots.Origin][]variant
}

type variant struct {
	token, client string
	files         [2]bool // whether there is the one with Query.Direct, and the one without
}

// file is where k's stands in variant.files.
func (k key) file() int {
	if k.direct {
		return 0
	}
	return 1
}

// admit gives the key for q: with its Token if the origin's file is kept for that token,
// or may be; else that of the proxy's own file. A token that is known with letters of the
// other case is the known one (RFC 9309 2.2.1).
func (v *variants) admit(q Query) key {
	own := key{origin: q.Origin, direct: q.Direct}
	if q.Token == "" || len(q.Token) > maxTokenBytes {
		return own
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	k := key{q.Origin, q.Token, q.Direct}
	if v.has(k) {
		return k
	}
	caused := 0
	for _, known := range v.of[q.Origin] {
		// The length: a letter of ASCII must not be one of another script, as k is KELVIN SIGN.
		if len(known.token) == len(q.Token) && strings.EqualFold(known.token, q.Token) {
			k.token = known.token
			v.has(k)
			return k
		}
		if known.client == q.Client {
			caused++
		}
	}
	if caused >= maxTokensEach || len(v.of[q.Origin]) >= MaxTokens {
		return own
	}
	return v.add(k, q.Client)
}

// has says whether k's token is known, and then remembers k too. v.mu is held.
func (v *variants) has(k key) bool {
	for i, known := range v.of[k.origin] {
		if known.token == k.token {
			v.of[k.origin][i].files[k.file()] = true
			return true
		}
	}
	return false
}

// add remembers k. The caller holds v.mu.
func (v *variants) add(k key, client string) key {
	if v.of == nil {
		v.of = make(map[robots.Origin][]variant)
	}
	k.origin.Host, k.token = strings.Clone(k.origin.Host), strings.Clone(k.token) // else the request's head stays in memory
	added := variant{token: k.token, client: strings.Clone(client)}
	added.files[k.file()] = true
	v.of[k.origin] = append(v.of[k.origin], added)
	return k
}

// keep remembers a key that is being stored, since an eviction may have removed it during
// the fetch. The client that caused it is then not known any more.
func (v *variants) keep(k key) {
	if k.token == "" {
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if !v.has(k) {
		v.add(k, "")
	}
}

// remove forgets k, of which nothing is kept any more.
func (v *variants) remove(k key) {
	if k.token == "" {
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	all := v.of[k.origin]
	i := slices.IndexFunc(all, func(known variant) bool { return known.token == k.token })
	if i < 0 {
		return
	}
	switch all[i].files[k.file()] = false; {
	case all[i].files != [2]bool{}:
	case len(all) == 1:
		delete(v.of, k.origin)
	default:
		v.of[k.origin] = slices.Delete(all, i, i+1)
	}
}

// tokens gives the product tokens for which an origin's file is kept.
func (v *variants) tokens(o robots.Origin) []string {
	v.mu.Lock()
	defer v.mu.Unlock()
	var all []string
	for _, known := range v.of[o] {
		all = append(all, known.token)
	}
	return all
}
