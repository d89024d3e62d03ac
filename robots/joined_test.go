package robots_test

import (
	"testing"

	"robotsproxy/robots"
)

// TestJoinedAgent: lines that do not end a list of agents (RFC 9309 2.2.4) give its rules to the agents before
// them.
func TestJoinedAgent(t *testing.T) {
	const text = "user-agent: *\ncrawl-delay: 5\n\nuser-agent: badbot\nuser-agent: b\nsitemap: /s\n# c\nuser-agent: B\ndisallow: /\nsitemap: /t\nallow: /a\n\n" +
		"user-agent: c\n\n# c\nuser-agent: d\ndisallow: /\n\nuser-agent: d1\nx: y\nuser-agent: *\ndisallow: /b\n\n" +
		"user-agent: e\ncontent-signal: search=no\nuser-agent: f\ncontent-signal: ai-train=no\nuser-agent: g\ndisallow: /\n"
	for _, d := range robots.Dialects() {
		f := robots.Parse([]byte(text), d)
		for _, c := range []struct {
			agent      string
			line, want int
		}{
			{"x", 9, 1}, {"x", 11, 1}, {"x", 22, 0}, {"badbot", 9, 4}, {"badbot", 11, 4}, {"b", 9, 0},
			{"c", 17, 0}, {"d", 17, 0}, {"d1", 22, 19}, {"d1", 9, 0}, {"x", 0, 0},
			{"e", 25, 0}, {"e", 27, 24}, {"f", 27, 0}, {"f", 29, 26}, {"e", 29, 24}, {"g", 29, 0},
		} {
			want := c.want
			if d.LettersOnly && c.agent == "d1" || d.Delay == robots.DelayOfGroup && want == 1 {
				continue // it has no group of its own; the delay ends the list
			}
			if got := f.For(c.agent).JoinedAgent(c.line); got != want {
				t.Errorf("%s: %s, rule in line %d: got %d, want %d", d.Name, c.agent, c.line, got, want)
			}
		}
	}
	if got := (robots.Group{}).JoinedAgent(1); got != 0 {
		t.Errorf("the zero Group: %d", got)
	}
	if got := robots.Parse([]byte(text), robots.Standard()).For("x").DelayLine(); got != 2 {
		t.Errorf("line of the delay: %d", got)
	}
}
