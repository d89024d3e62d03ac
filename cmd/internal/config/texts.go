package config

import (
	"net"
	"net/mail"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"

	"robotsproxy/policy/hours"
	"robotsproxy/policy/labels"
	"robotsproxy/policy/usage"
	"robotsproxy/robots"
)

// isAddress accepts port 0, which is any free port, and no host, which is every interface.
func isAddress(s string) bool {
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		return false
	}
	_, err = strconv.ParseUint(port, 10, 16)
	return err == nil && (host == "" || isHost(host))
}

// AddressHint returns what to write in place of a port or a URL, where an address to listen on is expected; "" for other
// texts.
func AddressHint(s string) string {
	if _, err := strconv.ParseUint(s, 10, 16); err == nil {
		return "has no host: use 127.0.0.1:" + s
	}
	if u, err := url.Parse(s); err == nil && u.User == nil && isAddress(u.Host) {
		return "is a URL: use " + u.Host
	}
	return ""
}

// serverHint returns what to write in place of a host without a port; "" for other texts.
func serverHint(s string) string {
	if _, err := strconv.Atoi(s); err != nil && isHost(s) {
		return "has no port: use " + net.JoinHostPort(s, "53")
	}
	return ""
}

func isServer(s string) bool {
	host, port, err := net.SplitHostPort(s)
	return err == nil && isPort(port) && isHost(host)
}

// isPort reports whether s is the number of a port, which is not 0.
func isPort(s string) bool {
	n, err := strconv.ParseUint(s, 10, 16)
	return err == nil && n > 0
}

const (
	// ParentEnv is the Egress.Parent that the environment names.
	ParentEnv = "env"

	// ParentDirect is the Host.Parent that means none.
	ParentDirect = "direct"
)

// parentKind returns the kind of addresses of proxies, and a word.
func parentKind(word string) kind {
	not := func(s string) string { return notParent(s, word) }
	return kind{what: "the address of a proxy, or " + word, example: "http://proxy.example:3128",
		is: func(s string) bool { return s == word || not(s) == "" }, optional: true, secret: true, hint: not,
		pattern: `^$|^` + word + `$|^(https?|socks5h?)://.`}
}

// notParent returns why s is not the address of a proxy, "" if it is one. word is the only other value.
func notParent(s, word string) string {
	u, err := url.Parse(s)
	if err != nil {
		// The text of err would repeat the password.
		return "is not a URL (example: http://proxy.example:3128)"
	}
	switch {
	case !slices.Contains([]string{"http", "https", "socks5", "socks5h"}, u.Scheme):
		return "must begin with http://, https:// or socks5://, or be " + word
	case !isHost(u.Hostname()):
		return "has no host"
	case u.Port() != "" && !isPort(u.Port()):
		return "has an invalid port"
	case u.User != nil && u.User.Username() == "":
		return "has a password but no user name"
	case u.Path != "" && u.Path != "/" || u.RawQuery != "" || u.Fragment != "":
		return "must end after the host and the port"
	}
	return ""
}

// isWebURL reports whether s is an absolute http or https URL without a password.
func isWebURL(s string) bool {
	u, err := url.Parse(s)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && isHost(u.Hostname()) && u.User == nil && u.Fragment == ""
}

// isDirectory reports whether s is a web URL with TLS, in ASCII: it becomes part of a header.
func isDirectory(s string) bool {
	return strings.HasPrefix(s, "https://") && isWebURL(s) && isVisible(s)
}

func isLabel(s string) bool {
	_, err := labels.Parse(s)
	return err == nil && !strings.ContainsAny(s, ", \t")
}

// onUse returns a regular expression that is compiled on first use. Classes of Unicode take too long for the start of every
// command.
func onUse(expr string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expr) })
}

// hostName matches names in any script. The resolver decides which exist.
var hostName = onUse(`^[\pL\pM\pN_-]+(\.[\pL\pM\pN_-]+)*\.?$`)

func isHost(s string) bool {
	_, err := netip.ParseAddr(s)
	return err == nil || len(s) <= 253 && hostName().MatchString(s)
}

// isPattern reports whether s is "*", a host, or "*." and a domain.
func isPattern(s string) bool {
	below, wild := strings.CutPrefix(s, "*.")
	_, addrErr := netip.ParseAddr(below)
	_, err := robots.ParseHost(below)
	return s == "*" || err == nil && !(wild && addrErr == nil)
}

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

const maxOrigin = 200

func isOrigin(s string) bool { return len(s) <= maxOrigin && isVisible(s) && !strings.Contains(s, "+") }

// isVisible reports whether s contains only visible ASCII characters.
func isVisible(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' })
}

var pathPattern = regexp.MustCompile(`^/[^\x00-\x20#\x7f]{0,511}$`)

func isPathPattern(s string) bool { return pathPattern.MatchString(s) }

// VisitTime in hosts[].hours stands for the Visit-time lines of a robots.txt.
const VisitTime = "robots"

func isHours(s string) bool {
	_, err := hours.Parse(s)
	return s == VisitTime || err == nil
}

var filePrefix = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

func isFilePrefix(s string) bool { return filePrefix.MatchString(s) }
