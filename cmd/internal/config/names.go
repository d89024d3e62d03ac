package config

import (
	"net/mail"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"robotsproxy/policy/usage"
)

// productToken matches a token (RFC 9110 5.6.2), which is what a product in a User-Agent header is.
var productToken = regexp.MustCompile("^[!#$%&'*+.^_`|~0-9A-Za-z-]+$")

// These constants bound the lengths of texts. They are not in the regular expressions, since a counted repetition is compiled
// into that many copies at each start.
const (
	// The bytes of a product token, of the reason of an entry, and of the value of a header.
	maxToken, maxLine, maxHeader = 256, 500, 4 << 10

	// The bytes of an e-mail address (RFC 5321 4.5.3.1.3, without the angle brackets).
	maxEmail = 254

	// The characters of a client's name.
	maxName = 100

	// The characters of a bearer token without its padding.
	minSecret, maxSecret = 16, 256

	// The bytes of a replica's name, which each record holds.
	maxReplica = 64
)

func isPurpose(text string) bool {
	_, known := usage.ParseCategory(text)
	return known
}

func isToken(s string) bool { return len(s) <= maxToken && productToken.MatchString(s) }

// name matches the name of a client. An IP address is not one: unnamed clients are known by it.
var name = onUse(namePattern)

const namePattern = `^[\p{L}\p{N}][\p{L}\p{M}\p{N} ._@-]*$`

func isName(s string) bool {
	_, err := netip.ParseAddr(s)
	return err != nil && utf8.RuneCountInString(s) <= maxName && name().MatchString(s) && s == strings.TrimSpace(s)
}

// bcryptHash matches a bcrypt hash. $2x$ marks hashes of an implementation with a bug.
var bcryptHash = regexp.MustCompile(`^(\$2[aby]\$)([0-9]{2})\$[./A-Za-z0-9]{53}$`)

// minCost and maxCost bound the cost of a hash, and with it the time of one check: 16 takes about 3 s, 10 about 50 ms.
const minCost, maxCost = 4, 16

func isBcrypt(s string) bool { return bcryptHash.MatchString(s) && notQuiteBcrypt(s) == "" }

// notQuiteBcrypt is the hint for a whole line of htpasswd, and for a hash whose cost is out of range.
func notQuiteBcrypt(s string) string {
	if _, hash, named := strings.Cut(s, ":"); named && bcryptHash.MatchString(hash) {
		return "begins with a name: use only the hash after the colon"
	}
	m := bcryptHash.FindStringSubmatch(s)
	if m == nil {
		return ""
	}
	if cost, err := strconv.Atoi(m[2]); err != nil || cost < minCost || cost > maxCost {
		return "has the cost " + m[2] + ": must be between " + strconv.Itoa(minCost) + " and " + strconv.Itoa(maxCost)
	}
	return ""
}

// secret matches a bearer token (RFC 6750 2.1).
var secret = regexp.MustCompile(`^[A-Za-z0-9._~+/-]+=*$`)

func isSecret(s string) bool {
	n := len(strings.TrimRight(s, "="))
	return n >= minSecret && n <= maxSecret && secret.MatchString(s)
}

// isLine reports whether s can be written to responses and records as it is.
func isLine(s string) bool {
	return len(s) <= maxLine && s == strings.TrimSpace(s) && utf8.ValidString(s) && s == printable(s)
}

// isEmail reports whether s is an address without a display name (RFC 5322 3.4.1), as From has it (RFC 9110 10.1.2).
func isEmail(s string) bool {
	a, err := mail.ParseAddress(s)
	return err == nil && a.Name == "" && a.Address == s && len(s) <= maxEmail && isHeader(s) &&
		!strings.ContainsFunc(s, func(r rune) bool { return r > 0x7f })
}

func isHeader(s string) bool {
	if len(s) > maxHeader || s != strings.TrimSpace(s) {
		return false
	}
	return !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f })
}

func isReplica(s string) bool { return len(s) <= maxReplica && isVisible(s) }

// isVisible reports whether s contains only visible ASCII characters.
func isVisible(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' })
}

var filePrefix = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

func isFilePrefix(s string) bool { return filePrefix.MatchString(s) }
