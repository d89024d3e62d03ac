package policy

import (
	"fmt"
	"net/url"
	"slices"
	"strings"

	"robotsproxy/robots"
	"robotsproxy/robots/cache"
)

// A Reading is how a request was read to be judged: what a Decision rests on,
// beside the file. It is for explanations and decides nothing.
type Reading struct {
	Dialect   robots.Dialect
	Tokens    []string     // the product tokens that a group was looked for by, the most significant first
	Source    TokenSource  // what they are from
	Group     robots.Group // the one that applies; zero where no file was asked
	PathQuery string       // what its rules were asked about; "" where none were
}

// Reading says how Decide read the request of which it made d.
func (e *Engine) Reading(r Request, d Decision) Reading {
	m := e.matter(&r)
	x := Reading{Dialect: e.dialect(m.member), Tokens: slices.Clone(m.tokens), Source: m.source}
	if d.Ruling.Outcome == cache.Rules {
		x.Group = d.Ruling.File.For(x.Tokens...)
		if d.Reason != ReasonTunnel { // which is judged by its host
			_, x.PathQuery = match(x.Group, r)
		}
	}
	return x
}

// match asks a group about a request's path, and gives the form of it that the
// answer is about: as it was sent or, if that is allowed, the first form in
// which the origin may read it that is not.
func match(g robots.Group, r Request) (v robots.Verdict, asked string) {
	v, asked = g.Match(r.PathQuery), r.PathQuery
	for _, form := range asRead(r) {
		if !v.Allow {
			break
		}
		v, asked = g.Match(form), form
	}
	return v, asked
}

// asRead gives the forms in which an origin will read a request's path and
// query, where they are others: without dot segments; for ftp also without the
// type code, which has a directory listed whether its name ends in a slash or
// not, and in the two spellings that rules may have it in, since FTP decodes
// what the rules keep apart (RFC 3986 2.2, RFC 9309 2.2.2).
func asRead(r Request) []string {
	if r.Origin.Scheme != "ftp" {
		if plain, other := withoutDots(r.PathQuery); other {
			return []string{plain}
		}
		return nil
	}
	plain, code := robots.CutFTPType(r.PathQuery)
	if code == 'd' && !strings.HasSuffix(plain, "/") {
		plain += "/"
	}
	plain, _ = withoutDots(plain)
	forms := []string{plain}
	if decoded, err := url.PathUnescape(plain); err == nil {
		forms = append(forms, spell(decoded, func(c byte) bool { return c > ' ' && c < 0x7f && c != '%' }), spell(decoded, isUnreserved))
	}
	return slices.DeleteFunc(forms, func(form string) bool { return form == r.PathQuery })
}

// spell writes a decoded path: what is not literal, but for slashes, is escaped.
func spell(path string, literal func(byte) bool) string {
	var b strings.Builder
	for i := range len(path) {
		if c := path[i]; c == '/' || literal(c) {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}

// isUnreserved is RFC 3986 2.3.
func isUnreserved(c byte) bool {
	return 'a' <= c|0x20 && c|0x20 <= 'z' || '0' <= c && c <= '9' || strings.IndexByte("-._~", c) >= 0
}
