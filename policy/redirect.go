package policy

import (
	"context"
	"fmt"

	"robotsproxy/robots"
	"robotsproxy/robots/cache"
	"robotsproxy/robots/fetch"
)

// AllowsRedirect says why the fetch f of a robots.txt may not follow a redirect to an
// address at another origin; it is Options.Allowed of robots/fetch. The address is judged
// by the robots.txt of its own origin, for the product token that f is for: a redirect
// is no way around what that origin disallows. The error is fetch.ErrDisallowed, or
// says why the file there is not known.
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
		if j := match(ruling.File.For(m.tokens...), &r, e.literal(&m, e.o.Dialect)); !j.Allow {
			return fetch.ErrDisallowed
		}
		return nil
	default:
		return fmt.Errorf("robots.txt of %s: %s", to, ruling.Outcome)
	}
}

// redirectTokens are the product tokens that the redirects of a fetch are judged for.
func (e *Engine) redirectTokens(f fetch.Request) []string {
	switch {
	case f.Token != "":
		return []string{f.Token}
	case e.fixed != nil:
		return e.fixed
	}
	return e.agents.read(f.UserAgent).tokens
}
