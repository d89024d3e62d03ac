package robots_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"robotsproxy/robots"
)

// TestVisitTime: the lines of a group, as those of the extended standard of 1996, section Visit-time.
func TestVisitTime(t *testing.T) {
	const text = `Visit-time: 0100-0200
User-agent: foo
Visit-time: 0600-0845
Disallow: /private
VISIT-TIME: 22:00 - 01:30 # at night

User-agent: bar
User-agent: foo
Visit-time: 1200-1300

User-agent: baz
Visit-time: soon
Visit-time: 0600
Visit-time: 0600-0600
Visit-time: 2500-2600
Visit-time: 0660-0700
Visit-time: 06000-0700
Visit-time: 0000-2400
`
	f := robots.Parse([]byte(text), robots.Standard())
	for token, want := range map[string][]robots.VisitTime{
		"foo":   {{From: 6 * 60, To: 8*60 + 45, Line: 3}, {From: 22 * 60, To: 90, Line: 5}, {From: 12 * 60, To: 13 * 60, Line: 9}},
		"bar":   {{From: 12 * 60, To: 13 * 60, Line: 9}},
		"baz":   {{From: 0, To: 24 * 60, Line: 18}},
		"other": nil,
	} {
		if diff := cmp.Diff(want, f.For(token).VisitTimes()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", token, diff)
		}
	}
	if !f.For("foo").Match("/page").Allow || f.For("foo").Match("/private").Allow {
		t.Error("the rules of the group have changed")
	}
}

func TestMayVisit(t *testing.T) {
	for _, c := range []struct{ lines, at, next string }{
		{"", "12:00", "12:00"},
		{"0600-0845", "05:59", "06:00"},
		{"0600-0845", "06:00", "06:00"},
		{"0600-0845", "08:44", "08:44"},
		{"0600-0845", "08:45", "06:00"},
		{"2200-0130", "23:00", "23:00"},
		{"2200-0130", "01:29", "01:29"},
		{"2200-0130", "01:30", "22:00"},
		{"2200-0130,0600-0845", "02:00", "06:00"},
		{"0600-0845,2200-0130", "09:00", "22:00"},
		{"0000-2400", "23:59", "23:59"},
		{"1200-2400", "23:59", "23:59"},
		{"1200-2400", "00:00", "12:00"},
	} {
		var text strings.Builder
		text.WriteString("User-agent: *\n")
		for line := range strings.SplitSeq(c.lines, ",") {
			text.WriteString("Visit-time: " + line + "\n")
		}
		times := robots.Parse([]byte(text.String()), robots.Standard()).For("foo").VisitTimes()
		now, err := time.Parse("15:04", c.at)
		if err != nil {
			t.Fatal(err)
		}
		open, next := robots.MayVisit(times, now)
		if got := next.Format("15:04"); got != c.next || open != (c.at == c.next) || next.Before(now) {
			t.Errorf("%s at %s: open %v, next %s", c.lines, c.at, open, next)
		}
	}
}

// TestVisitTimesAreBounded: a file with many lines costs no more than one with a few.
func TestVisitTimesAreBounded(t *testing.T) {
	f := robots.Parse([]byte("User-agent: *\n"+strings.Repeat("Visit-time: 0600-0845\n", 500)), robots.Standard())
	if n := len(f.For("foo").VisitTimes()); n != 24 {
		t.Errorf("%d lines", n)
	}
}
