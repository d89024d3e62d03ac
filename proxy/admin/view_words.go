package admin

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// count writes a number with a comma between thousands.
func count(n any) string {
	digits := fmt.Sprint(n)
	sign := ""
	if strings.HasPrefix(digits, "-") {
		sign, digits = "-", digits[1:]
	}
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return sign + digits
}

// counted is a number of things: "1 rule", "2 rules".
func counted[T int | int64 | uint64](n T, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return count(n) + " " + thing + "s"
}

// length writes a time span as one reads it: two digits that count, or two units.
func length(d time.Duration) string {
	switch {
	case d <= 0:
		return "0 s"
	case d < time.Second:
		return strconv.Itoa(int(max(1, d.Milliseconds()))) + " ms"
	case d < 10*time.Second:
		return strconv.FormatFloat(d.Truncate(100*time.Millisecond).Seconds(), 'f', -1, 64) + " s"
	case d < time.Minute:
		return strconv.Itoa(int(d.Seconds())) + " s"
	case d < time.Hour:
		return units(d, time.Minute, "min", time.Second, "s")
	case d < 24*time.Hour:
		return units(d, time.Hour, "h", time.Minute, "min")
	}
	return units(d, 24*time.Hour, "d", time.Hour, "h")
}

func units(d, large time.Duration, largeName string, small time.Duration, smallName string) string {
	whole := fmt.Sprintf("%d %s", d/large, largeName)
	if rest := d % large / small; rest > 0 && d/large < 10 {
		return fmt.Sprintf("%s %d %s", whole, rest, smallName)
	}
	return whole
}

// rough is a length in one unit alone, for ages.
func rough(d time.Duration) string {
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
func ago(now, t time.Time) string {
	switch d := now.Sub(t); {
	case t.IsZero():
		return ""
	case d < time.Second:
		return "now"
	default:
		return rough(d) + " ago"
	}
}

// ahead says how long after now a time is: "now" where it has come, "" of the zero time.
func ahead(now, t time.Time) string {
	switch d := t.Sub(now); {
	case t.IsZero():
		return ""
	case d <= 0:
		return "now"
	default:
		return "in " + length(d)
	}
}

// octets writes an amount of data.
func octets(n int) string {
	switch {
	case n < 1<<10:
		return counted(n, "octet")
	case n < 1<<20:
		return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10))
	}
	return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
}

// stampOf is a time for a machine; "" of the zero time.
func stampOf(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339)
}

// visible writes strangers' text so that it can be read and changes nothing around it:
// what is not printable becomes \u and its number, as in the audit.
func visible(s string) string {
	plain := func(r rune) bool { return r != utf8.RuneError && (unicode.IsPrint(r) || r == '\t') }
	if strings.IndexFunc(s, func(r rune) bool { return !plain(r) }) < 0 {
		return s
	}
	var b strings.Builder
	for i, r := range s {
		switch {
		case plain(r):
			b.WriteRune(r)
		case r == utf8.RuneError && !strings.HasPrefix(s[i:], "\uFFFD"):
			fmt.Fprintf(&b, `\x%02x`, s[i]) // no UTF-8
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String()
}

// cut is visible text of at most so many octets, and what says that there was more.
func cut(s string, most int) string {
	if len(s) <= most {
		return visible(s)
	}
	return visible(strings.ToValidUTF8(s[:most], "")) + " …"
}
