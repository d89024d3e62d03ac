package config

import (
	"fmt"
	"math"
	"net/netip"
	"strconv"
	"strings"
	"time"
)

// A Wait is a positive duration, or AutoWait.
type Wait time.Duration

// AutoWait is the duration that suits the command which runs the proxy.
const AutoWait Wait = -1

// A Size is a number of bytes.
type Size int64

// An AutoSize is a number of bytes, or Auto.
type AutoSize int64

// Auto is as many bytes as the machine has for the purpose.
const Auto AutoSize = -1

// A PortRange is the ports from First to Last, both included.
type PortRange struct{ First, Last uint16 }

// String writes the range as the file does: "443", "1024-65535".
func (p PortRange) String() string {
	if p.First == p.Last {
		return fmt.Sprint(p.First)
	}
	return fmt.Sprintf("%d-%d", p.First, p.Last)
}

// A Status is an HTTP status of an error.
type Status int

func readStatus(s string) (any, bool) {
	n, err := strconv.Atoi(s)
	return Status(n), err == nil && 400 <= n && n <= 599
}

func readBool(s string) (any, bool) {
	low := strings.ToLower(s)
	return low == "true", low == "true" || low == "false"
}

func readFloat(s string) (any, bool) {
	x, err := strconv.ParseFloat(s, 64)
	return x, err == nil && !math.IsInf(x, 0) && !math.IsNaN(x)
}

// reading makes a reader of a function that returns an error.
func reading[T any](parse func(string) (T, error)) func(string) (any, bool) {
	return func(s string) (any, bool) {
		v, err := parse(s)
		return v, err == nil
	}
}

// unitless is the hint for a duration without a unit.
func unitless(s string) string {
	if _, isNumber := readFloat(s); isNumber {
		return "has no unit (example: " + s + "s)"
	}
	return ""
}

func readWait(s string) (any, bool) {
	if s == auto {
		return AutoWait, true
	}
	d, err := time.ParseDuration(s)
	return Wait(d), err == nil && d > 0
}

// sizeUnits are the units of IEC 80000-13, the largest first.
var sizeUnits = []struct {
	name  string
	bytes int64
}{{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"B", 1}}

func readSize(s string) (any, bool) {
	if s == "0" {
		return Size(0), true
	}
	for _, u := range sizeUnits {
		if digits, ok := strings.CutSuffix(s, u.name); ok {
			n, err := strconv.ParseUint(strings.TrimSpace(digits), 10, 63)
			return Size(int64(n) * u.bytes), err == nil && int64(n) <= math.MaxInt64/u.bytes
		}
	}
	return Size(0), false
}

// thousands is the hint for units of thousands.
func thousands(s string) string {
	if t, ok := strings.CutSuffix(s, "B"); ok && !strings.HasSuffix(t, "i") {
		return "has an unknown unit: use TiB, GiB, MiB, KiB or B"
	}
	return ""
}

// auto is the text of Auto and AutoWait.
const auto = "auto"

func readAutoSize(s string) (any, bool) {
	if s == auto {
		return Auto, true
	}
	n, ok := readSize(s)
	return AutoSize(n.(Size)), ok
}

func readPrefix(s string) (any, bool) {
	p, err := netip.ParsePrefix(s)
	// An IPv4-mapped network would match nothing: addresses are unmapped before they are matched.
	return p, err == nil && p == p.Masked() && !p.Addr().Is4In6()
}

// hostBits is the hint for a network with host bits, which may mean the network or the host.
func hostBits(s string) string {
	if a, err := netip.ParseAddr(s); err == nil {
		return "is an address, not a network: use " + netip.PrefixFrom(a, a.BitLen()).String()
	}
	if p, err := netip.ParsePrefix(s); err == nil && p != p.Masked() {
		return "has bits set beyond its prefix length: use " + p.Masked().String()
	}
	return ""
}

func readPorts(s string) (any, bool) {
	first, last, isRange := strings.Cut(s, "-")
	if !isRange {
		last = first
	}
	a, errA := strconv.ParseUint(first, 10, 16)
	b, errB := strconv.ParseUint(last, 10, 16)
	return PortRange{uint16(a), uint16(b)}, errA == nil && errB == nil && a >= 1 && a <= b
}

// readTime reads a day or a time (RFC 3339) as the moment when it ends. A day ends when the next one begins. A year before 1970
// is taken for a mistake.
func readTime(s string) (any, bool) {
	if s == "" {
		return time.Time{}, true
	}
	t, err := time.Parse(time.DateOnly, s)
	if err == nil {
		t = t.AddDate(0, 0, 1)
	} else if t, err = time.Parse(time.RFC3339, s); err != nil {
		return time.Time{}, false
	}
	t = t.UTC()
	return t, t.Year() >= 1970 && t.Before(endOfTime)
}

// endOfTime is after the last day that has a text.
var endOfTime = time.Date(10_000, 1, 1, 0, 0, 0, 1, time.UTC)

// textOf returns a value as a file has it, without quotes.
func textOf(v any) string {
	switch v := v.(type) {
	case float64:
		return strconv.FormatFloat(v, 'g', -1, 64)
	case time.Duration:
		return durationText(v)
	case Wait:
		if v == AutoWait {
			return auto
		}
		return durationText(time.Duration(v))
	case Size:
		return sizeText(int64(v))
	case AutoSize:
		if v == Auto {
			return auto
		}
		return sizeText(int64(v))
	case time.Time:
		return timeText(v.UTC())
	}
	return fmt.Sprint(v)
}

// durationText leaves out zero minutes and seconds: "24h", not "24h0m0s".
func durationText(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

func sizeText(n int64) string {
	for _, u := range sizeUnits {
		if n >= u.bytes && n%u.bytes == 0 {
			return strconv.FormatInt(n/u.bytes, 10) + u.name
		}
	}
	return "0"
}

// timeText writes midnight as the day before it.
func timeText(t time.Time) string {
	switch {
	case t.IsZero():
		return ""
	case t.Truncate(24 * time.Hour).Equal(t):
		return t.AddDate(0, 0, -1).Format(time.DateOnly)
	}
	return t.Format(time.RFC3339Nano)
}
