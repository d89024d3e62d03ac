package policy

import (
	"errors"
	"strings"
	"sync"
	"sync/atomic"

	"robotsproxy/robots"
)

// maxAgents bounds, but for a few, how many User-Agent headers are remembered
// with what they say; maxHeader bounds each, in octets, as it does From.
const (
	maxAgents = 8192
	maxHeader = 1 << 10
)

// Require is what a client has to say of itself to the sites.
type Require uint8

// What may be required. The zero value requires nothing.
const (
	RequireNothing Require = iota
	RequireToken           // a product token in the User-Agent header
	RequireContact         // that, and there or in From a way to reach somebody: a web or e-mail address
)

// Why a request is refused with ReasonIdentity: the Err of its Decision.
var (
	ErrNoToken   = errors.New("the User-Agent header names no product")
	ErrNoContact = errors.New("neither User-Agent nor From says how somebody can be reached")
)

// unmet says what a request lacks of what is required.
func (e *Engine) unmet(r *Request) error {
	if e.o.Require == RequireNothing {
		return nil
	}
	return e.o.Require.of(e.agents.read(r.UserAgent), r.From)
}

// Unmet says what a User-Agent header and From lack of what is required:
// ErrNoToken or ErrNoContact; nil: nothing.
func (q Require) Unmet(userAgent, from string) error {
	if q == RequireNothing {
		return nil
	}
	return q.of(new(agents).read(userAgent), from)
}

func (q Require) of(said *agent, from string) error {
	switch {
	case len(said.tokens) == 0:
		return ErrNoToken
	case q == RequireToken || said.contact || hasContact(from[:min(len(from), maxHeader)]):
		return nil
	}
	return ErrNoContact
}

// A TokenSource is what the product tokens of a request are from.
type TokenSource uint8

// Where they may be from: the first that there is, from below.
const (
	FromHeader  TokenSource = iota // the User-Agent header
	FromOptions                    // Options.ProductToken
	FromClient                     // Client.ProductToken
)

// tokens are the product tokens that a client may be known by, the most
// significant first.
func (e *Engine) tokens(m *member, userAgent string) ([]string, TokenSource) {
	switch {
	case m != nil && m.tokens != nil:
		return m.tokens, FromClient
	case e.fixed != nil:
		return e.fixed, FromOptions
	}
	return e.agents.read(userAgent).tokens, FromHeader
}

// alone is a list of one token; nil for none.
func alone(token string) []string {
	if token == "" {
		return nil
	}
	return []string{token}
}

// An agent is what a User-Agent header says.
type agent struct {
	tokens  []string // product tokens, the most significant first
	contact bool     // it says how somebody can be reached
}

// agents remembers what User-Agent headers say. When it is full it forgets all
// of them: to read one again costs about a microsecond.
type agents struct {
	known sync.Map // of *agent, by header
	n     atomic.Int64
}

func (a *agents) read(userAgent string) *agent {
	if len(userAgent) > maxHeader {
		userAgent = userAgent[:maxHeader+1] // one more, so that it is seen to be cut
	}
	if said, ok := a.known.Load(userAgent); ok {
		return said.(*agent)
	}
	if a.n.Add(1) > maxAgents {
		a.known.Clear()
		a.n.Store(1)
	}
	userAgent = strings.Clone(userAgent) // or it and the tokens would keep a whole request's head
	said := &agent{robots.ProductTokens(userAgent), hasContact(userAgent)}
	a.known.Store(userAgent, said)
	return said
}

// hasContact says whether a header's value has a web address or an e-mail
// address in it, as crawlers give them: "(+https://foo.example/bot)",
// "mailto:bot@foo.example", "<bot@foo.example>".
func hasContact(value string) bool {
	delimiter := func(r rune) bool { return r <= ' ' || strings.ContainsRune(`;,()<>[]{}"'`, r) }
	for word := range strings.FieldsFuncSeq(strings.ToLower(value), delimiter) {
		if isWebAddress(word) || isMailbox(word[strings.LastIndexByte(word, ':')+1:]) {
			return true
		}
	}
	return false
}

// isWebAddress says whether a word ends in an http or https address.
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

// isMailbox says whether a word has the form of an e-mail address; its domain
// is one that there could be on the Internet.
func isMailbox(word string) bool {
	local, domain, _ := strings.Cut(strings.TrimRight(word, "."), "@")
	_, err := robots.ParseHost(domain)
	return local != "" && err == nil && strings.Contains(domain, ".")
}

func first(tokens []string) string {
	if len(tokens) == 0 {
		return ""
	}
	return tokens[0]
}
