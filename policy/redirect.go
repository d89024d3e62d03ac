package policy

import (
	"context"
	"fmt"

	"robotsproxy/robots"
	"robotsproxy/robots/cache"
	"robotsproxy/robots/fetch"
)

// AllowsRedirect returns an error if the fetch f of a robots.txt may not follow a redirect
// to an address at another origin; it is Options.Allowed of robots/fetch. It judges the
// address by the robots.txt of the address's own origin, for the product token that f is
// for, so that a redirect is no way around what that origin disallows. A /robots.txt may
// always be followed. The error is fetch.ErrDisallowed, or says why the robots.txt there
// is not known.
func (e *Engine) AllowsRedirect(ctx context.Context, f fetch.Request, to robots.Origin, pathQuery string) error {
	if robots.IsRobotsTxt(pathQuery) { // RFC 9309 2.2.2
		return nil
	}
	r := Request{Client: f.Client, Origin: to, PathQuery: pathQuery}
	m := matter{entry: e.hosts.entry(to.Host), tokens: e.redirectTokens(f)}
	if m.treatment() == Ignore {
		return nil
	}
	entry, err := e.o.Book.Lookup(ctx, cache.Query{Origin: to, Token: f.Token, Client: f.Client, Direct: true}, e.o.Dialect)
	if err != nil {
		return err
	}
	switch ruling := entry.Under(e.o.Dialect); ruling.Outcome {
	case cache.NoFile:
		return nil
	case cache.Rules:
		switch j := match(ruling.File.For(m.tokens...), &r, e.literal(&m, e.o.Dialect)); {
		case j.GaveUp:
			return fmt.Errorf("robots.txt of %s is too complex to judge the redirect", to)
		case !j.Allow:
			return fetch.ErrDisallowed
		}
		return nil
	default:
		return fmt.Errorf("robots.txt of %s: %s", to, ruling.Outcome)
	}
}

// redirectTokens gives the product tokens for which the redirects of a fetch are judged.
func (e *Engine) redirectTokens(f fetch.Request) []string {
	switch {
	case f.Token != "":
		return []string{f.Token}
	case e.fixed != nil:
		return e.fixed
	}
	return e.agents.read(f.UserAgent).tokens
}
