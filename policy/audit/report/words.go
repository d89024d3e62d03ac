package report

import (
	"strconv"
	"strings"
	"time"

	"robotsproxy/policy/explain/humanize"
)

const (
	noName = "(none)"   // for what is empty
	others = "(others)" // for what has no row of its own
)

// shown gives a stranger's string as it is where it is harmless, else quoted.
func shown(s string) string {
	if s == "" {
		return noName
	}
	return humanize.Printable(s)
}

// share is a part of a whole in per cent, never rounded to nothing or to all.
func share(part, whole int64) string {
	if whole <= 0 {
		return "0 %"
	}
	switch p := 100 * float64(part) / float64(whole); {
	case p > 0 && p < 0.1:
		return "less than 0.1 %"
	case p < 100 && p > 99.9:
		return "more than 99.9 %"
	default:
		return strings.TrimSuffix(strconv.FormatFloat(p, 'f', 1, 64), ".0") + " %"
	}
}

// delay is a Crawl-delay, which robots.txt has in seconds.
func delay(s float64) string { return strconv.FormatFloat(s, 'g', 6, 64) + " s" }

// stamp is a time in UTC to the second.
func stamp(t time.Time) string {
	if t.IsZero() {
		return "unknown"
	}
	return t.UTC().Format(time.DateTime)
}

// spoken is a time in a sentence.
func spoken(t time.Time) string {
	if t.IsZero() {
		return "an unknown time"
	}
	return t.UTC().Format("2 January 2006, 15:04")
}

// digest is enough of a SHA-256 to know it by.
func digest(sha256 string) string {
	return shown(humanize.Clip(sha256, 12+len("…")))
}

// signalWords say where a site says something of the use of its content.
var signalWords = map[string]string{
	"x_robots_tag":          "X-Robots-Tag, beside an answer",
	"robots_content_signal": "Content-Signal, in robots.txt",
	"robots_content_usage":  "Content-Usage, in robots.txt",
	"content_signal":        "Content-Signal, beside an answer",
	"content_usage":         "Content-Usage, beside an answer",
	"tdm_reservation":       "TDM-Reservation, beside an answer",
	"tdm_policy":            "TDM-Policy, beside an answer",
}
