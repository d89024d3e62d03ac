package robots

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"unicode/utf8"

	"golang.org/x/net/idna"
)

// RFC 1035 2.3.4: the most octets of a host name and of one label of it.
const (
	maxHost  = 253
	maxLabel = 63
)

// An Origin is what one robots.txt speaks for: scheme, host and port
// (RFC 9309 2.3). It is comparable; equal origins share one file. The zero
// Origin names none.
type Origin struct {
	Scheme string // "http", "https" or "ftp"
	Host   string // lower-case ASCII: a name (IDN as Punycode, no trailing dot), or an address (IPv6 without brackets)
	Port   uint16 // never 0
}

// ParseOrigin reads the scheme and the host part of a URL, with or without a
// port, into the one form that all of its spellings share. User information,
// an empty host, an empty label, a host or label that DNS could not hold, any
// octet that no host name has, and a port outside 1 to 65535 are errors.
func ParseOrigin(scheme, hostport string) (Origin, error) {
	o, err := parseOrigin(scheme, hostport)
	if err != nil {
		return Origin{}, fmt.Errorf("parse origin %q: %w", clip(scheme)+"://"+clip(hostport), err)
	}
	return o, nil
}

func parseOrigin(scheme, hostport string) (Origin, error) {
	var o Origin
	for _, known := range [...]string{"http", "https", "ftp"} {
		if strings.EqualFold(scheme, known) {
			o.Scheme, o.Port = known, defaultPort(known)
		}
	}
	if o.Scheme == "" {
		return Origin{}, errors.New("the scheme is none of http, https and ftp")
	}
	host, port, err := splitPort(hostport)
	if err != nil {
		return Origin{}, err
	}
	if port != "" {
		n, err := strconv.ParseUint(port, 10, 16)
		if err != nil || n == 0 {
			return Origin{}, errors.New("the port is not a number from 1 to 65535")
		}
		o.Port = uint16(n)
	}
	if o.Host, err = parseHost(host); err != nil {
		return Origin{}, err
	}
	return o, nil
}

// ParseHost reads a host without a port into the form that Origin.Host has: a
// name, or an address, IPv6 with or without brackets. What ParseOrigin takes for
// no host is an error.
func ParseHost(host string) (string, error) {
	bracketed := host
	if strings.Contains(host, ":") && !strings.HasPrefix(host, "[") {
		bracketed = "[" + host + "]" // no name has a colon
	}
	parsed, err := parseHost(bracketed)
	if err != nil {
		return "", fmt.Errorf("parse host %q: %w", clip(host), err)
	}
	return parsed, nil
}

func parseHost(s string) (string, error) {
	if strings.HasPrefix(s, "[") {
		return parseIPv6(s)
	}
	return parseName(s)
}

// defaultPort is the one that an origin of a scheme has where none is said.
func defaultPort(scheme string) uint16 {
	switch scheme {
	case "http":
		return 80
	case "https":
		return 443
	case "ftp":
		return 21
	}
	return 0
}

// String gives the origin as RFC 6454 6.2 writes it: without a default port.
func (o Origin) String() string {
	var room [64]byte
	return string(o.appendTo(room[:0]))
}

// appendTo stands apart so that String is short enough to be inlined: its caller may then
// do without the allocation.
func (o Origin) appendTo(b []byte) []byte {
	b = append(append(b, o.Scheme...), "://"...)
	if strings.Contains(o.Host, ":") {
		b = append(append(append(b, '['), o.Host...), ']')
	} else {
		b = append(b, o.Host...)
	}
	if o.Port != defaultPort(o.Scheme) {
		b = strconv.AppendUint(append(b, ':'), uint64(o.Port), 10)
	}
	return b
}

// RobotsURL gives the address of the origin's robots.txt (RFC 9309 2.3).
func (o Origin) RobotsURL() string { return o.String() + "/robots.txt" }

// Addr gives "host:port" as a dialer wants it: always with a port, IPv6 in brackets.
func (o Origin) Addr() string {
	return net.JoinHostPort(o.Host, strconv.Itoa(int(o.Port)))
}

