package audit

import (
	"bytes"
	"cmp"
	"math/bits"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"robotsproxy/policy"
	"robotsproxy/policy/audit/trail"
)

// A line is what a Log chains. There is one type for each kind of line: a [Record] for
// a request, event for the trail itself.
type line interface {
	// append writes the line as a JSON object without its end, which trail.Seal writes.
	// Lines of all kinds begin with appendTime; those that are not of requests go on
	// with appendKind.
	append(b []byte, o *Options) []byte
}

// append writes the record of a request. It is written by hand because encoding/json
// costs more than the rest of a request's record, and because strangers' bytes are
// escaped more strictly here.
func (r *Record) append(b []byte, o *Options) []byte {
	d := &r.Decision
	b = appendTime(append(b, `{"time":"`...), r.Time)
	b = appendString(append(b, `","id":`...), r.ID)
	b = appendOptional(b, `,"replica":"`, o.Replica)
	client := r.Request.Client
	if o.Client != nil {
		client = o.Client(client)
	}
	b = appendOptional(b, `,"client":"`, client)
	b = appendOptional(b, `,"method":"`, r.Request.Method)
	b = appendURL(b, r, o.DropQuery)
	b = appendOptional(b, `,"host":"`, r.Request.Origin.Host)
	b = appendOptional(b, `,"user_agent":"`, r.Request.UserAgent)
	b = appendOptional(b, `,"agent":"`, d.Token)
	b = append(append(b, `,"decision":"`...), d.Verdict.String()...)
	b = append(append(b, `","reason":"`...), d.Reason...)
	b = strconv.AppendBool(append(b, `","enforced":`...), !r.Monitor)
	b = appendOptional(b, `,"entry":"`, d.Entry)
	b = appendOptional(b, `,"entry_reason":"`, d.EntryReason)
	b = appendOptional(b, `,"rule":"`, d.Rule)
	if d.Line > 0 {
		b = strconv.AppendInt(append(b, `,"line":`...), int64(d.Line), 10)
	}
	b = appendOptional(b, `,"group":"`, d.Group)
	b = appendRuling(b, d)
	b = appendOptional(b, `,"robots_content_signal":"`, d.Signals.String())
	b = appendOptional(b, `,"robots_content_usage":"`, cutWish(d.Usage))
	if d.Asked > 0 {
		b = appendSeconds(append(b, `,"crawl_delay_s":`...), d.Pace.CrawlDelay)
		b = appendSeconds(append(b, `,"crawl_delay_asked_s":`...), d.Asked)
	}
	b = appendMillis(append(b, `,"wait_ms":`...), r.Waited)
	if r.BackOff > 0 {
		b = appendSeconds(append(b, `,"back_off_s":`...), r.BackOff.Round(time.Millisecond))
	}
	if r.Slowed > 0 {
		b = appendSeconds(append(b, `,"slowed_s":`...), r.Slowed.Round(time.Millisecond))
	}
	if r.Cached {
		b = append(b, `,"cached":true`...)
	}
	if r.Away {
		b = append(b, `,"store_away":true`...)
	}
	b = appendOptional(b, `,"x_robots_tag":"`, r.Wishes.RobotsTag)
	b = appendOptional(b, `,"content_signal":"`, r.Wishes.ContentSignal)
	b = appendOptional(b, `,"content_usage":"`, r.Wishes.ContentUsage)
	b = appendOptional(b, `,"tdm_reservation":"`, r.Wishes.TDMReservation)
	b = appendOptional(b, `,"tdm_policy":"`, r.Wishes.TDMPolicy)
	if r.Status > 0 {
		b = strconv.AppendInt(append(b, `,"status":`...), int64(r.Status), 10)
	}
	b = strconv.AppendInt(append(b, `,"bytes":`...), r.Bytes, 10)
	b = appendMillis(append(b, `,"duration_ms":`...), r.Took)
	if err := cmp.Or(r.Err, d.Err); err != nil {
		b = appendOptional(b, `,"error":"`, discreet(err.Error(), r, o))
	}
	return b
}

// appendKind begins a line that is not a request's.
func appendKind(b []byte, at time.Time, kind string, o *Options) []byte {
	b = appendTime(append(b, `{"time":"`...), at)
	b = appendString(append(b, `","kind":`...), kind)
	return appendOptional(b, `,"replica":"`, o.Replica)
}

// appendRuling writes which robots.txt a decision rests on, if it does on one.
func appendRuling(b []byte, d *policy.Decision) []byte {
	a := d.Ruling.Answer
	if a == nil {
		return b
	}
	b = appendOptional(b, `,"robots_url":"`, a.URL)
	if at := d.Ruling.Fetched(); !at.IsZero() {
		b = append(appendTime(append(b, `,"robots_fetched":"`...), at), '"')
	}
	b = appendOptional(b, `,"robots_agent":"`, a.UserAgent)
	b = appendOptional(b, `,"robots_sha256":"`, a.SHA256)
	b = appendOptional(b, `,"dialect":"`, d.Dialect)
	if d.Ruling.Stale {
		b = append(b, `,"robots_stale":true`...)
	}
	return b
}

