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
	// append writes the line as a JSON object without its end, which trail.Seal writes,
	// by way of bounded. A line that is not a request's begins with appendKind.
	append(b []byte, o *Options) []byte
}

const (
	// maxRest bounds a line without its URL and without what trail.Seal adds, in bytes.
	// Together with what Seal adds it is 4 KiB.
	maxRest = 4<<10 - trail.MaxLink - len(trail.VersionMember)
	// minText is the least limit of strings, in bytes, for a line that would exceed maxRest.
	minText = 64
)

// bounded appends the line that write appends with strings of at most limit bytes; url is
// how many bytes of the line are its URL's. While the rest of the line is longer than
// maxRest, bounded halves the limit, which shortens only the longest strings.
func bounded(b []byte, write func(b []byte, limit int) (line []byte, url int)) []byte {
	for limit := trail.MaxText; ; limit /= 2 {
		line, url := write(b, limit)
		if len(line)-len(b)-url <= maxRest || limit <= minText {
			return line
		}
	}
}

// append writes the record of a request. It is written by hand because encoding/json
// costs more than the rest of a request's record, and because strangers' bytes are
// escaped more strictly here.
func (r *Record) append(b []byte, o *Options) []byte {
	return bounded(b, func(b []byte, limit int) ([]byte, int) { return r.appendWithin(b, o, limit) })
}

// appendWithin writes the record with strings of at most limit bytes, except for the URL,
// whose length in the line it gives.
func (r *Record) appendWithin(b []byte, o *Options, limit int) (line []byte, url int) {
	d := &r.Decision
	b = appendTime(append(b, `{"time":"`...), r.Time)
	b = appendString(append(b, `","id":`...), r.ID)
	b = appendOptional(b, `,"replica":"`, o.Replica, limit)
	client := r.Request.Client
	if o.Client != nil {
		client = o.Client(client)
	}
	b = appendOptional(b, `,"client":"`, client, limit)
	b = appendOptional(b, `,"method":"`, r.Request.Method, limit)
	b, url = appendURL(b, r, o.DropQuery, limit)
	b = appendOptional(b, `,"host":"`, r.Request.Origin.Host, limit)
	b = appendOptional(b, `,"user_agent":"`, r.Request.UserAgent, limit)
	b = appendOptional(b, `,"agent":"`, d.Token, limit)
	b = append(append(b, `,"decision":"`...), d.Verdict.String()...)
	b = append(append(b, `","reason":"`...), d.Reason...)
	b = strconv.AppendBool(append(b, `","enforced":`...), !r.Monitor)
	b = appendOptional(b, `,"entry":"`, d.Entry, limit)
	b = appendOptional(b, `,"entry_reason":"`, d.EntryReason, limit)
	b = appendOptional(b, `,"rule":"`, d.Rule, limit)
	if d.Line > 0 {
		b = strconv.AppendInt(append(b, `,"line":`...), int64(d.Line), 10)
	}
	b = appendOptional(b, `,"reading":"`, d.Form.String(), limit)
	b = appendOptional(b, `,"group":"`, d.Group, limit)
	b = appendRuling(b, d, limit)
	b = appendOptional(b, `,"robots_content_signal":"`, d.Signals.String(), limit)
	b = appendOptional(b, `,"robots_content_usage":"`, d.Usage, limit)
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
	if r.StoreAway {
		b = append(b, `,"store_away":true`...)
	}
	b = appendWish(b, `,"x_robots_tag":"`, &r.Preferences.RobotsTag, limit)
	b = appendWish(b, `,"content_signal":"`, &r.Preferences.ContentSignal, limit)
	b = appendWish(b, `,"content_usage":"`, &r.Preferences.ContentUsage, limit)
	b = appendWish(b, `,"tdm_reservation":"`, &r.Preferences.TDMReservation, limit)
	b = appendWish(b, `,"tdm_policy":"`, &r.Preferences.TDMPolicy, limit)
	if r.Status > 0 {
		b = strconv.AppendInt(append(b, `,"status":`...), int64(r.Status), 10)
	}
	b = strconv.AppendInt(append(b, `,"bytes":`...), r.Bytes, 10)
	b = appendMillis(append(b, `,"duration_ms":`...), r.Took)
	if err := cmp.Or(r.Err, d.Err); err != nil {
		b = appendOptional(b, `,"error":"`, discreet(err.Error(), r, o), limit)
	}
	return b, url
}

// appendKind begins a line that is not a request's.
func appendKind(b []byte, at time.Time, kind string, o *Options, limit int) []byte {
	b = appendTime(append(b, `{"time":"`...), at)
	b = appendString(append(b, `","kind":`...), kind)
	return appendOptional(b, `,"replica":"`, o.Replica, limit)
}

