package robots_test

import (
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"robotsproxy/robots"
)

// A corpus is a robots.txt of a given size and paths to judge by it.
type corpus struct {
	name  string
	text  []byte
	paths []string
}

// corpora are a small file of 13 rules, a middling one of 150, and one of
// 17,235 that fills the 500 KiB which are read; a quarter have a wildcard.
func corpora() []corpus {
	return []corpus{newCorpus("small", 13), newCorpus("mid", 150), newCorpus("big", 17235)}
}

func newCorpus(name string, rules int) corpus {
	rnd := rand.New(rand.NewPCG(1, uint64(rules)))
	words := make([]string, max(8, rules/8))
	for i := range words {
		word := make([]byte, 5+rnd.IntN(7))
		for j := range word {
			word[j] = "abcdefghijklmnopqrstuvwxyz-"[rnd.IntN(27)]
		}
		words[i] = string(word)
	}
	word := func() string { return words[rnd.IntN(len(words))] }
	c := corpus{name: name}
	text := []byte("User-agent: *\n")
	for i := range rules {
		pattern := "/" + word() + "/" + word()
		switch i % 8 {
		case 0:
			pattern = "/" + word() + "/*" + word()
		case 4:
			pattern = "/" + word() + "/*." + word()[:3] + "$"
		case 2, 6:
			pattern += "/"
		}
		field := "Disallow: "
		if i%5 == 0 {
			field = "Allow: "
		}
		text = append(text, field+pattern+"\n"...)
		if i%(rules/8) == 0 {
			path := strings.NewReplacer("*", word(), "$", "").Replace(pattern)
			c.paths = append(c.paths, path, "/"+word()+"/"+word()+"/page.html?id="+strconv.Itoa(i))
		}
	}
	c.text = text
	return c
}

func BenchmarkParse(b *testing.B) {
	for _, c := range corpora() {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(c.text)))
			for b.Loop() {
				robots.Parse(c.text, robots.Standard())
			}
			b.ReportMetric(float64(robots.Parse(c.text, robots.Standard()).Size()), "octets-held")
		})
	}
}

func BenchmarkMatch(b *testing.B) {
	for _, c := range corpora() {
		b.Run(c.name, func(b *testing.B) {
			g := robots.Parse(c.text, robots.Standard()).For("FooBot")
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				g.Match(c.paths[i])
				if i++; i == len(c.paths) {
					i = 0
				}
			}
		})
	}
}

func BenchmarkMatchEscaped(b *testing.B) {
	c := newCorpus("small", 13)
	g := robots.Parse(c.text, robots.Standard()).For("FooBot")
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
