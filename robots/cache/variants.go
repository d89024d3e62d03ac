package cache

import (
	"slices"
	"strings"
	"sync"

	"robotsproxy/robots"
)

// A Query says which file a caller needs, and which client causes its fetch.
//
// The response of an origin may depend on the User-Agent of the request. Therefore the cache
// keeps the files of different Tokens apart, so that no client's User-Agent decides for another
// client. Tokens that differ only in case are one token. The cache fetches the file with the
// spelling of the first Query. The number of Tokens for one origin is limited; see [MaxTokens].
// A Query with a Token over the limits gets the proxy's own file.
type Query struct {
	Origin robots.Origin

	// Token is the product token to fetch with. With "", the file is fetched with Options.UserAgent.
	Token string

	// Client is the client against whose share a fetch counts. It is any string.
	Client string

	// OnlyKnown has Lookup return ErrUnknown instead of waiting, if memory has no entry that is usable.
	OnlyKnown bool

	// Direct marks a lookup for a redirect of another origin's file to Origin, to decide whether
	// the redirect may be followed. With Direct, redirects of Origin's file to a third origin are
	// not followed. The lookup waits for no slot, because the other fetch already has one. An
	// entry that was fetched without Direct is used too.
	Direct bool
}

const (
	// MaxTokens is the number of product tokens for which the cache keeps the file of one origin,
	// in addition to the proxy's own file.
	MaxTokens = 8

	// maxTokensEach is how many of these tokens one client may cause.
	maxTokensEach = 2

	// maxTokenBytes is the maximum length of a product token that has a file of its own.
	maxTokenBytes = 64
)

// A key identifies one file in the cache; see [Query].
type key struct {
	origin robots.Origin

	// token is "" for the proxy's own file.
	token string

	// direct is Query.Direct.
	direct bool
}

// inStore reports whether the Store keeps the entry of k: only the proxy's own files are stored and, with
// Options.StoreTokens, those for product tokens. Each process fetches the others itself, and again after a restart.
func (c *Cache) inStore(k key) bool {
	return c.store != nil && !k.direct && (k.token == "" || c.storeTokens)
}

// variants are the product tokens for which files of an origin are kept or being fetched, and
// the clients that caused these files. The zero value is empty. Any number of goroutines may use
// it.
type variants struct {
	// mu guards the map. No other lock is taken while it is held.
	mu sync.Mutex
	of map[robots.Origin][]variant
}

type variant struct {
	token, client string

	// files says whether there is a file with Query.Direct, and one without.
	files [2]bool
}

// fileIndex is the index of the file of k in variant.files.
func (k key) fileIndex() int {
	if k.direct {
		return 0
	}
	return 1
}

// admit returns the key for q. It has the Token of q if a file for that token is kept or may be
// kept. Otherwise it is the key of the proxy's own file. If the token is known in another case,
// the key has the known spelling (RFC 9309 2.2.1).
func (v *variants) admit(q Query) key {
	own := key{origin: q.Origin, direct: q.Direct}
	if q.Token == "" || len(q.Token) > maxTokenBytes {
		return own
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	k := key{q.Origin, q.Token, q.Direct}
	if v.addFile(k) {
		return k
	}
	caused := 0
	for _, known := range v.of[q.Origin] {
		// The lengths must be equal, because EqualFold takes "k" for U+212A KELVIN SIGN too.
		if len(known.token) == len(q.Token) && strings.EqualFold(known.token, q.Token) {
			k.token = known.token
			v.addFile(k)
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

// addFile adds the file of k if its token is known, and reports whether it is. The caller
// holds v.mu.
func (v *variants) addFile(k key) bool {
	for i, known := range v.of[k.origin] {
		if known.token == k.token {
			v.of[k.origin][i].files[k.fileIndex()] = true
			return true
		}
	}
	return false
}

// add adds a variant for k. The caller holds v.mu.
func (v *variants) add(k key, client string) key {
	if v.of == nil {
		v.of = make(map[robots.Origin][]variant)
	}
	// A substring would keep the request's head in memory.
	k.origin.Host, k.token = strings.Clone(k.origin.Host), strings.Clone(k.token)
	added := variant{token: k.token, client: strings.Clone(client)}
	added.files[k.fileIndex()] = true
	v.of[k.origin] = append(v.of[k.origin], added)
	return k
}

// remember adds a key that is being put into memory, because an eviction may have removed
// it during the fetch. The client that caused it is no longer known.
func (v *variants) remember(k key) {
	if k.token == "" {
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if !v.addFile(k) {
		v.add(k, "")
	}
}

// remove removes the file of k.
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
	switch all[i].files[k.fileIndex()] = false; {
	case all[i].files != [2]bool{}:
	case len(all) == 1:
		delete(v.of, k.origin)
	default:
		v.of[k.origin] = slices.Delete(all, i, i+1)
	}
}

// tokens returns the product tokens for which files of an origin are kept.
func (v *variants) tokens(o robots.Origin) []string {
	v.mu.Lock()
	defer v.mu.Unlock()
	var all []string
	for _, known := range v.of[o] {
		all = append(all, known.token)
	}
	return all
}