// appendRuling writes which robots.txt a decision rests on, if it does on one.
func appendRuling(b []byte, d *policy.Decision, limit int) []byte {
	a := d.Ruling.Result
	if a == nil {
		return b
	}
	b = appendOptional(b, `,"robots_url":"`, a.URL, limit)
	if at := d.Ruling.Fetched(); !at.IsZero() {
		b = append(appendTime(append(b, `,"robots_fetched":"`...), at), '"')
	}
	b = appendOptional(b, `,"robots_agent":"`, a.UserAgent, limit)
	b = appendOptional(b, `,"robots_sha256":"`, a.SHA256, limit)
	b = appendOptional(b, `,"dialect":"`, d.Dialect, limit)
	if d.Ruling.Stale {
		b = append(b, `,"robots_stale":true`...)
	}
	return b
}

// appendURL writes the URL of the request, and gives its length in the line. For a request
// without a valid URL it writes the target that the client sent, cut as other strings are,
// and gives 0. In both it percent-encodes what is not printable.
func appendURL(b []byte, r *Record, dropQuery bool, limit int) (line []byte, url int) {
	q := r.Request
	target := q.PathQuery
	if q.Origin.Host == "" {
		target = r.Target
	}
	if dropQuery {
		target, _, _ = strings.Cut(target, "?")
	}
	b = append(b, `,"url":"`...)
	start := len(b)
	switch {
	case q.Origin.Host == "":
		return append(appendURLText(b, target, limit), '"'), 0
	case q.Method == http.MethodConnect:
		b = appendEscaped(b, q.Origin.Addr())
	default:
		b = appendEscaped(b, q.Origin.String())
		whole := target[:cutAt(target, trail.MaxURL)]
		plain := plainOctets(whole)
		b = append(b, whole[:plain]...)
		b = appendEscaped(b, percentEncoded(whole[plain:]))
		if len(target) > trail.MaxURL {
			b = trail.AppendCut(b, len(target))
		}
	}
	return append(b, '"'), len(b) - start
}

// appendURLText is appendText for a whole URL, which it percent-encodes.
func appendURLText(b []byte, url string, limit int) []byte {
	return appendText(b, percentEncoded(url[:min(len(url), limit+1)]), limit, len(url))
}

// percentEncoded gives a URL in which each byte that is not a part of a printable character
// is percent-encoded. So the record keeps which byte it was, robots.txt is matched as
// before, and a URL takes at most three times its length in a line.
func percentEncoded(url string) string {
	if plainOctets(url) == len(url) {
		return url // as nearly always
	}
	b := make([]byte, 0, len(url))
	for url != "" {
		r, n := utf8.DecodeRuneInString(url)
		if r != utf8.RuneError && unicode.IsPrint(r) {
			b = append(b, url[:n]...)
		} else {
			for _, c := range []byte(url[:n]) {
				b = append(b, '%', "0123456789ABCDEF"[c>>4], "0123456789ABCDEF"[c&15])
			}
		}
		url = url[n:]
	}
	return string(b)
}

// cutAt gives where to cut a string to at most most bytes without splitting a character.
func cutAt(s string, most int) int {
	if len(s) <= most {
		return len(s)
	}
	n := most
	for n > most-utf8.UTFMax && !utf8.RuneStart(s[n]) {
		n--
	}
	return n
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
// that is empty. The value has at most limit bytes in the line.
func appendOptional(b []byte, member, value string, limit int) []byte {
	if value == "" {
		return b
	}
	return append(appendText(append(b, member...), value, limit, len(value)), '"')
}

// appendWish is appendOptional for a Wish.
func appendWish(b []byte, member string, w *Preference, limit int) []byte {
	if w.Text == "" {
		return b
	}
	return append(appendText(append(b, member...), w.Text, limit, w.Bytes), '"')
}

func appendString(b []byte, s string) []byte {
	return append(appendEscaped(append(b, '"'), s), '"')
}

// appendText is appendEscaped with at most limit bytes; limit is at least minText. It cuts
// a longer string, but neither a character nor an escape, and ends it in its whole length
// (trail.AppendCut). whole is that length: s may be only the beginning of the string.
func appendText(b []byte, s string, limit, whole int) []byte {
	start := len(b)
	if n := plainOctets(s); n == len(s) && n == whole && n <= limit {
		return append(b, s...) // as nearly always
	}
	room := limit - trail.MaxCut
	end := start // of what fits in front of the mark of the cut
	for rest := s[:min(len(s), limit+1)]; rest != "" && len(b)-start <= limit; {
		n := plainOctets(rest)
		if n > 0 {
			if len(b)-start < room {
				end = min(len(b)+n, start+room)
			}
			b = append(b, rest[:n]...)
		} else {
			var r rune
			r, n = utf8.DecodeRuneInString(rest)
			if b = appendRune(b, r); len(b)-start <= room {
				end = len(b)
			}
		}
		rest = rest[n:]
	}
	if len(b)-start > limit || whole > len(s) {
		b = trail.AppendCut(b[:end], whole)
	}
	return b
}

// appendEscaped writes strangers' bytes as the inside of a JSON string.
// Beyond what JSON asks for, everything that is not printable is escaped, so
// that no line can move a terminal's cursor or turn its text around.
func appendEscaped(b []byte, s string) []byte {
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
