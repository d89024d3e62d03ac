package robots

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"unicode/utf8"

	"golang.org/x/net/idna"
)

// Limits of a host name and of one of its labels, in bytes (RFC 1035 2.3.4).
const (
	maxHost  = 253
	maxLabel = 63
)

// An Origin is the scheme, host and port that one robots.txt applies to (RFC 9309 2.3). It is
// comparable; equal origins have the same robots.txt. The zero Origin is invalid.
type Origin struct {
	// Scheme is "http", "https" or "ftp".
	Scheme string

	// Host is a name (IDN as Punycode, no trailing dot) or an address (IPv6 without brackets), in
	// lower-case ASCII.
	Host string

	// Port is never 0.
	Port uint16
}

// ParseOrigin parses the scheme and the host part of a URL, with or without a port, into the
// form that all of its spellings have in common. It returns an error for any scheme but http,
// https and ftp, for user information, an empty host or label, a host or label that is too long
// for DNS, a byte that no host name has, and a port outside 1 to 65535.
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
		return Origin{}, errors.New("the scheme must be http, https or ftp")
	}
	host, port, err := splitPort(hostport)
	if err != nil {
		return Origin{}, err
	}
	if port != "" {
		n, err := strconv.ParseUint(port, 10, 16)
		if err != nil || n == 0 {
			return Origin{}, errors.New("the port must be a number from 1 to 65535")
		}
		o.Port = uint16(n)
	}
	if o.Host, err = parseHost(host); err != nil {
		return Origin{}, err
	}
	return o, nil
}

// ParseHost parses a host without a port into the form of Origin.Host: a name, or an address,
// IPv6 with or without brackets. It returns an error for a host that ParseOrigin does not
// accept.
func ParseHost(host string) (string, error) {
	bracketed := host
	if strings.Contains(host, ":") && !strings.HasPrefix(host, "[") {
		// No name has a colon.
		bracketed = "[" + host + "]"
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

// defaultPort returns the port of a URL of the scheme without one.
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

// String returns the origin as RFC 6454 6.2 writes it: without a default port.
func (o Origin) String() string {
	var buf [64]byte
	return string(o.appendTo(buf[:0]))
}

// appendTo is apart from String so that the compiler can inline String, whose result may then
// stay on the caller's stack.
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

// RobotsURL returns the URL of the origin's robots.txt (RFC 9309 2.3).
func (o Origin) RobotsURL() string { return o.String() + "/robots.txt" }

// Addr returns "host:port" for a dialler: always with a port, IPv6 in brackets.
func (o Origin) Addr() string {
	return net.JoinHostPort(o.Host, strconv.Itoa(int(o.Port)))
}

// splitPort cuts hostport at the colon before the port. An empty port (RFC 3986 3.2.3) is no
// port. The host keeps its brackets.
func splitPort(hostport string) (host, port string, err error) {
	end := strings.LastIndexByte(hostport, ']') + 1
	host, port, _ = strings.Cut(hostport[end:], ":")
	if end > 0 && host != "" {
		return "", "", errors.New("unexpected text after \"]\"")
	}
	return hostport[:end+len(host)], port, nil
}

// parseIPv6 parses an address in brackets. A zone has a meaning on one machine only (RFC 6874
// 4), so that it is no part of an origin. An IPv4-mapped address (RFC 4291 2.5.5.2) becomes the
// IPv4 address, which is what is dialled.
func parseIPv6(s string) (string, error) {
	inner, closed := strings.CutSuffix(s[1:], "]")
	addr, err := netip.ParseAddr(inner)
	if !closed || err != nil || !addr.Is6() || addr.Zone() != "" {
		return "", errors.New("no IPv6 address in the brackets")
	}
	return addr.Unmap().String(), nil
}

// idnaProfile maps a name to its form in DNS (UTS 46, as browsers do). checkHost checks the
// alphabet instead, since it accepts underscores too.
var idnaProfile = idna.New(idna.MapForLookup(), idna.BidiRule(), idna.StrictDomainName(false), idna.CheckHyphens(false))

func parseName(s string) (string, error) {
	// Such a name is too long for DNS in any usual spelling, which has at most 4 bytes a character.
	if len(s) > 4*maxHost {
		return "", errors.New("the host is longer than 253 bytes")
	}
	// RFC 3986 3.2.2 permits escapes in a host; browsers and curl decode them.
	if strings.IndexByte(s, '%') >= 0 {
		var err error
		if s, err = url.PathUnescape(s); err != nil {
			return "", errors.New("the host has a broken escape")
		}
	}
	host := s
	if isASCII(s) {
		host = strings.ToLower(s)
	} else {
		var err error
		// ToASCII accepts U+FFFD, both as itself and for invalid UTF-8.
		if host, err = idnaProfile.ToASCII(s); err != nil || strings.ContainsRune(s, utf8.RuneError) {
			return "", errors.New("the host is not a valid internationalized name (IDNA)")
		}
	}
	host = strings.TrimSuffix(host, ".")
	if err := checkHost(host); err != nil {
		return "", err
	}
	return host, nil
}

// checkHost accepts letters, digits, "-" and "_" in labels of 1 to 63 bytes. A name whose last
// label is a number must be an IPv4 address: otherwise "127.1" or "0x7f000001" would be names
// here and addresses to some resolvers.
func checkHost(host string) error {
	if len(host) > maxHost {
		return errors.New("the host is longer than 253 bytes")
	}
	if host == "" {
		return errors.New("the host is empty")
	}
	// label is where the current label begins.
	label := 0
	for i := 0; i <= len(host); i++ {
		if i < len(host) && host[i] != '.' {
			if c := host[i]; !isLetter(c) && !isDigit(c) && c != '-' && c != '_' {
				return errors.New("the host has a character that host names cannot have")
			}
			continue
		}
		if i == label || i-label > maxLabel {
			return errors.New("the host has a label that is empty or longer than 63 bytes")
		}
		if i < len(host) {
			label = i + 1
		}
	}
	if isNumber(host[label:]) {
		if addr, err := netip.ParseAddr(host); err != nil || !addr.Is4() {
			return errors.New("the host ends in a number but is not an IPv4 address")
		}
	}
	return nil
}

// isNumber reports whether some resolvers read a label as a number: decimal, octal or
// hexadecimal.
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
