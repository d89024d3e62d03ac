package config

import (
	"math"
	"net"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// kind is one sort of value: what it is called, and its way from and to text.
type kind struct {
	what    string                   // "a duration": for "is not …"
	example string                   // as in a file
	bare    bool                     // a number or a truth value: YAML's own type counts, quotes make it text
	text    bool                     // text alone: a bare number is not
	read    func(string) (any, bool) // false: the text is none of this kind
	hint    func(text string) string // more of what is wrong with it, in place of the example; may be nil
	write   func(any) string         // the reverse of read
}

// readText is read with the whole sentence where it is none, which calls the text shown.
func (k kind) readText(text, shown string) (value any, why string) {
	value, ok := k.read(text)
	if ok {
		return value, ""
	}
	if k.hint != nil {
		if h := k.hint(text); h != "" {
			return nil, shown + " " + h
		}
	}
	return nil, shown + " is not " + k.what + " (example: " + k.example + ")"
}

// kinds are found by the Go type, or by the name that a field's kind tag gives.
var kinds = map[string]kind{
	"bool":    {what: "true or false", example: "true", bare: true, read: readBool, write: func(v any) string { return strconv.FormatBool(v.(bool)) }},
	"int":     {what: "a whole number", example: "10", bare: true, read: readInt, write: func(v any) string { return strconv.Itoa(v.(int)) }},
	"float64": {what: "a number", example: "0.5", bare: true, read: readFloat, write: func(v any) string { return strconv.FormatFloat(v.(float64), 'g', -1, 64) }},

	"time.Duration":    {what: "a duration", example: "60s", read: readDuration, hint: unitless, write: writeDuration},
	"netip.Prefix":     {what: "a network", example: "10.0.0.0/8", read: readPrefix, hint: hostBits, write: func(v any) string { return v.(netip.Prefix).String() }},
	"config.PortRange": {what: "a port or a range of ports", example: "443 or 1024-65535", read: readPorts, write: func(v any) string { return v.(PortRange).String() }},

	"string":         {what: "text", example: `"text"`, text: true, read: func(s string) (any, bool) { return s, true }, write: asText},
	"address":        {what: "an address to listen on", example: "127.0.0.1:8080", text: true, read: textThat(isAddress), write: asText},
	"address-or-off": {what: "an address to listen on", example: `127.0.0.1:8081, or "" for none`, text: true, read: textThat(emptyOr(isAddress)), write: asText},
	"server":         {what: "the host:port of a server", example: "192.0.2.53:53", text: true, read: textThat(emptyOr(isServer)), write: asText},
	"pattern":        {what: "a host pattern", example: "example.com, *.example.com or *", text: true, read: textThat(isPattern), write: asText},
	"token":          {what: "a product token", example: "FooBot", text: true, read: textThat(emptyOr(isToken)), write: asText},
	"name":           {what: "a name of letters, digits, blanks and ._@-", example: "lab-a", text: true, read: textThat(emptyOr(isName)), write: asText},
	"header":         {what: "the value of a header", example: "FooBot/1.0 (+https://foo.example)", text: true, read: textThat(emptyOr(isHeader)), write: asText},
}

func asText(v any) string { return v.(string) }

func textThat(is func(string) bool) func(string) (any, bool) {
	return func(s string) (any, bool) { return s, is(s) }
}

func emptyOr(is func(string) bool) func(string) bool {
	return func(s string) bool { return s == "" || is(s) }
}

func readBool(s string) (any, bool) {
	low := strings.ToLower(s)
	return low == "true", low == "true" || low == "false"
}

func readInt(s string) (any, bool) {
	n, err := strconv.Atoi(s)
	return n, err == nil
}

func readFloat(s string) (any, bool) {
	x, err := strconv.ParseFloat(s, 64)
	return x, err == nil && !math.IsInf(x, 0) && !math.IsNaN(x)
}

func readDuration(s string) (any, bool) {
	d, err := time.ParseDuration(s)
	return d, err == nil
}

// unitless is for the commonest slip with durations.
func unitless(s string) string {
	if _, isNumber := readFloat(s); isNumber {
		return "has no unit (example: " + s + "s)"
	}
	return ""
}

// writeDuration is String without the noughts at its end: "24h", not "24h0m0s".
func writeDuration(v any) string {
	s := v.(time.Duration).String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

func readPrefix(s string) (any, bool) {
	p, err := netip.ParsePrefix(s)
	// An IPv4-mapped network would never hold an address: those are unmapped before they are judged.
	return p, err == nil && p == p.Masked() && !p.Addr().Is4In6()
}

// hostBits is for a network that names one of its hosts: it might mean either.
func hostBits(s string) string {
	if a, err := netip.ParseAddr(s); err == nil {
		return "is one address: as a network it is " + netip.PrefixFrom(a, a.BitLen()).String()
	}
	if p, err := netip.ParsePrefix(s); err == nil && p != p.Masked() {
		return "has bits set after the first " + strconv.Itoa(p.Bits()) + " (the network is " + p.Masked().String() + ")"
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

// isAddress: port 0 is a free one, no host is every interface.
func isAddress(s string) bool {
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		return false
	}
	_, err = strconv.ParseUint(port, 10, 16)
	return err == nil && (host == "" || isHost(host))
}

func isServer(s string) bool {
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		return false
	}
	n, err := strconv.ParseUint(port, 10, 16)
	return err == nil && n > 0 && isHost(host)
}

// hostName is loose: names in any script, judged further by who looks them up.
var hostName = regexp.MustCompile(`^[\pL\pM\pN_-]+(\.[\pL\pM\pN_-]+)*\.?$`)

func isHost(s string) bool {
	_, err := netip.ParseAddr(s)
	return err == nil || len(s) <= 253 && hostName.MatchString(s)
}

func isPattern(s string) bool {
	return s == "*" || isHost(strings.TrimPrefix(s, "*."))
}

// token is RFC 9110's (5.6.2): what can stand as one word in a User-Agent header.
var token = regexp.MustCompile("^[!#$%&'*+.^_`|~0-9A-Za-z-]{1,256}$")

func isToken(s string) bool { return token.MatchString(s) }

// name is what a client is called: no address, which unnamed clients are called by.
var name = regexp.MustCompile(`^[\pL\pN][\pL\pM\pN ._@-]{0,99}$`)

func isName(s string) bool {
	_, err := netip.ParseAddr(s)
	return err != nil && name.MatchString(s) && s == strings.TrimSpace(s)
}

const maxHeader = 4 << 10 // octets of a header's value

func isHeader(s string) bool {
	if len(s) > maxHeader || s != strings.TrimSpace(s) {
		return false
	}
	return !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f })
}
