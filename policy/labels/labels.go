// Package labels implements the labels of requests: what they are for, as pairs of a key and a value.
package labels

import (
	"fmt"
	"iter"
	"slices"
	"strings"
)

const (
	// Max is the maximum number of labels of a Set.
	Max = 8

	// maxLabel is the maximum length of a label, KEY=VALUE, in bytes.
	maxLabel = 64
)

// A Set is the labels of a request: "job=news,team=a", sorted by their keys. Keys and values consist of letters, digits and
// ._-; no key stands twice. The zero Set has none. Nothing is decided by labels.
type Set string

// Parse returns the labels that the texts have, each "KEY=VALUE", or several with commas and spaces between them.
func Parse(texts ...string) (Set, error) {
	var pairs []string
	for _, text := range texts {
		for pair := range strings.SplitSeq(text, ",") {
			pair = strings.Trim(pair, " \t")
			key, value, _ := strings.Cut(pair, "=")
			if !isName(key) || !isName(value) || len(pair) > maxLabel {
				return "", fmt.Errorf("%.80q is not KEY=VALUE, of letters, digits and ._-, with at most %d characters", pair, maxLabel)
			}
			pairs = append(pairs, pair)
		}
	}
	return newSet(pairs)
}

// isName reports whether s can be a key or a value.
func isName(s string) bool {
	other := func(c rune) bool {
		return !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.ContainsRune("._-", c))
	}
	return s != "" && !strings.ContainsFunc(s, other)
}

// newSet sorts pairs and checks them against each other.
func newSet(pairs []string) (Set, error) {
	key := func(pair string) string { k, _, _ := strings.Cut(pair, "="); return k }
	slices.SortFunc(pairs, func(a, b string) int { return strings.Compare(key(a), key(b)) })
	pairs = slices.Compact(pairs)
	if len(pairs) > Max {
		return "", fmt.Errorf("%d labels, at most %d are allowed", len(pairs), Max)
	}
	for i := 1; i < len(pairs); i++ {
		if k := key(pairs[i]); k == key(pairs[i-1]) {
			return "", fmt.Errorf("the label %s has two values", k)
		}
	}
	return Set(strings.Join(pairs, ",")), nil
}

// All are the keys and values, sorted by the keys.
func (s Set) All() iter.Seq2[string, string] {
	return func(yield func(key, value string) bool) {
		if s == "" {
			return
		}
		for pair := range strings.SplitSeq(string(s), ",") {
			if key, value, _ := strings.Cut(pair, "="); !yield(key, value) {
				return
			}
		}
	}
}

// With adds the labels of more whose keys s does not have.
func (s Set) With(more Set) (Set, error) {
	if s == "" || more == "" {
		return s + more, nil
	}
	var pairs []string
	known := make(map[string]bool)
	for key, value := range s.All() {
		known[key] = true
		pairs = append(pairs, key+"="+value)
	}
	for key, value := range more.All() {
		if !known[key] {
			pairs = append(pairs, key+"="+value)
		}
	}
	return newSet(pairs)
}

// Has reports whether all labels of want are among s.
func (s Set) Has(want Set) bool {
	for key, value := range want.All() {
		if !strings.Contains(","+string(s)+",", ","+key+"="+value+",") {
			return false
		}
	}
	return true
}
