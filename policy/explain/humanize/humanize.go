// Package humanize writes strings, numbers and durations for people. What clients and sites sent
// is made printable, so that it moves no cursor and begins no line of its own.
package humanize

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// MaxBrief is how many bytes of a string Brief and Word show.
const MaxBrief = 300

// Printable returns a string unchanged if a terminal prints it unchanged. Otherwise it
// returns the quoted string.
func Printable(s string) string {
	if q := strconv.Quote(s); q[1:len(q)-1] != s {
		return q
	}
	return s
}

var unquoter = strings.NewReplacer(`\"`, `"`, `\\`, `\`)

// Escape returns a sentence in which characters that are not printable are escaped.
func Escape(s string) string {
	q := strconv.Quote(s)
	return unquoter.Replace(q[1 : len(q)-1])
}

// Cut returns the first bytes of a string, at most most, without a part of a character.
func Cut(s string, most int) string {
	if len(s) <= most {
		return s
	}
	end := most
	for end > max(most-utf8.UTFMax, 0) && !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end]
}

// Clip is Cut for people: a string that was longer ends in "…", within the most bytes.
func Clip(s string, most int) string {
	if len(s) <= most {
		return s
	}
	return Cut(s, most-len("…")) + "…"
}

// Brief is Printable for the beginning of a string.
func Brief(s string) string { return Printable(Clip(s, MaxBrief)) }

// Prose is Escape for the beginning of a sentence.
func Prose(s string) string { return Escape(Clip(s, MaxBrief)) }

// Word is Brief, and quotes a string with a space too, so that it reads as one word of a line.
func Word(s string) string {
	if s = Clip(s, MaxBrief); strings.Contains(s, " ") {
		return strconv.Quote(s)
	}
	return Printable(s)
}

// Number writes a number, of any type of integers, with a comma between thousands.
func Number(n any) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// Count writes a number of things, whose name takes an s for more than one. n is of any type of integers.
func Count(n any, thing string) string {
	number := Number(n)
	if number != "1" {
		thing += "s"
	}
	return number + " " + thing
}

// Bytes writes an amount of data.
func Bytes[T ~int | ~int64](n T) string {
	if n < 1<<10 {
		return fmt.Sprintf("%d B", n)
	}
	amount, unit := float64(n)/(1<<10), 0
	for ; amount >= 1023.95; unit++ {
		amount /= 1 << 10
	}
	return fmt.Sprintf("%.1f %ciB", amount, "KMGTPE"[unit])
}

// Duration writes a duration with two digits, or in two units. It rounds down, and shows what is
// less than a millisecond as one.
func Duration[D ~int64](of D) string {
	switch d := time.Duration(of); {
	case d <= 0:
		return "0 s"
	case d < time.Second:
		return fmt.Sprintf("%d ms", max(1, d.Milliseconds()))
	case d < 10*time.Second:
		return strconv.FormatFloat(d.Truncate(100*time.Millisecond).Seconds(), 'f', -1, 64) + " s"
	case d < time.Minute:
		return fmt.Sprintf("%d s", d/time.Second)
	case d < time.Hour:
		return units(d, time.Minute, "min", time.Second, "s")
	case d < 24*time.Hour:
		return units(d, time.Hour, "h", time.Minute, "min")
	default:
		return units(d, 24*time.Hour, "d", time.Hour, "h")
	}
}

// plainErrors replaces Go's own words for ended contexts and connections. Only a client ends the context
// of its request: a shutdown has errors of its own.
var plainErrors = strings.NewReplacer(
	"context deadline exceeded", "timed out",
	"i/o timeout", "timed out",
	"context canceled", "the client disconnected",
	// Package net says this of an ended context.
	"operation was canceled", "the client disconnected",
	"unexpected EOF", "the connection was closed before the end",
	": EOF", ": the connection was closed",
)

// Error writes an error of a request or a fetch.
func Error(err error) string { return plainErrors.Replace(err.Error()) }

func units(d, large time.Duration, largeName string, small time.Duration, smallName string) string {
	whole := fmt.Sprintf("%s %s", Number(int64(d/large)), largeName)
	if rest := d % large / small; rest > 0 && d/large < 10 {
		whole += fmt.Sprintf(" %d %s", rest, smallName)
	}
	return whole
}
