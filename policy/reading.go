package policy

import (
	"slices"

	"robotsproxy/robots"
	"robotsproxy/robots/cache"
)

// A Reading is how a request was read to be judged: what a Decision rests on,
// beside the file. It is for explanations and decides nothing.
type Reading struct {
	Dialect    robots.Dialect
	Tokens     []string     // the product tokens that a group was looked for by, the most significant first
	Configured bool         // they are Options.ProductToken, not the header's
	Group      robots.Group // the one that applies; zero where no file was asked
	PathQuery  string       // what its rules were asked about; "" where none were
}

// Reading says how Decide read the request of which it made d.
func (e *Engine) Reading(r Request, d Decision) Reading {
	x := Reading{Dialect: e.dialect(r.Client), Tokens: slices.Clone(e.tokens(r.UserAgent)), Configured: e.fixed != nil}
	if d.Ruling.Outcome == cache.Rules {
		x.Group = d.Ruling.File.For(x.Tokens...)
		if d.Reason != ReasonTunnel { // which is judged by its host
			_, x.PathQuery = match(x.Group, r.PathQuery)
		}
	}
	return x
}

// match asks a group about a path, and gives the form of it that the answer
// is about: as it was sent or, if that is allowed, as the origin will read it.
func match(g robots.Group, pathQuery string) (v robots.Verdict, asked string) {
	v = g.Match(pathQuery)
	if plain, other := withoutDots(pathQuery); other && v.Allow {
		return g.Match(plain), plain
	}
	return v, pathQuery
}
