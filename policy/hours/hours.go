// Package hours reads the times of the week at which a host may be visited, such as "Mon-Fri 22:00-05:00 Europe/Berlin", and
// says when they begin and end.
//
// A time is what a clock on the wall shows in its zone. When the clocks are set forward, a time that is left out does not occur,
// and when they are set back, a time that occurs twice counts twice.
package hours

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"
	// Zones that the system does not know.
	_ "time/tzdata"
)

// A Schedule is a set of times of the week. It is open at these times. The zero Schedule is never open, and the nil one always is.
// Any number of goroutines may use it.
type Schedule struct {
	texts []string
	spans []span

	// known are states in the order of their times, without gaps.
	known atomic.Pointer[[]state]
}

// A span is a part of some days. It belongs to the day on which it begins.
type span struct {
	// days has a bit for each weekday.
	days uint8

	// from and to are minutes since midnight. to is at most from if the span ends on the next day.
	from, to int
	zone     *time.Location
}

// A state is whether a Schedule is open from one time until another.
type state struct {
	open        bool
	from, until time.Time
}

const (
	everyDay = 1<<7 - 1
	day      = 24 * 60

	// horizon is how far At looks into the future. In two weeks each span begins at least once, even if its time is left out
	// once because the clocks are set forward.
	horizon = 15 * 24 * time.Hour
)

var errForm = errors.New(`want days, times, a zone, like "Mon-Fri 22:00-05:00 Europe/Berlin"; without days every day, without a zone UTC`)

// Parse returns the Schedule of all texts, each of which has days (Mon-Fri, or Mon,Wed), times (22:00-05:00) or both, and may
// end with the name of a time zone. Without a name, the zone is UTC. Without texts the Schedule is nil.
func Parse(texts ...string) (*Schedule, error) {
	if len(texts) == 0 {
		return nil, nil
	}
	s := &Schedule{texts: slices.Clone(texts)}
	for _, text := range texts {
		sp, err := parse(text)
		if err != nil {
			return nil, fmt.Errorf("%q: %w", text, err)
		}
		s.spans = append(s.spans, sp)
	}
	return s, nil
}

func parse(text string) (s span, err error) {
	s = span{days: everyDay, to: day, zone: time.UTC}
	words := strings.Fields(text)
	given := false
	if len(words) > 0 {
		if days, ok := parseDays(words[0]); ok {
			s.days, words, given = days, words[1:], true
		}
	}
	if len(words) > 0 {
		if from, to, ok := parseTimes(words[0]); ok {
			s.from, s.to, words, given = from, to, words[1:], true
		}
	}
	if !given || len(words) > 1 {
		return s, errForm
	}
	if len(words) == 1 {
		// LoadLocation takes Local for the zone of this machine, which is not the same everywhere.
		if s.zone, err = time.LoadLocation(words[0]); err != nil || words[0] == "Local" {
			return s, fmt.Errorf("%s is no time zone", words[0])
		}
	}
	return s, nil
}

// parseDays parses weekdays, separated by commas, and ranges of them.
func parseDays(text string) (days uint8, ok bool) {
	for part := range strings.SplitSeq(text, ",") {
		first, last, ranged := strings.Cut(part, "-")
		if !ranged {
			last = first
		}
		from, isDay := weekdays[strings.ToLower(first)]
		to, isToo := weekdays[strings.ToLower(last)]
		if !isDay || !isToo {
			return 0, false
		}
		for d := from; ; d = (d + 1) % 7 {
			days |= 1 << d
			if d == to {
				break
			}
		}
	}
	return days, true
}

var weekdays = map[string]time.Weekday{
	"sun": time.Sunday, "mon": time.Monday, "tue": time.Tuesday, "wed": time.Wednesday,
	"thu": time.Thursday, "fri": time.Friday, "sat": time.Saturday,
}

// parseTimes parses two times of the day with a hyphen between them.
func parseTimes(text string) (from, to int, ok bool) {
	first, last, _ := strings.Cut(text, "-")
	from, isTime := parseTime(first)
	to, isToo := parseTime(last)
	return from, to, isTime && isToo && from < day && from != to
}

// parseTime parses HH:MM, from 00:00 to 24:00.
func parseTime(text string) (minutes int, ok bool) {
	if len(text) != len("00:00") || text[2] != ':' {
		return 0, false
	}
	for i, unit := range [...]int{600, 60, 0, 10, 1} {
		if i == 2 {
			continue
		}
		if text[i] < '0' || text[i] > '9' {
			return 0, false
		}
		minutes += int(text[i]-'0') * unit
	}
	return minutes, text[3] < '6' && minutes <= day
}

// At reports whether the Schedule is open at a time, and until when it stays so; zero: for more than two weeks.
func (s *Schedule) At(now time.Time) (open bool, until time.Time) {
	if s == nil {
		return true, time.Time{}
	}
	st := s.find(now)
	if st.until.Sub(st.from) >= horizon {
		return st.open, time.Time{}
	}
	return st.open, st.until
}

// String returns the texts of the Schedule.
func (s *Schedule) String() string { return strings.Join(s.texts, ", ") }

// maxKnown is how many states are known at once: as many as two weeks of quarters of days have.
const maxKnown = 64

// find returns the state at a time.
func (s *Schedule) find(now time.Time) state {
	var known []state
	if p := s.known.Load(); p != nil {
		known = *p
	}
	i, found := slices.BinarySearchFunc(known, now, func(st state, t time.Time) int {
		switch {
		case t.Before(st.from):
			return 1
		case t.Before(st.until):
			return 0
		}
		return -1
	})
	if found {
		return known[i]
	}
	st := *s.look(now)
	known = slices.Insert(slices.Clone(known), i, st)
	if len(known) > maxKnown {
		// The past is of no more use, and the farthest future of the least.
		present := time.Now()
		known = slices.DeleteFunc(known, func(st state) bool { return !present.Before(st.until) })
		known = known[:min(len(known), maxKnown)]
	}
	s.known.Store(&known)
	return st
}

// look returns the state at a time. Spans begin and end with whole minutes.
func (s *Schedule) look(now time.Time) *state {
	from := now.Truncate(time.Minute)
	st := &state{open: s.isOpen(from), from: from, until: from.Add(time.Minute)}
	for st.until.Sub(from) < horizon && s.isOpen(st.until) == st.open {
		st.until = st.until.Add(time.Minute)
	}
	return st
}

func (s *Schedule) isOpen(t time.Time) bool {
	for i := range s.spans {
		if s.spans[i].has(t) {
			return true
		}
	}
	return false
}

func (s *span) has(t time.Time) bool {
	t = t.In(s.zone)
	minute, today := t.Hour()*60+t.Minute(), t.Weekday()
	on := func(d time.Weekday) bool { return s.days&(1<<d) != 0 }
	if s.from < s.to {
		return on(today) && s.from <= minute && minute < s.to
	}
	return on(today) && s.from <= minute || on((today+6)%7) && minute < s.to
}