// splitPort cuts hostport at the colon that begins a port; an empty port
// (RFC 3986 3.2.3) is none. The host keeps its brackets.
func splitPort(hostport string) (host, port string, err error) {
	end := strings.LastIndexByte(hostport, ']') + 1
	host, port, _ = strings.Cut(hostport[end:], ":")
	if end > 0 && host != "" {
		return "", "", errors.New("something stands between the address and the port")
	}
	return hostport[:end+len(host)], port, nil
}

// parseIPv6 reads an address in brackets. A zone has a meaning on one machine
// only (RFC 6874 4), so it is no part of an origin. An IPv4 address that is mapped
// into IPv6 (RFC 4291 2.5.5.2) is that address: nothing else is dialled.
func parseIPv6(s string) (string, error) {
	inner, closed := strings.CutSuffix(s[1:], "]")
	addr, err := netip.ParseAddr(inner)
	if !closed || err != nil || !addr.Is6() || addr.Zone() != "" {
		return "", errors.New("no IPv6 address stands in the brackets")
	}
	return addr.Unmap().String(), nil
}

// lookup maps a name to the form it has in DNS (UTS 46, as browsers do). It
// leaves the alphabet to checkHost, which takes underscores too.
var lookup = idna.New(idna.MapForLookup(), idna.BidiRule(), idna.StrictDomainName(false), idna.CheckHyphens(false))

func parseName(s string) (string, error) {
	// Longer than any name that DNS holds, in whatever spelling (4 octets a
	// character at most): not worth the mapping.
	if len(s) > 4*maxHost {
		return "", errors.New("the host is longer than 253 octets")
	}
	host := s
	if isASCII(s) {
		host = strings.ToLower(s)
	} else {
		var err error
		// The mapping would let U+FFFD pass, for itself and for invalid UTF-8.
		if host, err = lookup.ToASCII(s); err != nil || strings.ContainsRune(s, utf8.RuneError) {
			return "", errors.New("the host is no name that IDNA knows")
		}
	}
	host = strings.TrimSuffix(host, ".")
	if err := checkHost(host); err != nil {
		return "", err
	}
	return host, nil
}

// checkHost accepts letters, digits, "-" and "_" in labels of 1 to 63 octets.
// A name whose last label is a number must be an IPv4 address: else "127.1"
// or "0x7f000001" would be names here and addresses to some resolvers.
func checkHost(host string) error {
	if len(host) > maxHost {
		return errors.New("the host is longer than 253 octets")
	}
	if host == "" {
		return errors.New("the host is empty")
	}
	label := 0 // where the current one begins
	for i := 0; i <= len(host); i++ {
		if i < len(host) && host[i] != '.' {
			if c := host[i]; !isLetter(c) && !isDigit(c) && c != '-' && c != '_' {
				return errors.New("the host has an octet that no name has")
			}
			continue
		}
		if i == label || i-label > maxLabel {
			return errors.New("the host has a label that is empty or longer than 63 octets")
		}
		if i < len(host) {
			label = i + 1
		}
	}
	if isNumber(host[label:]) {
		if addr, err := netip.ParseAddr(host); err != nil || !addr.Is4() {
			return errors.New("the host ends in a number and is no IPv4 address")
		}
	}
	return nil
}

// isNumber reports whether a label reads as a number to some resolver:
// decimal, octal or hexadecimal.
func isNumber(label string) bool {
	digits := strings.TrimPrefix(label, "0x")
	hex := len(digits) < len(label)
	for i := 0; i < len(digits); i++ {
		if c := digits[i]; !isDigit(c) && !(hex && 'a' <= c && c <= 'f') {
			return false
		}
	}
	return true
}

func isASCII(s string) bool {
	for i := 0; i < len(s); i++ {
		if s[i] >= 0x80 {
			return false
		}
	}
	return true
}

// clip keeps what strangers send from filling an error text.
func clip(s string) string {
	const most = 100
	if len(s) > most {
		return s[:most] + "..."
	}
	return s
}