// appendURL writes where the request went, or, where that could not be made
// out, what the client wrote.
func appendURL(b []byte, r *Record, dropQuery bool) []byte {
	q := r.Request
	target := q.PathQuery
	if q.Origin.Host == "" {
		target = r.Target
	}
	if dropQuery {
		target, _, _ = strings.Cut(target, "?")
	}
	b = append(b, `,"url":"`...)
	switch {
	case q.Origin.Host == "":
	case q.Method == http.MethodConnect:
		target = q.Origin.Addr()
	default:
		b = appendEscaped(b, q.Origin.String())
	}
	return append(appendEscaped(b, target), '"')
}

// appendTime writes RFC 3339 with all nine digits, so that lines sort as they
// happened. time has no quick way for that.
func appendTime(b []byte, t time.Time) []byte {
	year, month, day := t.UTC().Date()
	const perDay = 24 * 60 * 60
	second := int((t.Unix()%perDay + perDay) % perDay) // of the day, which t.Clock would divide once more
	b = append(appendPair(appendPair(b, year/100), year%100), '-')
	b = append(appendPair(b, int(month)), '-')
	b = append(appendPair(b, day), 'T')
	b = append(appendPair(b, second/3600), ':')
	b = append(appendPair(b, second/60%60), ':')
	b = append(appendPair(b, second%60), '.')
	ns := t.Nanosecond()
	b = appendPair(appendPair(b, ns/10_000_000), ns/100_000%100)
	b = appendPair(appendPair(b, ns/1000%100), ns/10%100)
	return append(b, byte('0'+ns%10), 'Z')
}

// appendPair writes two decimal digits.
func appendPair(b []byte, n int) []byte { return append(b, byte('0'+n/10%10), byte('0'+n%10)) }

func appendSeconds(b []byte, d time.Duration) []byte {
	if d%time.Second == 0 {
		return strconv.AppendInt(b, int64(d/time.Second), 10) // as nearly always
	}
	return strconv.AppendFloat(b, d.Seconds(), 'f', -1, 64)
}

// appendMillis writes milliseconds to the microsecond, without zeros at the end.
func appendMillis(b []byte, d time.Duration) []byte {
	us := max(0, d.Round(time.Microsecond).Microseconds())
	b = strconv.AppendInt(b, us/1000, 10)
	if us %= 1000; us == 0 {
		return b
	}
	b = append(b, '.', byte('0'+us/100), byte('0'+us/10%10), byte('0'+us%10))
	return bytes.TrimRight(b, "0")
}

// appendOptional writes a member, given with all that stands before its value, unless
// that is empty.
func appendOptional(b []byte, member, value string) []byte {
	if value == "" {
		return b
	}
	return append(appendEscaped(append(b, member...), value), '"')
}

func appendString(b []byte, s string) []byte {
	return append(appendEscaped(append(b, '"'), s), '"')
}

// appendEscaped writes strangers' octets as the inside of a JSON string.
// Beyond what JSON asks for, everything that is not printable is escaped, so
// that no line can move a terminal's cursor or turn its text around.
func appendEscaped(b []byte, s string) []byte {
	if len(s) > trail.MaxString {
		s = s[:trail.MaxString]
	}
	for {
		n := plainOctets(s)
		b = append(b, s[:n]...)
		if s = s[n:]; s == "" {
			return b
		}
		r, n := utf8.DecodeRuneInString(s)
		b = appendRune(b, r)
		s = s[n:]
	}
}

// plainOctets is how many octets s begins with that stand for themselves. It looks at
// eight at once: the highest bit of each is set in strange where it does not. Behind
// the first such octet that may be wrong, by the borrow.
func plainOctets(s string) int {
	const ones, high = 0x0101010101010101, 0x8080808080808080
	i := 0
	for ; i+8 <= len(s); i += 8 {
		x := uint64(s[i]) | uint64(s[i+1])<<8 | uint64(s[i+2])<<16 | uint64(s[i+3])<<24 |
			uint64(s[i+4])<<32 | uint64(s[i+5])<<40 | uint64(s[i+6])<<48 | uint64(s[i+7])<<56
		quote, slash, del := x^ones*'"', x^ones*'\\', x^ones*0x7f
		strange := (x | (x - ones*' ') | (quote - ones) | (slash - ones) | (del - ones)) & high
		if strange != 0 {
			return i + bits.TrailingZeros64(strange)/8
		}
	}
	for ; i < len(s); i++ {
		if c := s[i]; c < ' ' || c == '"' || c == '\\' || c >= 0x7f {
			break
		}
	}
	return i
}

func appendRune(b []byte, r rune) []byte {
	switch {
	case r == '"' || r == '\\':
		return append(b, '\\', byte(r))
	case r != utf8.RuneError && unicode.IsPrint(r):
		return utf8.AppendRune(b, r)
	case r > 0xffff:
		r -= 0x10000
		return appendRune(appendRune(b, 0xd800+r>>10), 0xdc00+r&0x3ff)
	}
	const hexDigits = "0123456789abcdef"
	return append(b, '\\', 'u', hexDigits[r>>12&15], hexDigits[r>>8&15], hexDigits[r>>4&15], hexDigits[r&15])
}
