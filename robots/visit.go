package robots

import (
	"fmt"
	"strings"
	"time"
)

// maxVisitTimes is how many Visit-time lines of a group count. A day has no need of more.
const maxVisitTimes = 24

// A VisitTime is a Visit-time line of a group: a part of each day at which the site may be visited.
type VisitTime struct {
	// From and To are minutes since midnight, UTC. If To is less than From, the part ends on the next day.
	From, To int

	// Line is that of the file, from 1.
	Line int
}

// String returns the times as a Visit-time line has them.
func (v VisitTime) String() string {
	return fmt.Sprintf("%02d%02d-%02d%02d", v.From/60, v.From%60, v.To/60, v.To%60)
}

// VisitTimes returns the first Visit-time lines of the group, in their order, at most 24. The site may be visited at the times of
// each of them. VisitTimes leaves out what is no time of the day. The field is that of the extended standard of 1996
// (http://www.conman.org/people/spc/robots2.html): "0600-0845", in UTC.
func (g Group) VisitTimes() (all []VisitTime) {
	for l := range g.file.extensions().visits.all(g) {
		if v, ok := parseVisitTime(l.Text); ok {
			v.Line = l.Number
			all = append(all, v)
		}
		if len(all) == maxVisitTimes {
			break
		}
	}
	return all
}

// MayVisit reports whether a site with such lines may be visited at a time and, if not, when it may be next. Without lines, it may.
func MayVisit(all []VisitTime, now time.Time) (open bool, next time.Time) {
	if len(all) == 0 {
		return true, now
	}
	const day = 24 * time.Hour
	at, wait := now.Sub(now.Truncate(day)), day
	for _, v := range all {
		from, to := time.Duration(v.From)*time.Minute, time.Duration(v.To)*time.Minute
		if within := from <= at && at < to; within || from > to && (from <= at || at < to) {
			return true, now
		}
		wait = min(wait, (from-at+day)%day)
	}
	return false, now.Add(wait)
}

// parseVisitTime parses the value of a Visit-time line: two times with a hyphen between them.
func parseVisitTime(s string) (v VisitTime, ok bool) {
	first, last, _ := strings.Cut(s, "-")
	from, isTime := parseClock(trimSpace(first))
	to, isToo := parseClock(trimSpace(last))
	return VisitTime{From: from, To: to}, isTime && isToo && from != to
}

// parseClock parses a time of the day, HHMM or HH:MM, up to 2400, as minutes since midnight.
func parseClock(s string) (minutes int, ok bool) {
	if len(s) == len("HH:MM") && s[2] == ':' {
		s = s[:2] + s[3:]
	}
	if len(s) != len("HHMM") {
		return 0, false
	}
	for i, unit := range [...]int{600, 60, 10, 1} {
		if !isDigit(s[i]) {
			return 0, false
		}
		minutes += int(s[i]-'0') * unit
	}
	return minutes, s[2] < '6' && minutes <= 24*60
}
