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

// rough is a length in one unit alone, for ages.
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

// ago says how long before now a time is; "" of the zero time.
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

// ahead says how long after now a time is: "now" where it has come, "" of the zero time.
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

// stampOf is a time for a machine; "" of the zero time.
func machineTime(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339)
}

// visible writes strangers' text so that it can be read and changes nothing around it:
// what is not printable becomes \u and its number, as in the audit.
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
			fmt.Fprintf(&b, `\x%02x`, s[i]) // no UTF-8
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String()
}

// cut is visible text of at maxBytes so many octets, and what says that there was more.
func clipPrintable(s string, maxBytes int) string {
	return printable(humanize.Clip(s, maxBytes))
}
