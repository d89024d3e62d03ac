package robots_test

import (
	"bufio"
	"encoding/json"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"robotsproxy/robots"
)

// The vectors are the examples of RFC 9309 and of the search engines' own
// documents, as data. A line without dialects holds under each.
const dialect = "standard"

// vectors reads the lines of a file that apply to the dialect.
func vectors[T any](t *testing.T, file string, dialects func(T) []string) []T {
	t.Helper()
	f, err := os.Open("testdata/" + file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var out []T
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var v T
		if err := json.Unmarshal(lines.Bytes(), &v); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		if d := dialects(v); d == nil || slices.Contains(d, dialect) {
			out = append(out, v)
		}
	}
	if len(out) == 0 {
		t.Fatalf("%s: no line applies to %s", file, dialect)
	}
	return out
}

func TestAccessVectors(t *testing.T) {
	type vector struct {
		Source, Name, Robots, Agent, URL string
		Allow                            bool
		Dialects                         []string
	}
	for _, v := range vectors(t, "access.jsonl", func(v vector) []string { return v.Dialects }) {
		u, err := url.Parse(v.URL)
		if err != nil {
			t.Fatal(err)
		}
		_, path, _ := strings.Cut(v.URL, u.Host)
		path, _, _ = strings.Cut(path, "#")
		if path == "/robots.txt" {
			continue // exempt by policy, not by this package
		}
		got := robots.Parse([]byte(v.Robots), robots.Standard()).For(v.Agent).Match(path)
		if got.Allow != v.Allow {
			t.Errorf("%s: %s: %s for %s: got %+v, want allow %t; robots.txt:\n%s", v.Source, v.Name, v.URL, v.Agent, got, v.Allow, v.Robots)
		}
	}
}

func TestCrawlDelayVectors(t *testing.T) {
	const most = 10 * time.Second // the vectors give the value in force, which policy caps
	type vector struct {
		Source, Name, Robots, Agent string
		Seconds                     float64
		Dialects                    []string
	}
	for _, v := range vectors(t, "crawl_delay.jsonl", func(v vector) []string { return v.Dialects }) {
		want := time.Duration(v.Seconds * float64(time.Second))
		got := robots.Parse([]byte(v.Robots), robots.Standard()).For(v.Agent).CrawlDelay()
		if min(got, most) != want {
			t.Errorf("%s: %s: got %v, want %v; robots.txt:\n%s", v.Source, v.Name, got, want, v.Robots)
		}
	}
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
	for _, v := range vectors(t, "user_agents.jsonl", func(v vector) []string { return v.Dialects }) {
		tokens := robots.ProductTokens(v.UserAgent)
		if v.Token != nil {
			first := ""
			if len(tokens) > 0 {
				first = tokens[0]
			}
			if first != *v.Token {
				t.Errorf("%s: got %q of %q, want %q (%s)", v.UserAgent, first, tokens, *v.Token, v.Why)
			}
			continue
		}
		var text strings.Builder
		for _, name := range v.Groups {
			text.WriteString("User-agent: " + name + "\nDisallow: /\n\n")
		}
		if got := robots.Parse([]byte(text.String()), robots.Standard()).For(tokens...).Name(); got != v.Group {
			t.Errorf("%s (%q) among %q: got %q, want %q (%s)", v.UserAgent, tokens, v.Groups, got, v.Group, v.Why)
		}
	}
}
