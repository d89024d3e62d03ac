package robots

import (
	"math"
	"strings"
	"time"
)

// maxDelay is the longest delay that is told apart from longer ones, about 26 years: ten times as
// much and one digit more still fit a Duration.
const maxDelay = math.MaxInt64 / 11

// parseDelay parses the value of a Crawl-delay line: decimal seconds. A careful dialect also takes
// "5s", "5 seconds", "1,5", "5,", quotes, minutes and hours. ok is false for anything else.
func parseDelay(s string, d *Dialect) (delay time.Duration, ok bool) {
	if !d.Careful {
		delay, rest, ok := cutSeconds(s, ".")
		if !ok || rest != "" {
			return 0, false
		}
		return delay, true
	}
	delay, rest, ok := cutSeconds(strings.TrimLeft(s, `"'`), ".,")
	delay, rest = cutUnit(delay, rest)
	if !ok || strings.Trim(rest, `"',;. `) != "" {
		return 0, false
	}
	return delay, true
}

// parseRate parses the value of a Request-rate line, "pages/time hours", as a delay. The time is in
// seconds, or has the unit s, m or h. hours is the rest of the value, which limits the line to a part
// of the day. ok is false for anything else.
func parseRate(s string) (delay time.Duration, hours string, ok bool) {
	pages, rest, _ := cutSeconds(s, "")
	rest, slash := strings.CutPrefix(trimSpace(rest), "/")
	every, rest, timed := cutSeconds(trimSpace(rest), ".")
	every, hours = cutUnit(every, rest)
	if pages <= 0 || !slash || !timed || !endsWord(hours) {
		return 0, "", false
	}
	return time.Duration(float64(every) / pages.Seconds()), strings.Trim(hours, wordEnds), true
}

// cutSeconds parses the decimal number at the beginning of s as seconds, and returns the rest. Any
// byte of points is a decimal point if a digit is before or behind it. ok reports whether there is a
// digit.
func cutSeconds(s, points string) (n time.Duration, rest string, ok bool) {
	for ; s != "" && isDigit(s[0]); s = s[1:] {
		n, ok = min(n*10+time.Duration(s[0]-'0')*time.Second, maxDelay), true
	}
	if s == "" || strings.IndexByte(points, s[0]) < 0 || !ok && (len(s) == 1 || !isDigit(s[1])) {
		return n, s, ok
	}
	unit, finer := time.Second, false
	for s = s[1:]; s != "" && isDigit(s[0]); s = s[1:] {
		unit, ok = unit/10, true
		n += time.Duration(s[0]-'0') * unit
		finer = finer || unit == 0 && s[0] != '0'
	}
	// Rounded up, it stays more than a whole number of seconds.
	if finer {
		n++
	}
	return n, s, ok
}

// units are the units of time that follow a number, in lower case.
var units = map[string]time.Duration{
	"s": 1, "sec": 1, "secs": 1, "second": 1, "seconds": 1,
	"m": 60, "min": 60, "mins": 60, "minute": 60, "minutes": 60,
	"h": 3600, "hour": 3600, "hours": 3600,
}

// wordEnds are the bytes that may follow a number or a unit.
const wordEnds = " \t\n\v\f\r.,;\"'"

func endsWord(rest string) bool { return rest == "" || strings.IndexByte(wordEnds, rest[0]) >= 0 }

// cutUnit multiplies seconds by the unit at the beginning of s, if there is one, and returns the
// rest.
func cutUnit(seconds time.Duration, s string) (delay time.Duration, rest string) {
	word := trimSpace(s)
	end := 0
	for end < len(word) && (isLetter(word[end]) || isDigit(word[end])) {
		end++
	}
	unit := units[strings.ToLower(word[:end])]
	if unit == 0 || !endsWord(word[end:]) {
		return seconds, s
	}
	return min(seconds, maxDelay/unit) * unit, word[end:]
}
