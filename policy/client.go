package policy

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"robotsproxy/policy/labels"
	"robotsproxy/policy/pace"
	"robotsproxy/policy/usage"
	"robotsproxy/robots"
)

// A Client is a configured client, identified by its address, a password or both.
type Client struct {
	// Name is also the client's login. It is never an address.
	Name string

	// Networks contain the client's address; empty: it may have any address, with its password.
	Networks []netip.Prefix

	// PasswordHash is a bcrypt hash ($2a$, $2b$ or $2y$); "": every address in Networks is this client.
	PasswordHash string

	// PasswordHashNext is that of a second password, while the password is changed; "": there is none. It needs a
	// PasswordHash.
	PasswordHashNext string

	// Dialect is how robots.txt is read for the client; zero: that of Options.
	Dialect robots.Dialect

	// ProductToken takes precedence over that of Options; "": that, or the User-Agent header, says it.
	ProductToken string

	// Pace is the client's rate at each host; a zero field: as for other clients.
	Pace pace.Rate

	// AssetBurst is how many parts of a page the client may request at once; zero: they are paced as pages.
	AssetBurst int

	// Purposes take precedence over those of Options.Usage; empty: those apply.
	Purposes usage.Set

	// Quota is what the client may use in a day.
	Quota Quota

	// Labels are those of all requests of the client.
	Labels labels.Set
}

// A clientState is a Client, and what the Engine knows of it.
type clientState struct {
	Client

	// tokens has the ProductToken alone; nil: the client has none.
	tokens []string

	// dialect is the Dialect, or that of Options.
	dialect robots.Dialect
}

// inNetworks reports whether addr is in one of the client's networks.
func (c *Client) inNetworks(addr netip.Addr) bool {
	return slices.ContainsFunc(c.Networks, func(network netip.Prefix) bool { return network.Contains(addr) })
}

// A Login is the name and password that a request offers. The zero Login is not offered; an offered
// one without a name or a password is wrong.
type Login struct {
	Offered  bool
	Name     string
	Password string
}

// loopbackShare is the ShareKey of all loopback addresses. A program can use any of them, so they are one client.
const loopbackShare = "127.0.0.0/8"

// ShareKey returns the key of a client's fair share, for client as [Engine.Admit] returns it: the name
// of a Client, else the address. An IPv6 address counts as its /56 network, which usually belongs to one
// customer of a provider. All loopback addresses count as one.
func ShareKey(client string) string {
	if strings.IndexByte(client, ':') < 0 && !strings.HasPrefix(client, "127.") {
		return client
	}
	addr, err := netip.ParseAddr(client)
	switch {
	case err != nil:
		return client
	case addr.Unmap().IsLoopback():
		return loopbackShare
	case addr.Is4() || addr.Is4In6():
		return client
	}
	return netip.PrefixFrom(addr.WithZone(""), 56).Masked().String()
}

// IsStranger reports whether client, as [Engine.Admit] returns it, is an address and not the name of a Client.
func IsStranger(client string) bool {
	// ParseAddr would allocate an error for each name.
	if !strings.ContainsAny(client, ".:") {
		return false
	}
	_, err := netip.ParseAddr(client)
	return err == nil
}

// The errors of Engine.Admit.
var (
	// ErrLogin says that the login is missing or wrong, and that a right one would be accepted.
	ErrLogin = errors.New("name and password required")
	// ErrStranger says that no client may use the proxy from the address, with any login.
	ErrStranger = errors.New("no client with this address in the configuration")
	// ErrTooManyLogins says that too many passwords from the address wait to be checked.
	ErrTooManyLogins = errors.New("too many passwords to check")
)

var (
	errNoLogin    = fmt.Errorf("%w: the request has none", ErrLogin)
	errWrongLogin = fmt.Errorf("%w: those of the request are wrong", ErrLogin)
)
