package config

import (
	"net"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

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

// ParentEnv is the Egress.Parent that the environment names.
const ParentEnv = "env"

func isParent(s string) bool { return s == ParentEnv || notParent(s) == "" }

// notParent returns why s is not the address of a proxy, "" if it is one.
func notParent(s string) string {
	u, err := url.Parse(s)
	if err != nil {
		// The text of err would repeat the password.
		return "is not a URL (example: http://proxy.example:3128)"
	}
	switch {
	case !slices.Contains([]string{"http", "https", "socks5", "socks5h"}, u.Scheme):
		return "must begin with http://, https:// or socks5://, or be env"
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
