package report

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// clip keeps a string from holding more memory than maxText octets.
func clip(s string) string { return clipTo(s, maxText) }

// clipTo cuts what is longer than so many octets, and lets that be seen.
func clipTo(s string, most int) string {
	if len(s) <= most {
		return s
	}
	end := most - len("…")
	for end > 0 && !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end] + "…"
}

const (
	noName = "(none)"   // for what is empty
	others = "(others)" // for what has no row of its own
)

// shown gives a stranger's string as it is where it is harmless, else quoted.
func shown(s string) string {
	if s == "" {
		return noName
	}
	if q := strconv.Quote(s); q[1:len(q)-1] != s {
		return q
	}
	return s
}

// number writes thousands apart.
func number(n int64) string {
	digits := strconv.FormatInt(n, 10)
	var b strings.Builder
	for i, d := range digits {
		if i > 0 && (len(digits)-i)%3 == 0 {
			b.WriteByte(',')
		}
		b.WriteRune(d)
	}
	return b.String()
}

// many is a number of things, whose name takes an s for more than one.
func many(n int64, what string) string {
	if n != 1 {
		what += "s"
	}
	return number(n) + " " + what
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

// octets is an amount of data in powers of a thousand.
func octets(n int64) string {
	const units = "kMGTPE"
	if n < 1000 {
		return strconv.FormatInt(n, 10) + " B"
	}
	amount, unit := float64(n)/1000, 0
	for amount >= 999.95 && unit < len(units)-1 {
		amount, unit = amount/1000, unit+1
	}
	return fmt.Sprintf("%.1f %cB", amount, units[unit])
}

// spell is a duration in at most two units.
func spell(s seconds) string {
	d := time.Duration(s)
	switch {
	case d <= 0:
		return "0 s"
	case d < time.Second:
		return strconv.FormatInt(max(1, d.Round(time.Millisecond).Milliseconds()), 10) + " ms"
	case d < time.Minute:
		return strconv.FormatFloat(d.Seconds(), 'f', 1, 64) + " s"
	case d < time.Hour:
		return units(d.Round(time.Second), time.Minute, "min", time.Second, "s")
	case d < 24*time.Hour:
		return units(d.Round(time.Minute), time.Hour, "h", time.Minute, "min")
	}
	return units(d.Round(time.Hour), 24*time.Hour, "d", time.Hour, "h")
}

func units(d, large time.Duration, largeName string, small time.Duration, smallName string) string {
	text := fmt.Sprintf("%s %s", number(int64(d/large)), largeName)
	if rest := d % large / small; rest > 0 {
		text += fmt.Sprintf(" %d %s", rest, smallName)
	}
	return text
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
	return shown(clipTo(sha256, 12+len("…")))
}

// reasonWords say in plain words on what a decision rests.
var reasonWords = map[string]string{
	"rule":        "a rule of the site's robots.txt decided",
	"no-rule":     "the site's robots.txt has no rule for the address",
	"no-file":     "the site has no robots.txt",
	"robots-txt":  "robots.txt itself was asked for, which is always allowed",
	"unreachable": "the site was reached, but gave no usable robots.txt",
	"origin":      "the site could not be reached",
	"parent":      "the proxy's own way out did not work",
	"crawl-delay": "the site asks for longer pauses than the configuration grants",
	"too-complex": "matching the address against the site's robots.txt would have taken too many steps",
	"tunnel":      "an encrypted connection that was not opened, judged by its host alone",
	"identity":    "the client did not say who it is",
	"denied-host": "an entry of the configuration denies the host",
	"override":    "an entry of the configuration sets robots.txt aside",
	"pace":        "its turn would have come too late",
	"quota":       "the client had sent what it may in a day",
	"shutdown":    "the proxy was ending",
	"limit":       "the client had too many connections or refusals at once, or memory was short",
	"address":     "a private or reserved address, where the proxy does not go",
	"port":        "a port where the proxy does not go",
	"auth":        "whoever asked did not show to be a known client",
	"malformed":   "not a request that could be sent on",
	"loop":        "the request had been here before",
	"audit":       "the audit could not be written",
	"client":      "the client left before its turn came",
	"internal":    "a fault of the proxy's own",
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
