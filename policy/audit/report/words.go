package report

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"robotsproxy/policy"
	"robotsproxy/policy/explain/humanize"
)

const (
	// noName stands for an empty name.
	noName = "(none)"
	// others is the name of the row for all that have none of their own.
	others = "(others)"
)

// shown returns the string of a client or an origin, quoted if it has unprintable characters.
func shown(s string) string {
	if s == "" {
		return noName
	}
	return humanize.Printable(s)
}

// share returns n, of a whole, in per cent. It rounds neither to 0 % nor to 100 %.
func share(n, whole int64) string {
	if whole <= 0 {
		return "0 %"
	}
	switch p := 100 * float64(n) / float64(whole); {
	case p > 0 && p < 0.1:
		return "less than 0.1 %"
	case p < 100 && p > 99.9:
		return "more than 99.9 %"
	default:
		return strings.TrimSuffix(strconv.FormatFloat(p, 'f', 1, 64), ".0") + " %"
	}
}

// delay formats a Crawl-delay, which robots.txt has in seconds.
func delay(s float64) string { return strconv.FormatFloat(s, 'g', 6, 64) + " s" }

// stamp formats a time in UTC to the second.
func stamp(t time.Time) string {
	if t.IsZero() {
		return "unknown"
	}
	return t.UTC().Format(time.DateTime)
}

// period returns a time span in UTC, to the second if it is within a day.
func period(first, last time.Time) string {
	const day = "2 January 2006"
	first, last = first.UTC(), last.UTC()
	from, to := first.Format(time.TimeOnly), last.Format(time.TimeOnly)
	switch days := first.Format(day) + " to " + last.Format(day); {
	case first.IsZero():
		return "at an unknown time"
	case first.Format(day) != last.Format(day):
		return days
	case from == to:
		return fmt.Sprintf("%s, %s UTC", first.Format(day), from)
	default:
		return fmt.Sprintf("%s, %s to %s UTC", first.Format(day), from, to)
	}
}

// digest returns the beginning of a SHA-256, which identifies it.
func digest(sha256 string) string {
	return shown(humanize.Clip(sha256, 12+len("…")))
}

// unsignedWords say why the proxy did not sign requests.
var unsignedWords = map[policy.Unsigned]string{
	"":                    "of the proxy",
	policy.UnsignedClient: "of the client, or a part of one",
	policy.UnsignedPlain:  "none: plain HTTP",
	policy.UnsignedTunnel: "none: a tunnel that was not intercepted",
	policy.UnsignedFTP:    "none: FTP",
}

// signature says whose signature the requests have, or why they have none.
func (s *signed) signature() string {
	if text, ok := unsignedWords[policy.Unsigned(s.Unsigned)]; ok {
		return text
	}
	return "none: " + shown(s.Unsigned)
}
