// Package corpus makes the files of the benchmarks and tests of package robots: three ordinary
// ones, small, medium and of the maximum size, and hostile ones. They are the same on every run.
package corpus

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"

	"robotsproxy/robots"
)

// A Corpus is a robots.txt and paths to match against it.
type Corpus struct {
	Name  string
	Text  []byte
	Paths []string
}

// All returns a small file of 13 rules, a medium one of 150, and one of 17,235 that fills
// robots.MaxBytes.
func All() []Corpus {
	return []Corpus{New("small", 13), New("mid", 150), New("big", 17235)}
}

// New makes a file of so many rules, a quarter of them with a wildcard, and paths of which half
// are made from rules.
func New(name string, rules int) Corpus {
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
	c := Corpus{Name: name}
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
			c.Paths = append(c.Paths, path, "/"+word()+"/"+word()+"/page.html?id="+strconv.Itoa(i))
		}
	}
	c.Text = text
	return c
}

// Hostile returns files of the maximum size that make a path of so many bytes as expensive as
// possible to match: every rule has a wildcard, and none matches the path.
func Hostile(path int) []Corpus {
	rnd := rand.New(rand.NewPCG(3, 9309))
	from := func(alphabet string, n int) string {
		b := make([]byte, n)
		for i := range b {
			b[i] = alphabet[rnd.IntN(len(alphabet))]
		}
		return string(b)
	}
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ01234567-_.~"
	as := strings.Repeat("a", max(path, 2000))
	words := make([]string, 1000)
	for i := range words {
		words[i] = from("abcdefghijklmnopqrstuvwxyz", 4+rnd.IntN(5))
	}
	word := func() string { return words[rnd.IntN(len(words))] }
	var sentence strings.Builder
	for sentence.Len() < path {
		sentence.WriteString(word())
	}
	make := func(name, path string, pattern func(i int) string) Corpus {
		text := []byte("User-agent: *\n")
		for i := 0; ; i++ {
			line := "Disallow: " + pattern(i) + "\n"
			if len(text)+len(line) >= robots.MaxBytes {
				return Corpus{Name: name, Text: text, Paths: []string{path}}
			}
			text = append(text, line...)
		}
	}
	return []Corpus{
		make("number-after-letter", "/"+as[:path], func(i int) string { return fmt.Sprintf("/*a%d*b", i) }),
		make("numbers", "/"+from("0123456789", path), func(i int) string { return fmt.Sprintf("/*%d*b", i) }),
		make("two-words", "/"+sentence.String(), func(int) string { return "/*" + word() + "*" + word() + "*Z" }),
		make("all-there", "/"+from("abcd", path), func(int) string { return "/*" + from("abcd", 5) + "*" + from("abcd", 5) + "*z" }),
		make("second-missing", "/"+from("abcd", path), func(int) string { return "/*" + from("abcd", 5) + "*" + from("abcd", 6) + "e*z" }),
		make("second-missing-long", "/"+from("ab", path), func(int) string { return "/*" + from("ab", 8) + "*" + from("ab", 10) + "a*z" }),
		make("chain", "/"+as[:path], func(i int) string { return "/*" + as[:i%900] + "b" }),
		make("chain-anchored", "/"+as[:path], func(i int) string { return "/*" + as[:i%900] + "b$" }),
		make("every-prefix", "/"+as[:path], func(i int) string { return "/" + as[:i%900] + "*b" }),
		make("nested", "/"+from("ab", path), func(i int) string {
			return "/*" + strings.Join(strings.Split(from("ab", 14), ""), "*") + "*c"
		}),
		make("nested-absent", "/"+from("ab", path), func(i int) string {
			return "/*" + strings.Join(strings.Split(from("abab", 12)+from("abc", 1), ""), "*") + "*c"
		}),
		make("many-groups", "/"+as[:path], func(i int) string {
			return fmt.Sprintf("/*a*%d\nDisallow: /a*%d\nDisallow: /aa*%d\nDisallow: /*a*a*a*a*a*a*a*b\nUser-agent: *\nUser-agent: a%d", i, i, i, i)
		}),
		make("many-searches", "/"+as[:path], func(i int) string {
			return fmt.Sprintf("/*aaab\nDisallow: /a*aaab\nDisallow: /aa*aaab\nDisallow: /aaa*aaab\nDisallow: /aaaa*aaab\nDisallow: /aaaaa*aaab\nDisallow: /aaaaaa*aaab\nUser-agent: *\nUser-agent: a%d", i)
		}),
		make("four-pieces", "/"+from("ab", path), func(int) string {
			return "/*" + from("ab", 8) + "*" + from("ab", 8) + "*" + from("ab", 4) + "*" + from("ab", 4) + "*z"
		}),
		make("short-pieces", "/"+from("abcdefgh", path), func(int) string {
			return "/*" + from("abcdefgh", 3) + "*" + from("abcdefgh", 3) + "*" + from("abcdefgh", 3) + "*z"
		}),
		make("two-letters", "/"+from("abcdefgh", path), func(int) string {
			return "/*" + from("abcdefgh", 2) + "*" + from("abcdefgh", 2) + "*" + from("abcdefgh", 2) + "*z"
		}),
		make("bushy", "/"+from(letters, path), func(int) string { return "/*" + from(letters, 4) + "/" }),
		make("bushy-pieces", "/"+from(letters, path), func(int) string {
			return "/*" + from(letters, 1) + "*" + from(letters, 1) + "*" + from(letters, 1) + "/"
		}),
		make("long-literals", "/"+as[:path], func(i int) string { return "/*" + as[:i*37%1900] + "b" }),
		make("long-in-groups", "/"+as[:path], func(i int) string {
			return fmt.Sprintf("/*%sb\nUser-agent: *\nUser-agent: a%d", as[:70], i)
		}),
		make("two-forms", "/"+from("abcd", path-3)+"%3A", func(int) string { return "/*" + from("abcd", 5) + "*" + from("abcd", 5) + "*z" }),
		make("two-forms-escaped", "/"+strings.Repeat("a%3A", path/4), func(i int) string { return fmt.Sprintf("/*%%3Aa%%3A%d*:a*b", i) }),
		make("deep", "/"+as[:path], func(i int) string { return "/" + strings.Repeat("*a", 8000) + "*b" }),
	}
}
