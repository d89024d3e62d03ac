package hours

import (
	"strings"
	"testing"
	"time"

	"robotsproxy/robots/testkit"
)

func TestAt(t *testing.T) {
	// 2026-11-27 is a Friday.
	for _, c := range []struct{ name, schedule, at, want string }{
		{"before", "22:00-23:00", "2026-11-27T21:59:59Z", "closed until 2026-11-27T22:00:00Z"},
		{"the beginning", "22:00-23:00", "2026-11-27T22:00:00Z", "open until 2026-11-27T23:00:00Z"},
		{"the last moment", "22:00-23:00", "2026-11-27T22:59:59.999Z", "open until 2026-11-27T23:00:00Z"},
		{"the end", "22:00-23:00", "2026-11-27T23:00:00Z", "closed until 2026-11-28T22:00:00Z"},
		{"over midnight", "22:00-05:00", "2026-11-27T23:30:00Z", "open until 2026-11-28T05:00:00Z"},
		{"after midnight", "22:00-05:00", "2026-11-28T04:00:00Z", "open until 2026-11-28T05:00:00Z"},
		{"until midnight", "22:00-24:00", "2026-11-27T23:30:00Z", "open until 2026-11-28T00:00:00Z"},
		{"from midnight", "00:00-05:00", "2026-11-27T23:30:00Z", "closed until 2026-11-28T00:00:00Z"},
		{"days", "Sat-Sun", "2026-11-27T23:30:00Z", "closed until 2026-11-28T00:00:00Z"},
		{"within days", "Sat-Sun", "2026-11-28T10:00:00Z", "open until 2026-11-30T00:00:00Z"},
		{"days over the end of the week", "fri-MON", "2026-11-28T10:00:00Z", "open until 2026-12-01T00:00:00Z"},
		{"single days", "Mon,Wed,Fri-Sat", "2026-11-29T10:00:00Z", "closed until 2026-11-30T00:00:00Z"},
		{"a night belongs to its evening", "Fri 22:00-05:00", "2026-11-28T04:00:00Z", "open until 2026-11-28T05:00:00Z"},
		{"not to its morning", "Sat 22:00-05:00", "2026-11-28T04:00:00Z", "closed until 2026-11-28T22:00:00Z"},
		{"several", "22:00-05:00|Sat-Sun", "2026-11-28T04:00:00Z", "open until 2026-11-30T05:00:00Z"},
		{"always", "Mon-Sun", "2026-11-28T04:00:00Z", "open for long"},
		{"always, in parts", "00:00-12:00|12:00-24:00", "2026-11-28T04:00:00Z", "open for long"},
		{"a zone", "22:00-05:00 Europe/Berlin", "2026-11-27T20:59:00Z", "closed until 2026-11-27T21:00:00Z"},
		{"a zone in summer", "22:00-05:00 Europe/Berlin", "2026-06-26T20:30:00Z", "open until 2026-06-27T03:00:00Z"},
		{"a zone of half hours", "06:00-07:00 Asia/Kolkata", "2026-11-27T00:00:00Z", "closed until 2026-11-27T00:30:00Z"},
		{"a day of another zone", "Mon Pacific/Auckland", "2026-11-29T10:59:00Z", "closed until 2026-11-29T11:00:00Z"},
		{"clocks are set forward over the beginning", "02:30-04:00 Europe/Berlin", "2026-03-29T00:30:00Z", "closed until 2026-03-29T01:00:00Z"},
		{"clocks are set forward over the end", "01:00-02:30 Europe/Berlin", "2026-03-29T00:30:00Z", "open until 2026-03-29T01:00:00Z"},
		{"clocks are set forward over all of it", "02:10-02:50 Europe/Berlin", "2026-03-28T02:00:00Z", "closed until 2026-03-30T00:10:00Z"},
		{"clocks are set back: a time comes twice", "02:00-03:00 Europe/Berlin", "2026-10-25T00:00:00Z", "open until 2026-10-25T02:00:00Z"},
		{"clocks are set back: and part of it", "02:30-03:00 Europe/Berlin", "2026-10-25T00:59:00Z", "open until 2026-10-25T01:00:00Z"},
		{"clocks are set back: again", "02:30-03:00 Europe/Berlin", "2026-10-25T01:00:00Z", "closed until 2026-10-25T01:30:00Z"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, err := Parse(strings.Split(c.schedule, "|")...)
			testkit.Must(t, err)
			now, err := time.Parse(time.RFC3339, c.at)
			testkit.Must(t, err)
			for range 2 {
				if got := describe(s.At(now)); got != c.want {
					t.Errorf("%s, want %s", got, c.want)
				}
			}
			// The next state is looked up, also after one that lies later.
			if _, until := s.At(now); !until.IsZero() {
				open, _ := s.At(until)
				if is, _ := s.At(now); is == open {
					t.Errorf("it does not change at %s", until)
				}
			}
		})
	}
	if open, until := (*Schedule)(nil).At(time.Now()); !open || !until.IsZero() {
		t.Errorf("the nil Schedule: %v until %v", open, until)
	}
}

func describe(open bool, until time.Time) string {
	text := "closed"
	if open {
		text = "open"
	}
	if until.IsZero() {
		return text + " for long"
	}
	return text + " until " + until.UTC().Format(time.RFC3339)
}

func TestParseErrors(t *testing.T) {
	for _, text := range []string{
		"", "Europe/Berlin", "22:00", "22:00-", "22:00-22:00", "24:00-05:00", "25:00-26:00", "22:60-23:00", "2:00-05:00", "2200-0500",
		"22:00-05:00 Nowhere/City", "22:00-05:00 Local", "22:00-05:00 UTC x", "22:00-05:00 Mon", "Mon-", "Mon,,Tue", "Monday", "Mon Tue", "Mo-Fr",
		"22:00 - 05:00", "+1:00-02:00", "22:00-05:00,06:00-07:00",
	} {
		if s, err := Parse(text); err == nil {
			t.Errorf("%q is taken: %+v", text, s.spans)
		}
	}
	if s, err := Parse(); s != nil || err != nil {
		t.Errorf("%v, %v", s, err)
	}
}

func FuzzParse(f *testing.F) {
	for _, text := range []string{"Mon-Fri 22:00-05:00 Europe/Berlin", "Sat-Sun", "00:00-24:00"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		s, err := Parse(text)
		if err != nil {
			return
		}
		now := time.Date(2026, 11, 27, 8, 0, 0, 0, time.UTC)
		open, until := s.At(now)
		if again, _ := s.At(until); !until.IsZero() && (again == open || !until.After(now)) {
			t.Errorf("%q is %v at %s, and at %s too", text, open, now, until)
		}
	})
}
