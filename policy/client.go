package policy

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"strings"

	"robotsproxy/policy/pace"
	"robotsproxy/robots"
)

// A Client is one that is known by where it asks from, by a password, or by
// both, and may be judged in a way of its own.
type Client struct {
	Name         string         // what it is called, and logs in as; never an address
	Networks     []netip.Prefix // where it asks from; none: anywhere, with its password
	PasswordHash string         // bcrypt's ($2a$, $2b$ or $2y$); "": whoever asks from Networks is this client
	Dialect      robots.Dialect // zero: that of the Engine
	ProductToken string         // what it is taken for, before Options.ProductToken; "": as others are
	Pace         pace.Rate      // its own, at each host; what is zero is as for others
	AssetBurst   int            // how many parts of a page it may ask for at once; zero: they are paced as the page is
	PerDay       int            // how many requests it may send in a day; zero: as many as it likes
}

func (c *Client) check() error {
	if !(c.Pace.PerSecond >= 0) || min(c.Pace.Burst, c.AssetBurst, c.PerDay) < 0 {
		return fmt.Errorf("client %q has a negative pace or quota", c.Name)
	}
	return nil
}

// A member is a Client with what is kept for it.
type member struct {
	Client
	tokens []string // its product token alone; nil: it has none of its own
	quota  *quota
}

// newMembers makes the members; counted is what those of their names have sent.
func newMembers(clients []Client, counted map[string]*quota) (map[string]*member, error) {
	members := make(map[string]*member, len(clients))
	for _, c := range clients {
		if err := c.check(); err != nil {
			return nil, err
		}
		members[c.Name] = &member{Client: c, tokens: alone(c.ProductToken), quota: cmp.Or(counted[c.Name], new(quota))}
	}
	return members, nil
}

// asksFrom says whether addr is in one of the client's networks.
func (c *Client) asksFrom(addr netip.Addr) bool {
	for _, network := range c.Networks {
		if network.Contains(addr) {
			return true
		}
	}
	return false
}

// A Login is what a request offers to say who asks. The zero Login offers
// nothing; one that is offered without a name, or without a password, is wrong.
type Login struct {
	Offered  bool
	Name     string
	Password string
}

// Admit finds out who asks from an address, and keeps out whom no entry of
// Options.Clients fits. It gives the name of the client, or the address where
// there are no Clients, or where Options.Open lets strangers in.
//
// A Login that is offered is judged first, where any client could log in from
// the address: it has to be right, and asked from the client's Networks if it has
// some; a wrong one is refused even where the address alone would have been let
// in. Elsewhere, and without one, the first client counts that has no password
// and is at home at the address.
//
// The error is ErrLogin, ErrStranger, ErrTooManyLogins, or that ctx ended while
// the password waited to be checked. It never holds what was offered.
func (e *Engine) Admit(ctx context.Context, address string, l Login) (client string, err error) {
	return e.gate.admit(ctx, address, l)
}

// ShareKey gives whose fair share a request of client counts against, for client
// as [Engine.Admit] gives it: the name of a Client, else its address. An IPv6
// address stands for its /64 network, which one host usually has to itself.
func ShareKey(client string) string {
	if strings.IndexByte(client, ':') < 0 {
		return client
	}
	addr, err := netip.ParseAddr(client)
	if err != nil || addr.Is4In6() {
		return client
	}
	return netip.PrefixFrom(addr.WithZone(""), 64).Masked().String()
}
