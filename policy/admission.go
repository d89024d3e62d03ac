package policy

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
)

// admission decides which clients may use the proxy.
type admission struct {
	clients []Client
	open    bool

	// accounts are those of the clients with a password, by name.
	accounts map[string]*account

	// anyAddress says that one of the accounts may log in from any address.
	anyAddress bool

	// passwords is nil if there are no accounts.
	passwords *passwords
}

func newAdmission(clients []Client, open bool) (*admission, error) {
	a := &admission{clients: clients, open: open, accounts: map[string]*account{}}
	known := map[string]bool{}
	work := uint64(0)
	for i := range clients {
		c := &clients[i]
		switch {
		case c.Name == "":
			return nil, errors.New("policy: client without a name")
		case known[c.Name]:
			return nil, fmt.Errorf("policy: two clients have the name %q", c.Name)
		case len(c.Networks) == 0 && c.PasswordHash == "":
			return nil, fmt.Errorf("policy: client %q has neither networks nor a password, so every client would match", c.Name)
		case c.PasswordHash == "" && c.PasswordHashNext != "":
			return nil, fmt.Errorf("policy: client %q has a second password without a first one", c.Name)
		case !(c.Pace.PerSecond >= 0) || min(c.Pace.Burst, c.AssetBurst) < 0 || min(c.Quota.Requests, c.Quota.Bytes) < 0:
			return nil, fmt.Errorf("policy: client %q has a negative pace or quota", c.Name)
		}
		known[c.Name] = true
		if c.PasswordHash == "" {
			continue
		}
		if !(Login{Name: c.Name, Password: "x"}).wellFormed() {
			return nil, fmt.Errorf("policy: client name %q cannot be used for a login (RFC 7617 2)", c.Name)
		}
		own, err := newAccount(c)
		if err != nil {
			return nil, err
		}
		work = max(work, own.work())
		a.accounts[c.Name] = own
		a.anyAddress = a.anyAddress || len(c.Networks) == 0
	}
	if len(a.accounts) > 0 {
		a.passwords = newPasswords(work, a.addressShare)
	}
	return a, nil
}

// admit implements Engine.Admit.
func (a *admission) admit(ctx context.Context, address string, l Login) (string, error) {
	if len(a.clients) == 0 {
		return address, nil
	}
	addr := addrOf(address)
	if l.Offered && a.acceptsLogin(addr) {
		return a.login(ctx, address, addr, l)
	}
	for i := range a.clients {
		if c := &a.clients[i]; c.PasswordHash == "" && c.inNetworks(addr) {
			return c.Name, nil
		}
	}
	switch {
	case a.open:
		return address, nil
	case a.acceptsLogin(addr):
		return "", errNoLogin
	}
	return "", ErrStranger
}

// addrOf parses an address for a comparison with networks. No network contains the zero Addr, for another text.
func addrOf(address string) netip.Addr {
	// ParseAddr returns the zero Addr with an error.
	addr, _ := netip.ParseAddr(address)
	return addr.Unmap().WithZone("")
}

// addressShare implements Engine.AddressShare.
func (a *admission) addressShare(address string) string {
	addr, key, login := addrOf(address), ShareKey(address), ""
	for i := range a.clients {
		switch c := &a.clients[i]; {
		case !c.inNetworks(addr):
		case c.PasswordHash == "":
			return c.Name
		case login == "":
			// No client has such a name.
			login = c.Name + "\n"
		}
	}
	return login + key
}

// login checks a Login. A malformed one is refused without a check, since that reveals nothing about
// the accounts.
func (a *admission) login(ctx context.Context, address string, addr netip.Addr, l Login) (string, error) {
	own := a.accounts[l.Name]
	if own != nil && !own.mayUseFrom(addr) {
		// Response and timing must not differ from those of an unknown name.
		own = nil
	}
	if !l.wellFormed() {
		return "", errWrongLogin
	}
	right, err := a.passwords.verify(ctx, address, own, l)
	switch {
	case err != nil:
		return "", err
	case !right:
		return "", errWrongLogin
	}
	return own.client.Name, nil
}

// acceptsLogin reports whether any client may log in from an address.
func (a *admission) acceptsLogin(addr netip.Addr) bool {
	if a.anyAddress {
		return true
	}
	for _, known := range a.accounts {
		if known.mayUseFrom(addr) {
			return true
		}
	}
	return false
}

// mayUseFrom reports whether the client may log in from an address.
func (a *account) mayUseFrom(addr netip.Addr) bool {
	return len(a.client.Networks) == 0 || a.client.inNetworks(addr)
}

// keepLogins takes over the verified Logins of passwords whose name and hash have not changed. It drops the
// failed ones, which may be right now.
func (a *admission) keepLogins(before *admission) {
	if a.passwords == nil || before.passwords == nil {
		return
	}
	// The digests need the same key, and the limit of concurrent checks holds for both together.
	a.passwords.digests, a.passwords.queue = before.passwords.digests, before.passwords.queue
	a.passwords.compare = before.passwords.compare
	for name, own := range a.accounts {
		for _, p := range own.passwords {
			if old := before.accounts[name].password(p.hash); old != nil {
				p.login.Store(old.login.Load())
			}
		}
	}
}

// password returns the password of a hash; nil: the account, which may be nil, has no such password.
func (a *account) password(hash string) *password {
	if a == nil {
		return nil
	}
	for _, p := range a.passwords {
		if p.hash == hash {
			return p
		}
	}
	return nil
}

// A Pass records how a client was admitted whose later requests carry no login: those in a tunnel.
type Pass struct {
	client, address string

	// hash is that of the password by which the client was admitted; "": the client was admitted without a password.
	hash string
}
