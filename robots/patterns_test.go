package robots_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"robotsproxy/robots"
)

// TestPatterns compares Patterns with an oracle that tries one pattern after the other.
func TestPatterns(t *testing.T) {
	rnd := rand.New(rand.NewPCG(9309, 1))
	pick := func(s ...string) string { return s[rnd.IntN(len(s))] }
	some := func(most int, pieces ...string) (s string) {
		for range rnd.IntN(most + 1) {
			s += pick(pieces...)
		}
		return s
	}
	o := &oracle{dialect: robots.Standard()}
	for range 3000 {
		patterns := make([]string, rnd.IntN(300)%(1+rnd.IntN(300))) // often few, sometimes more than a byte can count
		for i := range patterns {
			patterns[i] = pick("/", "/", "*", "", "x") + some(5, "a", "b", "/", "*", "$", "%2A", "%24", "%61", "é", "?", "\n", "\x00", ":", "%3a") + pick("", "$", "*")
		}
		path := "/" + some(6, "a", "b", "/", "*", "$", "%2A", "%24", "%61", "%c3%a9", "é", "?", "%0A", "%00", ":", "%3A", "%2F")
		p, err := robots.NewPatterns(patterns)
		if err != nil {
			t.Fatal(err)
		}
		want := -1
		normal, one := o.forms(path)
		for i, pattern := range patterns {
			if o.size(oracleRule{pattern: pattern}, normal, one) >= 0 {
				want = i
				break
			}
		}
		var spent robots.Effort
		if got, gaveUp := p.First(path, &spent); got != want || gaveUp {
			t.Fatalf("%q: got %d, %t, want %d; patterns:\n%q", path, got, gaveUp, want, patterns)
		}
	}
}

func TestPatternLimits(t *testing.T) {
	for _, c := range []struct {
		patterns []string
		want     string
	}{
		{make([]string, 65536), "65536 patterns, of at most 65535"},
		{[]string{"/", "/" + strings.Repeat("a", 16663)}, "pattern 2 is longer than 16663 bytes"},
	} {
		if p, err := robots.NewPatterns(c.patterns); p != nil || fmt.Sprint(err) != c.want {
			t.Errorf("got %v, %v, want %s", p, err, c.want)
		}
	}
	long := "/" + strings.Repeat(`"`, 16662) // three times as long when it is normalised
	p, err := robots.NewPatterns(append(make([]string, 65533), long, "/"))
	if err != nil {
		t.Fatal(err)
	}
	var spent robots.Effort
	if got, gaveUp := p.First(long+"x", &spent); got != 65533 || gaveUp {
		t.Errorf("the long pattern: got %d, %t", got, gaveUp)
	}
	if got, gaveUp := p.First("/a", &spent); got != 65534 || gaveUp {
		t.Errorf("the last pattern: got %d, %t", got, gaveUp)
	}
	var none *robots.Patterns
	if got, gaveUp := none.First("/", &spent); got != -1 || gaveUp || none.Size() != 0 {
		t.Errorf("nil: got %d, %t, %d bytes", got, gaveUp, none.Size())
	}
}
