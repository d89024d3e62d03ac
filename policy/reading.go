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
			x.PathQuery = match(x.Group, &r, e.literal(&m, x.Dialect)).asked
		}
	}
	return x
}

// A judgement is what a group says of a request's path.
type judgement struct {
	robots.Verdict
	asked string        // the form of the path and query that the verdict is about
	form  Form          // the changes that make that form
	spent robots.Effort // on all forms together
}

// match asks a group about a request's path: as it was sent and, as long as each is
// allowed, in the other forms in which its origin may read it. If all forms are
// allowed, the verdict is about the path without dot segments, which all origins
// remove. With literal that is the only other form.
func match(g robots.Group, r *Request, literal bool) (j judgement) {
	j.asked = r.PathQuery
	j.Verdict = g.MatchWithin(r.PathQuery, &j.spent)
	if r.Origin.Scheme == "ftp" {
		for _, path := range ftpReadings(r.PathQuery) {
			if !j.Allow {
				break
			}
			j.Verdict, j.asked, j.form = g.MatchWithin(path, &j.spent), path, AsFTP
		}
		return j
	}
	found := unusual(r.PathQuery)
	if literal {
		found &= DotsRemoved
	}
	if found == 0 || !j.Allow {
		return j
	}
	for path, form := range readings(r.PathQuery, found, &j.spent) {
		v := g.MatchWithin(path, &j.spent)
		if !v.Allow || form == DotsRemoved {
			j.Verdict, j.asked, j.form = v, path, form
		}
		if !v.Allow {
			break
		}
	}
	return j
}

// ftpReadings gives the other forms in which an FTP server may be asked for a path. They
// have no type code (which lists a directory whether or not its name ends in a slash) and
// no dot segments. There are two spellings, since FTP decodes what rules keep apart
// (RFC 3986 2.2, RFC 9309 2.2.2).
func ftpReadings(pathQuery string) []string {
	plain, code := robots.CutFTPType(pathQuery)
	if code == 'd' && !strings.HasSuffix(plain, "/") {
		plain += "/"
	}
	path, query, asked := strings.Cut(plain, "?")
	plain = withoutDots(path)
	if asked {
		plain += "?" + query
	}
	forms := []string{plain}
	if decoded, err := url.PathUnescape(plain); err == nil {
		forms = append(forms, spell(decoded, func(c byte) bool { return c > ' ' && c < 0x7f && c != '%' }), spell(decoded, isUnreserved))
	}
	return slices.DeleteFunc(forms, func(form string) bool { return form == pathQuery })
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
