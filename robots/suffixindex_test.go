package robots

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"robotsproxy/robots/testkit"
)

// TestSuffixes compares the index of a path with package strings.
func TestSuffixes(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 500 {
		path := make([]byte, 1+rnd.IntN(40))
		for i := range path {
			path[i] = "ab\x00\xff/"[rnd.IntN(2+rnd.IntN(4))]
		}
		x := newSuffixIndex(string(path))
		if !slices.IsSortedFunc(x.starts, func(a, b int32) int { return strings.Compare(string(path[a:]), string(path[b:])) }) {
			t.Fatalf("%q: suffixes in order %v", path, x.starts)
		}
		at := rnd.IntN(len(path))
		text := string(path[at : at+rnd.IntN(min(4, len(path)-at)+1)])
		if rnd.IntN(4) == 0 {
			text += "x"
		}
		depth := rnd.IntN(len(text) + 1)
		s := x.extend(x.extend(x.all(), 0, text[:depth]), depth, text[depth:])
		if text == "" {
			continue
		}
		if got, want := int(s.hi-s.lo), countAll(string(path), text); got != want {
			t.Fatalf("%q in %q: %d times, want %d", text, path, got, want)
		}
		if s.lo == s.hi {
			continue
		}
		for from := range len(path) + 1 {
			want := strings.Index(string(path[from:]), text)
			if want >= 0 {
				want += from
			}
			if got := x.next(s, len(text), from); got != want {
				t.Fatalf("%q in %q from %d: %d, want %d", text, path, from, got, want)
			}
			if got := x.nextStart(s, from); got != want {
				t.Fatalf("%q in %q from %d, by its numbers: %d, want %d", text, path, from, got, want)
			}
			ends := strings.HasSuffix(string(path[from:]), text)
			if got := x.endsPath(s, len(text), from); got != ends {
				t.Fatalf("%q at the end of %q from %d: %t", text, path, from, got)
			}
		}
	}
}

func countAll(s, part string) (n int) {
	for i := range s {
		if strings.HasPrefix(s[i:], part) {
			n++
		}
	}
	return n
}

// agreeIndexed fails the test if an indexedSearch and a matcher without one disagree about a
// path.
func agreeIndexed(t *testing.T, d Dialect, patterns []string, path string) {
	t.Helper()
	f := Parse([]byte("User-agent: *\n"+strings.Join(patterns, "\n")+"\n"), d)
	path = f.forms(path).normalised
	plain, indexed := matcher{tries: &f.tries, stepsLeft: 1 << 20}, matcher{tries: &f.tries, stepsLeft: 1 << 20, indexed: newIndexedSearch(path)}
	for _, s := range f.ruleSets {
		plain.matchTrie(s.root, path)
		indexed.matchTrie(s.root, path)
	}
	if plain.best != indexed.best {
		t.Fatalf("%s: %q by %q: without an index %+v, with one %+v", d.Name, path, patterns, plain.best, indexed.best)
	}
}

func TestIndexedSearch(t *testing.T) {
	rnd := rand.New(rand.NewPCG(5, 6))
	some := func(most int, pieces ...string) string {
		var b strings.Builder
		for range rnd.IntN(most + 1) {
			b.WriteString(pieces[rnd.IntN(len(pieces))])
		}
		return b.String()
	}
	for range testkit.Rounds(20_000) {
		var patterns []string
		for range 1 + rnd.IntN(8) {
			field := [...]string{"Allow: ", "Disallow: "}[rnd.IntN(2)]
			end := [...]string{"", "", "$", "*"}[rnd.IntN(4)]
			patterns = append(patterns, field+[...]string{"/", "*"}[rnd.IntN(2)]+some(8, "a", "a", "b", "*", "*", "$", "/")+end)
		}
		path := "/" + some(20, "a", "a", "b", "$", "/", "*")
		for _, d := range []Dialect{Standard(), dialects[2]} {
			agreeIndexed(t, d, patterns, path)
		}
	}
}

// FuzzIndexedSearch takes the patterns of one group, a line each.
func FuzzIndexedSearch(f *testing.F) {
	f.Add("/*a*b$\n/*ab*\n*", "/aabab")
	f.Add("/*aa*aa$\n/*aaa$\n/a*aaaa", "/aaaa")
	f.Fuzz(func(t *testing.T, patterns, path string) {
		if len(patterns) > 1<<10 || len(path) > 100 {
			return // a matcher without an index may take long, or give up
		}
		var rules []string
		for p := range strings.SplitSeq(patterns, "\n") {
			rules = append(rules, "Disallow: "+p)
		}
		for _, d := range dialects {
			agreeIndexed(t, d, rules, path)
		}
	})
}
