package policy

import (
	"context"
	"maps"
	"net/netip"
	"time"
)

// maxLeft bounds of how many clients that are no more it is kept what they have
// sent today, at some 100 octets each.
const maxLeft = 100_000

// counted gives what was counted today, by the name of the client, of those too
// that are none any more: they may be again.
func (e *Engine) counted(now time.Time) map[string]*quota {
	all := make(map[string]*quota, len(e.members)+len(e.left))
	for name, m := range e.members {
		all[name] = m.quota // whatever it counts: a request that came before may be about to
	}
	if len(e.left) > maxLeft {
		return all
	}
	maps.Copy(all, e.left)
	maps.DeleteFunc(all, func(name string, q *quota) bool { return e.members[name] == nil && !q.counts(now) })
	return all
}

// goOn takes over from a gate what it has found out of Logins: for an account whose
// name and hash are the same, which one is right. What was wrong may be right now.
func (g *gate) goOn(before *gate) {
	if g.passwords == nil || before.passwords == nil {
		return
	}
	// One key, or the digests would tell nothing; and bcrypt runs no oftener for two.
	g.passwords.digests, g.passwords.slots = before.passwords.digests, before.passwords.slots
	g.passwords.compare = before.passwords.compare
	for name, a := range g.accounts {
		if old := before.accounts[name]; old != nil && string(old.hash) == string(a.hash) {
			a.known.Store(old.known.Load())
		}
	}
}

// A Pass says how somebody was let in who does not say it again with each request.
type Pass struct {
	client, address string
	hash            string // of the password; "": it was none that let it in
}

// Pass gives that of a client that Admit has let in from an address.
func (e *Engine) Pass(client, address string) Pass {
	p := Pass{client: client, address: address}
	if a := e.gate.accounts[client]; a != nil {
		p.hash = string(a.hash)
	}
	return p
}

// Readmit says who it is that was let in with a Pass by an Engine before this one:
// the same client, as long as its password is the one that it was and it may log in
// from the address; else who asks from there without one. The error is Admit's.
func (e *Engine) Readmit(p Pass) (client string, err error) {
	g := e.gate
	addr, err := netip.ParseAddr(p.address)
	if err == nil {
		addr = addr.Unmap().WithZone("")
	}
	if a := g.accounts[p.client]; p.hash != "" && a != nil && string(a.hash) == p.hash && a.usable(addr) {
		return p.client, nil
	}
	return g.admit(context.Background(), p.address, Login{}) // no password is checked, and so nobody waited for
}
