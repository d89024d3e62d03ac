package admin

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"robotsproxy/policy/explain/humanize"
)

// roughDuration formats a duration in its largest unit, from seconds to days.
func roughDuration(d time.Duration) string {
	switch {
	case d < time.Minute:
		return strconv.Itoa(int(d.Seconds())) + " s"
	case d < time.Hour:
		return strconv.Itoa(int(d.Minutes())) + " min"
	case d < 48*time.Hour:
		return strconv.Itoa(int(d.Hours())) + " h"
	}
	return strconv.Itoa(int(d.Hours()/24)) + " d"
}

// utcTime formats a time with its zone.
func utcTime(t time.Time) string { return t.UTC().Format(time.DateTime) + " UTC" }

// timeAgo says how long before now a time is. It returns "" for the zero time.
func timeAgo(now, t time.Time) string {
	switch d := now.Sub(t); {
	case t.IsZero():
		return ""
	case d < time.Second:
		return "now"
	default:
		return roughDuration(d) + " ago"
	}
}

// timeWithAge formats a time and its age for people. It returns "" for the zero time.
func timeWithAge(now, t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return utcTime(t) + ", " + timeAgo(now, t)
}

// timeUntil says how long after now a time is: "now" if it has passed, "" for the zero time.
func timeUntil(now, t time.Time) string {
	switch d := t.Sub(now); {
	case t.IsZero():
		return ""
	case d <= 0:
		return "now"
	default:
		return "in " + humanize.Duration(d)
	}
}

// machineTime formats a time for the datetime attribute of HTML. It returns "" for the zero
// time.
func machineTime(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339)
}

// printable escapes untrusted text for a page: characters that are not printable become \u and
// their number, as in the audit trail.
func printable(s string) string {
	isPlain := func(r rune) bool { return r != utf8.RuneError && (unicode.IsPrint(r) || r == '\t') }
	if strings.IndexFunc(s, func(r rune) bool { return !isPlain(r) }) < 0 {
		return s
	}
	var b strings.Builder
	for i, r := range s {
		switch {
		case isPlain(r):
			b.WriteRune(r)
		case r == utf8.RuneError && !strings.HasPrefix(s[i:], "\uFFFD"):
			// The byte is not UTF-8.
			fmt.Fprintf(&b, `\x%02x`, s[i])
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String()
}

// clipPrintable returns printable text of at most maxBytes bytes before escaping, with a mark
// where text is missing.
func clipPrintable(s string, maxBytes int) string {
	return printable(humanize.Clip(s, maxBytes))
}

// maxCell bounds untrusted text in a table cell, in bytes. The record page shows the whole
// text.
const maxCell = 300
