package robots

import (
	"slices"
	"testing"
)

func TestExcerpt(t *testing.T) {
	google, err := DialectByName("google")
	if err != nil {
		t.Fatal(err)
	}
	const text = "\xEF\xBB\xBFDisallow: /none\r\nUser-agent: a\rUser-agent: b # both\n\nCrawl-delay: 2\nuseragent: c\nDisallow:\nAllow: /c\nUser-agent: d\nDisallow: /d"
	for _, tc := range []struct {
		name         string
		dialect      Dialect
		line, around int
		near, agents []int
	}{
		{"RFC 9309 2.2.1: before any group", Standard(), 1, 2, []int{1, 2, 3}, nil},
		{"all that the rule is for, a delay between them (2.2.4)", Standard(), 8, 1, []int{7, 8, 9}, []int{2, 3, 6}},
		{"an empty rule ends the list too", Standard(), 10, 2, []int{8, 9, 10}, []int{9}},
		{"a User-agent line itself", Standard(), 3, 0, []int{3}, []int{2, 3}},
		{"beyond the end", Standard(), 13, 2, nil, []int{9}},
		{"no line", Standard(), 0, 1, []int{1}, nil},
		{"a dialect that knows no misspelling", Dialect{Name: "strict"}, 8, 0, []int{8}, []int{2, 3}},
		{"a dialect that does", google, 8, 0, []int{8}, []int{2, 3, 6}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			near, agents := Excerpt(text, tc.dialect, tc.line, tc.around)
			numbers := func(all []Line) (n []int) {
				for _, l := range all {
					n = append(n, l.Number)
				}
				return n
			}
			if got := numbers(near); !slices.Equal(got, tc.near) {
				t.Errorf("near: %v, want %v", got, tc.near)
			}
			if got := numbers(agents); !slices.Equal(got, tc.agents) {
				t.Errorf("agents: %v, want %v", got, tc.agents)
			}
		})
	}
	_, agents := Excerpt(text, Standard(), 8, 0)
	if agents[1].Text != "User-agent: b # both" {
		t.Errorf("as written: %q", agents[1].Text)
	}
}
