package robots

import (
	"slices"
	"testing"
)

func TestOutline(t *testing.T) {
	const text = "\xEF\xBB\xBFDisallow: /none\r\nUser-agent: a\rUser-agent: b # both\n\nCrawl-delay: 2\nuseragent: c\nDisallow:\nAllow: /c\nUser-agent: d\nDisallow: /d\nSitemap: /s"
	want := []OutlineLine{
		{Line{1, "Disallow: /none"}, KindDisallow, "/none", 0}, // RFC 9309 2.2.1: no group yet
		{Line{2, "User-agent: a"}, KindAgent, "a", 1},
		{Line{3, "User-agent: b # both"}, KindAgent, "b", 1},
		{Line{4, ""}, KindOther, "", 1},
		{Line{5, "Crawl-delay: 2"}, KindDelay, "2", 1},
		{Line{6, "useragent: c"}, KindAgent, "c", 1},
		{Line{7, "Disallow:"}, KindDisallow, "", 1},
		{Line{8, "Allow: /c"}, KindAllow, "/c", 1},
		{Line{9, "User-agent: d"}, KindAgent, "d", 2},
		{Line{10, "Disallow: /d"}, KindDisallow, "/d", 2},
		{Line{11, "Sitemap: /s"}, KindExtra, "/s", 2},
	}
	if got := slices.Collect(Outline(text, Standard())); !slices.Equal(got, want) {
		t.Errorf("\n got %v\nwant %v", got, want)
	}
	for l := range Outline(text, Dialect{Name: "strict"}) {
		if l.Number == 6 && l.Kind != KindOther {
			t.Errorf("a dialect that knows no misspelling: %v", l)
		}
	}
	for range Outline(text, Standard()) {
		break // an early break ends the sequence
	}
	if n := ParseFor(Origin{}, text, Standard()).Rules(); n != 2 {
		t.Errorf("%d rules", n)
	}
	if n := (*File)(nil).Rules(); n != 0 {
		t.Errorf("nil: %d rules", n)
	}
}
