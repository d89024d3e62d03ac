package policy

import (
	"context"
	"fmt"

	"robotsproxy/robots"
	"robotsproxy/robots/cache"
	"robotsproxy/robots/fetch"
)

// AllowsRedirect returns an error if the fetch f of a robots.txt may not follow a redirect
// to an address at another origin; it is Options.Allowed of robots/fetch. The robots.txt of
// that origin decides, for the product token of f, so that a redirect cannot fetch what the
// origin disallows. A redirect to /robots.txt is always allowed, unless that origin is paused. The error is
// fetch.ErrDisallowed, matches ErrHeld, or says why the robots.txt there is not known.
func (e *Engine) AllowsRedirect(ctx context.Context, f fetch.Request, to robots.Origin, pathQuery string) error {
	if e.paused(&Request{Target: robots.Target{Origin: to}}) != nil {
		return ErrHeld
	}
	// RFC 9309 2.2.2: /robots.txt is always allowed.
	if robots.IsRobotsTxt(pathQuery) {
		return nil
	}
	r := Request{Client: f.Client, Target: robots.Target{Origin: to, PathQuery: pathQuery}}
	c := requestConfig{host: e.hosts.of(&r), tokens: singleToken(f.Token)}
	if c.tokens == nil {
		c.tokens, _ = e.tokens(&e.unknown, f.UserAgent)
	}
	if c.host.tooComplex {
		return fmt.Errorf("the entries of hosts for %s are too complex to judge the redirect", to)
	}
	if c.host.Robots == Ignore {
		return nil
	}
	entry, err := e.o.Cache.Lookup(ctx, cache.Query{Origin: to, Token: f.Token, Client: f.Client, Direct: true}, e.o.Dialect)
	if err != nil {
		return err
	}
	switch ruling := e.ruling(entry, e.o.Dialect, c.host.Host); ruling.Meaning {
	case cache.NoFile:
		return nil
	case cache.Rules:
		switch j := matchForms(ruling.File.For(c.tokens...), &r, e.countedChanges(&c, e.o.Dialect)); {
		case j.GaveUp:
			return fmt.Errorf("robots.txt of %s is too complex to judge the redirect", to)
		case !j.Allow:
			return fetch.ErrDisallowed
		}
		return nil
	default:
		return fmt.Errorf("robots.txt of %s: %s", to, ruling.Meaning)
	}
}
