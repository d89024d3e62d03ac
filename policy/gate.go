package policy

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"golang.org/x/crypto/bcrypt"
)

// Why somebody is kept out; see Engine.Admit.
var (
	// ErrLogin: a login would help, and there was none, or a wrong one.
	ErrLogin = errors.New("a client's name and password are asked for")
	// ErrStranger: no client is known at the address, whatever password it gives.
	ErrStranger = errors.New("no client is known at this address")
	// ErrTooManyLogins: more passwords wait to be checked than may.
	ErrTooManyLogins = errors.New("too many passwords wait to be checked")
)

var (
	errNoLogin    = fmt.Errorf("%w: none were offered", ErrLogin)
	errWrongLogin = fmt.Errorf("%w: those that were offered are wrong", ErrLogin)
)

const (
	// maxName bounds, in octets, the names that are looked at.
	maxName = 512
	// maxPassword is how many octets of a password bcrypt reads. Checking a
	// longer one would let in whoever knows its beginning.
	maxPassword = 72
)

// A gate knows who may come in.
type gate struct {
	clients   []Client
	open      bool
	accounts  map[string]*account // of clients that have a password, by name
	anywhere  bool                // one of them may log in from any address
	passwords *passwords          // nil: there are no accounts
}

func newGate(clients []Client, open bool) (*gate, error) {
	g := &gate{clients: clients, open: open, accounts: map[string]*account{}}
	known := map[string]bool{}
	highest := 0
	for i := range clients {
		c := &clients[i]
		switch {
		case c.Name == "":
			return nil, errors.New("policy: a client without a name")
		case known[c.Name]:
			return nil, fmt.Errorf("policy: two clients are called %q", c.Name)
		case len(c.Networks) == 0 && c.PasswordHash == "":
			return nil, fmt.Errorf("policy: client %q has neither networks nor a password: everybody could be it", c.Name)
		}
		known[c.Name] = true
		if c.PasswordHash == "" {
			continue
		}
		if !(Login{Name: c.Name, Password: "x"}).sound() {
			return nil, fmt.Errorf("policy: nobody could log in as %q (RFC 7617 2)", c.Name)
		}
		cost, err := bcrypt.Cost([]byte(c.PasswordHash))
		if err != nil || len(c.PasswordHash) != hashLen {
			return nil, fmt.Errorf("policy: what client %q has for a password is no bcrypt hash", c.Name)
		}
		highest = max(highest, cost)
		g.accounts[c.Name] = &account{client: c, hash: []byte(c.PasswordHash), cost: cost}
		g.anywhere = g.anywhere || len(c.Networks) == 0
	}
	if len(g.accounts) > 0 {
		g.passwords = newPasswords(highest)
	}
	return g, nil
}

// admit is Engine.Admit.
func (g *gate) admit(ctx context.Context, address string, l Login) (string, error) {
	if len(g.clients) == 0 {
		return address, nil
	}
	addr, err := netip.ParseAddr(address)
	if err == nil {
		addr = addr.Unmap().WithZone("")
	} // else it is in no network
	if l.Offered && g.asks(addr) {
		return g.login(ctx, addr, l)
	}
	for i := range g.clients {
		if c := &g.clients[i]; c.PasswordHash == "" && c.asksFrom(addr) {
			return c.Name, nil
		}
	}
	switch {
	case g.open:
		return address, nil
	case g.asks(addr):
		return "", errNoLogin
	}
	return "", ErrStranger
}

// login judges a Login. What cannot be right is refused unchecked where that
// tells nothing of the names and passwords there are.
func (g *gate) login(ctx context.Context, addr netip.Addr, l Login) (string, error) {
	a := g.accounts[l.Name]
	if a != nil && !a.usable(addr) {
		a = nil // and so like one that there is not, in what is answered and in its time
	}
	if !l.sound() {
		return "", errWrongLogin
	}
	right, err := g.passwords.right(ctx, a, l)
	switch {
	case err != nil:
		return "", err
	case !right:
		return "", errWrongLogin
	}
	return a.client.Name, nil
}

// asks says whether any password would be right at an address.
func (g *gate) asks(addr netip.Addr) bool {
	if g.anywhere {
		return true
	}
	for _, a := range g.accounts {
		if a.usable(addr) {
			return true
		}
	}
	return false
}

// usable says whether the client may log in from an address.
func (a *account) usable(addr netip.Addr) bool {
	return len(a.client.Networks) == 0 || a.client.asksFrom(addr)
}

// sound says whether a Login could be anybody's. RFC 7617 2: there is no colon
// in a name, and no control character in either; bcrypt would take a password
// with NUL in it for another.
func (l Login) sound() bool {
	control := func(r rune) bool { return r < ' ' || r == 0x7f }
	return l.Name != "" && len(l.Name) <= maxName && l.Password != "" && len(l.Password) <= maxPassword &&
		!strings.Contains(l.Name, ":") && !strings.ContainsFunc(l.Name, control) && !strings.ContainsFunc(l.Password, control)
}
