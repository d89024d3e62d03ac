package robots_test

import (
	"fmt"
	"strings"
	"testing"

	"robotsproxy/robots"
	"robotsproxy/robots/internal/corpus"
)

func BenchmarkParse(b *testing.B) {
	for _, c := range corpus.All() {
		b.Run(c.Name, func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(c.Text)))
			for b.Loop() {
				robots.Parse(c.Text, robots.Standard())
			}
			b.ReportMetric(float64(robots.Parse(c.Text, robots.Standard()).Size()), "bytes-held")
		})
	}
}

func BenchmarkMatch(b *testing.B) {
	for _, c := range corpus.All() {
		b.Run(c.Name, func(b *testing.B) {
			g := robots.Parse(c.Text, robots.Standard()).For("FooBot")
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				g.Match(c.Paths[i])
				if i++; i == len(c.Paths) {
					i = 0
				}
			}
		})
	}
}

func BenchmarkMatchEscaped(b *testing.B) {
	c := corpus.New("small", 13)
	g := robots.Parse(c.Text, robots.Standard()).For("FooBot")
	b.ReportAllocs()
	for b.Loop() {
		g.Match("/th%C6%B0-m%E1%BB%A5c/a?q=%20b")
	}
}

func BenchmarkMatchStars(b *testing.B) {
	g := robots.Parse([]byte("User-agent: *\nDisallow: /*a*a*a*a*b\n"), robots.Standard()).For("FooBot")
	path := "/" + strings.Repeat("a", 2000)
	b.ReportAllocs()
	for b.Loop() {
		g.Match(path)
	}
}

func BenchmarkFor(b *testing.B) {
	f := robots.Parse([]byte("User-agent: *\nDisallow: /a\n\nUser-agent: Googlebot\nDisallow: /b\n\nUser-agent: GPTBot\nDisallow: /\n"), robots.Standard())
	tokens := []string{"MyBot", "python-requests"}
	b.ReportAllocs()
	for b.Loop() {
		f.For(tokens...)
	}
}

func BenchmarkProductTokens(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		robots.ProductTokens("Mozilla/5.0 AppleWebKit/537.36 (KHTML, like Gecko; compatible; GPTBot/1.2; +https://openai.com/gptbot)")
	}
}

func BenchmarkParseOrigin(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		if _, err := robots.ParseOrigin("https", "www.example.com:8443"); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkHostile shows that no verdict takes 5 ms, whatever the file, for paths of the default
// and the maximum length of the proxy's limits.url.
func BenchmarkHostile(b *testing.B) {
	for _, size := range []int{2000, 8 << 10, 64 << 10} {
		for _, c := range corpus.Hostile(size) {
			b.Run(fmt.Sprintf("%s/%d", c.Name, size), func(b *testing.B) {
				g := robots.Parse(c.Text, robots.Standard()).For("FooBot")
				b.ReportAllocs()
				var spent robots.Effort
				for b.Loop() {
					spent = 0
					g.MatchWithin(c.Paths[0], &spent)
				}
				b.ReportMetric(float64(spent), "steps")
			})
		}
	}
}
