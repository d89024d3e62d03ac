// Package corpus makes the files of the benchmarks and tests of package robots: three ordinary
// ones, small, medium and of the maximum size, and hostile ones. They are the same on every run.
package corpus

import (
	"fmt"
	"math/rand/v2"
	"slices"
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
	m := maker{rand.New(rand.NewPCG(3, 9309))}
	as := strings.Repeat("a", max(path, 2000))
	return slices.Concat(m.words(path), m.pieces(path), repeated(as, path), groups(as, path))
}

// A maker makes files of random texts.
type maker struct{ *rand.Rand }

// text returns n random bytes of an alphabet.
func (m maker) text(alphabet string, n int) string {
	b := make([]byte, n)
	for i := range b {
		b[i] = alphabet[m.IntN(len(alphabet))]
	}
	return string(b)
}

// starred returns so many texts of an alphabet, with a "*" before each.
func (m maker) starred(alphabet string, sizes ...int) string {
	var b strings.Builder
	for _, n := range sizes {
		b.WriteString("*" + m.text(alphabet, n))
	}
	return b.String()
}

// fill makes a file of the maximum size, of one pattern after the other, and with one path.
func fill(name, path string, pattern func(i int) string) Corpus {
	text := []byte("User-agent: *\n")
	for i := 0; ; i++ {
		line := "Disallow: " + pattern(i) + "\n"
		if len(text)+len(line) >= robots.MaxBytes {
			return Corpus{Name: name, Text: text, Paths: []string{path}}
		}
		text = append(text, line...)
	}
}

// words returns files whose patterns have random words or numbers.
func (m maker) words(path int) []Corpus {
	const small = "abcdefghijklmnopqrstuvwxyz"
	words := make([]string, 1000)
	for i := range words {
		words[i] = m.text(small, 4+m.IntN(5))
	}
	word := func() string { return words[m.IntN(len(words))] }
	var sentence strings.Builder
	for sentence.Len() < path {
		sentence.WriteString(word())
	}
	const letters = small + "ABCDEFGHIJKLMNOPQRSTUVWXYZ01234567-_.~"
	return []Corpus{
		fill("numbers", "/"+m.text("0123456789", path), func(i int) string { return fmt.Sprintf("/*%d*b", i) }),
		fill("two-words", "/"+sentence.String(), func(int) string { return "/*" + word() + "*" + word() + "*Z" }),
		fill("bushy", "/"+m.text(letters, path), func(int) string { return "/" + m.starred(letters, 4) + "/" }),
		fill("bushy-pieces", "/"+m.text(letters, path), func(int) string { return "/" + m.starred(letters, 1, 1, 1) + "/" }),
	}
}

// pieces returns files whose patterns have random pieces of a small alphabet, as the path has.
func (m maker) pieces(path int) []Corpus {
	return []Corpus{
		fill("all-there", "/"+m.text("abcd", path), func(int) string { return "/" + m.starred("abcd", 5, 5) + "*z" }),
		fill("second-missing", "/"+m.text("abcd", path), func(int) string { return "/" + m.starred("abcd", 5, 6) + "e*z" }),
		fill("second-missing-long", "/"+m.text("ab", path), func(int) string { return "/" + m.starred("ab", 8, 10) + "a*z" }),
		fill("nested", "/"+m.text("ab", path), func(int) string {
			return "/*" + strings.Join(strings.Split(m.text("ab", 14), ""), "*") + "*c"
		}),
		fill("nested-absent", "/"+m.text("ab", path), func(int) string {
			return "/*" + strings.Join(strings.Split(m.text("abab", 12)+m.text("abc", 1), ""), "*") + "*c"
		}),
		fill("four-pieces", "/"+m.text("ab", path), func(int) string { return "/" + m.starred("ab", 8, 8, 4, 4) + "*z" }),
		fill("short-pieces", "/"+m.text("abcdefgh", path), func(int) string { return "/" + m.starred("abcdefgh", 3, 3, 3) + "*z" }),
		fill("two-letters", "/"+m.text("abcdefgh", path), func(int) string { return "/" + m.starred("abcdefgh", 2, 2, 2) + "*z" }),
		fill("two-forms", "/"+m.text("abcd", path-3)+"%3A", func(int) string { return "/" + m.starred("abcd", 5, 5) + "*z" }),
	}
}

// repeated returns files whose patterns repeat one letter, as the path does.
func repeated(as string, path int) []Corpus {
	return []Corpus{
		fill("number-after-letter", "/"+as[:path], func(i int) string { return fmt.Sprintf("/*a%d*b", i) }),
		fill("chain", "/"+as[:path], func(i int) string { return "/*" + as[:i%900] + "b" }),
		fill("chain-anchored", "/"+as[:path], func(i int) string { return "/*" + as[:i%900] + "b$" }),
		fill("every-prefix", "/"+as[:path], func(i int) string { return "/" + as[:i%900] + "*b" }),
		fill("long-literals", "/"+as[:path], func(i int) string { return "/*" + as[:i*37%1900] + "b" }),
		fill("deep", "/"+as[:path], func(int) string { return "/" + strings.Repeat("*a", 8000) + "*b" }),
		fill("two-forms-escaped", "/"+strings.Repeat("a%3A", path/4), func(i int) string {
			return fmt.Sprintf("/*%%3Aa%%3A%d*:a*b", i)
		}),
	}
}

// groups returns files with many groups that apply to every client.
func groups(as string, path int) []Corpus {
	next := func(i int) string { return fmt.Sprintf("\nUser-agent: *\nUser-agent: a%d", i) }
	rules := func(patterns ...string) string { return strings.Join(patterns, "\nDisallow: ") }
	return []Corpus{
		fill("many-groups", "/"+as[:path], func(i int) string {
			n := strconv.Itoa(i)
			return rules("/*a*"+n, "/a*"+n, "/aa*"+n, "/*a*a*a*a*a*a*a*b") + next(i)
		}),
		fill("many-searches", "/"+as[:path], func(i int) string {
			return rules("/*aaab", "/a*aaab", "/aa*aaab", "/aaa*aaab", "/aaaa*aaab", "/aaaaa*aaab", "/aaaaaa*aaab") + next(i)
		}),
		fill("long-in-groups", "/"+as[:path], func(i int) string { return "/*" + as[:70] + "b" + next(i) }),
	}
}
