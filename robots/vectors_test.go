package robots_test

import (
	"bufio"
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"robotsproxy/robots"
)

// The vectors are the examples of RFC 9309 and of the search engines' own
// documents, as data. A line without dialects holds under each.

// eachVector calls check for every line of a file under each dialect it holds under.
func eachVector[T any](t *testing.T, file string, dialects func(T) []string, check func(robots.Dialect, T)) {
	t.Helper()
	f, err := os.Open("testdata/" + file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var v T
		if err := json.Unmarshal(lines.Bytes(), &v); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		checked := 0
		for _, d := range robots.Dialects() {
			if named := dialects(v); named == nil || slices.Contains(named, d.Name) {
				check(d, v)
				checked++
			}
		}
		if named := dialects(v); named != nil && checked != len(named) {
			t.Errorf("%s: unknown dialect among %q", file, named)
		}
	}
}

func TestAccessVectors(t *testing.T) {
	type vector struct {
		Source, Name, Robots, Agent, URL string
		Allow                            bool
		Dialects                         []string
	}
	eachVector(t, "access.jsonl", func(v vector) []string { return v.Dialects }, func(d robots.Dialect, v vector) {
		path := robots.PathQuery(v.URL)
		if path == "/robots.txt" && !d.MatchRobotsTxt {
			return // the caller exempts it, not this package
		}
		got := robots.Parse([]byte(v.Robots), d).For(v.Agent).Match(path)
		if got.Allow != v.Allow {
			t.Errorf("%s: %s: %s: %s for %s: got %+v, want allow %t; robots.txt:\n%s", d.Name, v.Source, v.Name, v.URL, v.Agent, got, v.Allow, v.Robots)
		}
	})
}

// TestCarefulVectors: what the web writes, of which each dialect makes something else.
func TestCarefulVectors(t *testing.T) {
	type vector struct {
		Source, Name, Robots, Agent, URL string
		Encoded                          []byte `json:"robots_b64"`
		Allow                            bool
		CrawlDelay                       *float64 `json:"crawl_delay"`
		Dialects                         []string
	}
	eachVector(t, "careful.jsonl", func(v vector) []string { return v.Dialects }, func(d robots.Dialect, v vector) {
		target, err := robots.ParseTarget("GET", v.URL)
		if err != nil {
			t.Fatal(err)
		}
		if robots.IsRobotsTxt(target.PathQuery) {
			return // the caller exempts it, not this package
		}
		g := robots.ParseFor(target.Origin, v.Robots+string(v.Encoded), d).For(v.Agent)
		if got := g.Match(target.PathQuery); got.Allow != v.Allow {
			t.Errorf("%s: %s: %s: got %+v, want allow %t", d.Name, v.Source, v.Name, got, v.Allow)
		}
		if got := g.CrawlDelay().Seconds(); v.CrawlDelay != nil && got != *v.CrawlDelay {
			t.Errorf("%s: %s: %s: got %v s, want %v s", d.Name, v.Source, v.Name, got, *v.CrawlDelay)
		}
	})
}

func TestCrawlDelayVectors(t *testing.T) {
	const most = 10 * time.Second // the vectors have the delay after the limit that policy applies
	type vector struct {
		Source, Name, Robots, Agent string
		Seconds                     float64
		Dialects                    []string
	}
	eachVector(t, "crawl_delay.jsonl", func(v vector) []string { return v.Dialects }, func(d robots.Dialect, v vector) {
		want := time.Duration(v.Seconds * float64(time.Second))
		got := robots.Parse([]byte(v.Robots), d).For(v.Agent).CrawlDelay()
		if min(got, most) != want {
			t.Errorf("%s: %s: %s: got %v, want %v; robots.txt:\n%s", d.Name, v.Source, v.Name, got, want, v.Robots)
		}
	})
}

func TestUserAgentVectors(t *testing.T) {
	type vector struct {
		UserAgent string  `json:"user_agent"`
		Token     *string `json:"product_token"`
		Groups    []string
		Group     string
		Why       string
		Dialects  []string
	}
	eachVector(t, "user_agents.jsonl", func(v vector) []string { return v.Dialects }, func(d robots.Dialect, v vector) {
		tokens := robots.ProductTokens(v.UserAgent)
		if v.Token != nil {
			first := ""
			if len(tokens) > 0 {
				first = tokens[0]
			}
			if first != *v.Token {
				t.Errorf("%s: got %q of %q, want %q (%s)", v.UserAgent, first, tokens, *v.Token, v.Why)
			}
			return
		}
		var text strings.Builder
		for _, name := range v.Groups {
			text.WriteString("User-agent: " + name + "\nDisallow: /\n\n")
		}
		if got := robots.Parse([]byte(text.String()), d).For(tokens...).Name(); got != v.Group {
			t.Errorf("%s: %s (%q) among %q: got %q, want %q (%s)", d.Name, v.UserAgent, tokens, v.Groups, got, v.Group, v.Why)
		}
	})
}
