package policy

import (
	"cmp"
	"slices"
	"time"

	"robotsproxy/robots"
)

// Entries returns the entries of Options.Hosts, in their order, expired ones too.
func (e *Engine) Entries() []Host { return slices.Clone(e.hosts.entries) }

// EntriesFor returns the entries that may apply to a host now, in their order: those with Paths, and the first one without. The
// host is in the form of [robots.Origin].
func (e *Engine) EntriesFor(host string) (all []Host) {
	for i := e.hosts.next(host, 0); i >= 0; i = e.hosts.next(host, i+1) {
		all = append(all, e.hosts.entries[i])
		if e.hosts.paths[i] == nil {
			break
		}
	}
	return all
}

// ParentOf returns Host.Parent of the entry that applies to all paths of a host, and so to its robots.txt and tdmrep.json and to
// CONNECT; "": it names none. The host is in the form of [robots.Origin].
func (e *Engine) ParentOf(host string) string { return e.hosts.find(host).Parent }

// ParentFor returns Host.Parent of the entry that applies to a GET of a target.
func (e *Engine) ParentFor(t robots.Target) string { return e.hosts.of(&Request{Target: t}).Parent }

// A ClientUse is a configured client and its use of the quota today.
type ClientUse struct {
	// Client is the configured client. Its Dialect and Purposes are those that apply to it.
	Client

	// Used is what its quota has counted today; without a quota, nothing is counted.
	Used Use

	// Login says that the client has a password.
	Login bool
}

// ClientUses returns the clients, in the order of Options.Clients and without their password hashes, and
// whether others may use the proxy too.
func (e *Engine) ClientUses() (all []ClientUse, open bool) {
	now := time.Now()
	for _, c := range e.o.Clients {
		use := ClientUse{Client: c, Login: c.PasswordHash != ""}
		use.Used = e.meters.used(quotaMeter(c.Name), now).sum()
		use.PasswordHash, use.PasswordHashNext, use.Networks = "", "", slices.Clone(c.Networks)
		use.Dialect, use.Purposes = cmp.Or(c.Dialect, e.o.Dialect), cmp.Or(c.Purposes, e.o.Usage.Purposes)
		all = append(all, use)
	}
	return all, e.o.Open || len(all) == 0
}
