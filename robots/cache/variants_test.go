package cache

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"robotsproxy/robots"
	"robotsproxy/robots/fetch"
)

// picky is a Fetcher of an origin that responds with 403 to one User-Agent, and with a file to
// all others.
type picky struct{ refuses string }

func (p picky) Fetch(_ context.Context, r fetch.Request) *fetch.Result {
	a := file(-1)
	if r.UserAgent == p.refuses {
		a = status(403)
	}
	a.UserAgent, a.Fetched = r.UserAgent, time.Now()
	return &a
}

// TestTokensApart: the response for one product token does not apply to other tokens or to the
// proxy's own file.
func TestTokensApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCache(t, Options{Fetcher: picky{"sqlmap"}})
		for _, ask := range []struct {
			token string
			want  Meaning
		}{{"sqlmap", NoFile}, {"FooBot", Rules}, {"", Rules}, {"sqlmap", NoFile}} {
			e, err := c.Lookup(t.Context(), Query{Origin: site, Token: ask.token, Client: ask.token}, robots.Standard())
			if err != nil {
				t.Fatal(err)
			}
			if r := e.Under(robots.Standard()); r.Meaning != ask.want || e.Token() != ask.token {
				t.Errorf("for %q: %v, fetched as %q", ask.token, r.Meaning, e.Token())
			}
		}
	})
}

// TestTokensFolded: product tokens that differ only in the case of ASCII letters are one
// token (RFC 9309 2.2.1), and the file is fetched with the first spelling. Unicode folds
// some other letters to ASCII letters. Tokens with these are different, because the origin
// may respond to them in another way.
func TestTokensFolded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCache(t, Options{Fetcher: picky{}})
		for _, ask := range []struct{ token, want string }{
			{"FooBot", "FooBot"}, {"foobot", "FooBot"}, {"FOOBOT", "FooBot"}, {"FooBot", "FooBot"},
			{"kbot", "kbot"}, {"\u212abot", ""}, // KELVIN SIGN, a third token
		} {
			for _, direct := range []bool{false, true} {
				e, err := c.Lookup(t.Context(), Query{Origin: site, Token: ask.token, Client: "a", Direct: direct}, robots.Standard())
				if err != nil {
					t.Fatal(err)
				}
				if e.Token() != ask.want {
					t.Errorf("for %q: fetched as %q, want %q", ask.token, e.Token(), ask.want)
				}
			}
		}
		if got := c.variants.tokens(site); !slices.Equal(got, []string{"FooBot", "kbot"}) {
			t.Errorf("remembered: %q", got)
		}
	})
}

// TestTokensBounded: a client causes two tokens, an origin has eight; further ones get the
// proxy's own file.
func TestTokensBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCache(t, Options{Fetcher: picky{}})
		got := func(client, token string) string {
			e, err := c.Lookup(t.Context(), Query{Origin: site, Token: token, Client: client}, robots.Standard())
			if err != nil {
				t.Fatal(err)
			}
			return e.Token()
		}
		for i, want := range []string{"A0", "A1", "", ""} {
			if token := got("a", fmt.Sprintf("A%d", i)); token != want {
				t.Errorf("token %d of one client: %q, want %q", i, token, want)
			}
		}
		if token := got("b", "A0"); token != "A0" {
			t.Errorf("another client does not share the file: %q", token)
		}
		for i := range 10 {
			want := fmt.Sprintf("B%d", i)
			if i+2 >= MaxTokens {
				want = ""
			}
			if token := got(fmt.Sprint("client", i), fmt.Sprintf("B%d", i)); token != want {
				t.Errorf("token %d of an origin: %q, want %q", i+2, token, want)
			}
		}
		if n := len(c.variants.tokens(site)); n != MaxTokens {
			t.Errorf("%d tokens are remembered", n)
		}
		if !c.Purge(site) || len(slices.Collect(c.All())) != 0 || len(c.variants.of) != 0 {
			t.Errorf("after a purge: %v", c.variants.of)
		}
	})
}

// TestTokensOfFailedFetches: a file that is not kept uses up no token of its origin.
func TestTokensOfFailedFetches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours := fetch.Result{MaxAge: -1, OwnFailure: true, Err: errDown}
		c := newCache(t, Options{Fetcher: &script{answers: []fetch.Result{ours}}})
		for i := range 20 {
			if _, err := c.Lookup(t.Context(), Query{Origin: site, Token: fmt.Sprint("T", i), Client: "a"}, robots.Standard()); err != nil {
				t.Fatal(err)
			}
		}
		if len(c.variants.of) != 0 {
			t.Errorf("remembered: %v", c.variants.of)
		}
	})
}

// TestTokensOfCallersThatLeft: a caller that leaves before its fetch has a slot uses up no token
// of the origin.
func TestTokensOfCallersThatLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCache(t, Options{Fetcher: picky{}, MaxFetches: 1})
		giveBack, err := c.slots.acquire(t.Context(), t.Context(), "another")
		if err != nil {
			t.Fatal(err)
		}
		defer giveBack()
		ctx, leave := context.WithTimeout(t.Context(), time.Second)
		defer leave()
		if _, err := c.Lookup(ctx, Query{Origin: site, Token: "FooBot", Client: "a"}, robots.Standard()); err == nil {
			t.Fatal("there was a place")
		}
		if len(c.variants.of) != 0 {
			t.Errorf("remembered: %v", c.variants.of)
		}
	})
}

// TestTokensOfTwoFiles: a purge finds the file for a token even if the file that was fetched to
// judge a redirect is gone.
func TestTokensOfTwoFiles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCache(t, Options{Fetcher: picky{}})
		q := Query{Origin: site, Token: "FooBot", Client: "a", Direct: true}
		for range 2 { // the first one is for a redirect
			if _, err := c.Lookup(t.Context(), q, robots.Standard()); err != nil {
				t.Fatal(err)
			}
			q.Direct = false
		}
		c.entries.Invalidate(key{site, "FooBot", true})
		if !c.Purge(site) || len(slices.Collect(c.All())) != 0 || len(c.variants.of) != 0 {
			t.Errorf("after a purge: %v", c.variants.of)
		}
	})
}
