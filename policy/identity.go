package policy

import (
	"errors"
	"strings"
	"sync"
	"sync/atomic"

	"robotsproxy/robots"
)

// maxAgents bounds the User-Agent headers that are cached, except for a few more during
// concurrent requests. maxHeader bounds the bytes that are read of User-Agent and From.
const (
	maxAgents = 8192
	maxHeader = 1 << 10
)

// Require is how clients must identify themselves to sites.
type Require uint8

// The zero value requires nothing.
const (
	RequireNothing Require = iota
	RequireToken           // a product token in the User-Agent header
	RequireContact         // a product token, and a web or e-mail address there or in From
)

// These are the Err of a Decision with ReasonIdentity.
var (
	ErrNoToken   = errors.New("the User-Agent header has no product token")
	ErrNoContact = errors.New("neither User-Agent nor From has a contact address")
)

// Unmet returns how a User-Agent header and From fail the requirement: ErrNoToken or
// ErrNoContact; nil: they meet it.
func (r Require) Unmet(userAgent, from string) error {
	if r == RequireNothing {
		return nil
	}
	return r.unmetBy(new(agentCache).parse(userAgent), from)
}

func (r Require) unmetBy(said *parsedAgent, from string) error {
	switch {
	case len(said.tokens) == 0:
		return ErrNoToken
	case r == RequireToken || said.contact || hasContact(from[:min(len(from), maxHeader)]):
		return nil
	}
	return ErrNoContact
}

// A TokenSource is where the product tokens of a request come from.
type TokenSource uint8

// The sources. Later ones take precedence.
const (
	FromHeader  TokenSource = iota // the User-Agent header
	FromOptions                    // Options.ProductToken
	FromClient                     // Client.ProductToken
)

// singleToken returns a list of one token; nil for "".
func singleToken(token string) []string {
	if token == "" {
		return nil
	}
	return []string{token}
}

// A parsedAgent is the content of a User-Agent header.
type parsedAgent struct {
	// tokens are the product tokens, the most significant first.
	tokens []string

	// contact says that the header has a web or e-mail address.
	contact bool
}

// agentCache caches parsed User-Agent headers. When it is full it drops all of them: to parse one
// again takes about a microsecond.
type agentCache struct {
	// known has *parsedAgent by header, and n is how many it has.
	known sync.Map
	n     atomic.Int64
}

func (a *agentCache) parse(userAgent string) *parsedAgent {
	if len(userAgent) > maxHeader {
		// One byte more shows that it was cut.
		userAgent = userAgent[:maxHeader+1]
	}
	if said, ok := a.known.Load(userAgent); ok {
		return said.(*parsedAgent)
	}
	if a.n.Add(1) > maxAgents {
		a.known.Clear()
		a.n.Store(1)
	}
	// The header and the tokens would keep a whole request's head in memory.
	userAgent = strings.Clone(userAgent)
	said := &parsedAgent{robots.ProductTokens(userAgent), hasContact(userAgent)}
	a.known.Store(userAgent, said)
	return said
}

// hasContact reports whether a header's value contains a web or e-mail address, as crawlers
// write them: "(+https://foo.example/bot)", "mailto:bot@foo.example", "<bot@foo.example>".
func hasContact(value string) bool {
	delimiter := func(r rune) bool { return r <= ' ' || strings.ContainsRune(`;,()<>[]{}"'`, r) }
	for word := range strings.FieldsFuncSeq(strings.ToLower(value), delimiter) {
		if isWebAddress(word) || isMailbox(word[strings.LastIndexByte(word, ':')+1:]) {
			return true
		}
	}
	return false
}

// isWebAddress reports whether a word ends with an http or https address.
func isWebAddress(word string) bool {
	before, rest, found := strings.Cut(word, "://")
	if !found || !strings.HasSuffix(before, "http") && !strings.HasSuffix(before, "https") {
		return false
	}
	if end := strings.IndexAny(rest, "/?#"); end >= 0 {
		rest = rest[:end]
	}
	_, err := robots.ParseOrigin("http", rest)
	return err == nil
}

// isMailbox reports whether a word has the form of an e-mail address with a domain that could be
// public.
func isMailbox(word string) bool {
	local, domain, _ := strings.Cut(strings.TrimRight(word, "."), "@")
	_, err := robots.ParseHost(domain)
	return local != "" && err == nil && strings.Contains(domain, ".")
}
