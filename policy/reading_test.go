package policy_test

import (
	"slices"
	"testing"

	"robotsproxy/policy"
	"robotsproxy/robots"
	"robotsproxy/robots/fetch"
)

func TestReading(t *testing.T) {
	missing := answers{fetch.Result{Status: 404, MaxAge: -1, Connected: true}}
	for _, c := range []struct {
		name        string
		origin      answers
		token       string
		agent, path string
		tokens      []string
		group, read string
	}{
		{"the header's tokens", file(rules), "", "BarBot/1.0 FooBot/2.0", "/private", []string{"BarBot", "FooBot"}, "foobot", "/private"},
		{"a browser has none", file(rules), "", "Mozilla/5.0", "/all?q=1", nil, "*", "/all?q=1"},
		{"the configuration's token", file(rules), "FooBot", "BarBot/1.0", "/", []string{"FooBot"}, "foobot", "/"},
		{"judged as the origin will read it", file(rules), "", "FooBot", "/a/../private", []string{"FooBot"}, "foobot", "/private"},
		{"judged as sent", file(rules), "", "FooBot", "/private/../a", []string{"FooBot"}, "foobot", "/private/../a"},
		{"no file", missing, "", "FooBot", "/private", []string{"FooBot"}, "", ""},
		{"no file is asked", file(rules), "", "FooBot", "/robots.txt", []string{"FooBot"}, "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := engine(t, c.origin, policy.Options{ProductToken: c.token})
			r := ask(c.agent, c.path)
			d := e.Decide(t.Context(), r)
			x := e.Reading(r, d)
			if !slices.Equal(x.Tokens, c.tokens) || (x.Source == policy.FromOptions) != (c.token != "") || x.Group.Name() != c.group || x.PathQuery != c.read {
				t.Errorf("%+v", x)
			}
			if x.Dialect != robots.Standard() {
				t.Errorf("dialect %q", x.Dialect.Name)
			}
			if x.PathQuery != "" && x.Group.Match(x.PathQuery).Line != d.Line {
				t.Errorf("line %d decided, but line %d is explained", d.Line, x.Group.Match(x.PathQuery).Line)
			}
			for i := range x.Tokens {
				x.Tokens[i] = "changed by who was given it"
			}
			if again := e.Reading(r, d); !slices.Equal(again.Tokens, c.tokens) {
				t.Errorf("the engine's own tokens were given away: %q", again.Tokens)
			}
		})
	}
}
