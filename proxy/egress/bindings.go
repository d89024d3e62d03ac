package egress

import (
	"context"
	"errors"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"robotsproxy/robots"
)

const maxBound = 10_000 // hosts; some 300 octets each

// ErrElsewhere marks a failed dial of a host that has another address, which
// [Client.Address] gives from then on: nothing is held against the host yet.
var ErrElsewhere = errors.New("the host's next address is tried from now on")

// bindings say at which one address each host is reached, where Options ask for
// that.
type bindings struct {
	keep time.Duration

	mu    sync.Mutex // guards hosts
	hosts map[string]binding
}

// A binding is of one host. It outlives its time, so that the host stays where
// it is as long as its name still leads there.
type binding struct {
	at    netip.Addr
	until time.Time    // zero: at has failed
	among []netip.Addr // what the name led to
	dead  []netip.Addr // those of them that could not be dialled
}

func newBindings(keep time.Duration) *bindings {
	return &bindings{keep: keep, hosts: make(map[string]binding)}
}

// lookup gives the address that host is bound to; zero: to none, or no longer.
func (b *bindings) lookup(host string) netip.Addr {
	b.mu.Lock()
	defer b.mu.Unlock()
	if e := b.hosts[host]; time.Now().Before(e.until) {
		return e.at
	}
	return netip.Addr{}
}

// bind binds host to one of the addresses that its name leads to now: the one
// that it had, else the first, but to none that has just failed. Where somebody
// else has bound it in between, it stays so.
func (b *bindings) bind(host string, addrs []netip.Addr) netip.Addr {
	b.mu.Lock()
	defer b.mu.Unlock()
	old, now := b.hosts[host], time.Now()
	if now.Before(old.until) {
		return old.at
	}
	e := binding{until: now.Add(b.keep), among: addrs}
	if old.until.IsZero() {
		e.dead = old.dead
	}
	alive := func(a netip.Addr) bool { return !slices.Contains(e.dead, a) }
	switch i := slices.IndexFunc(addrs, alive); {
	case slices.Contains(addrs, old.at) && alive(old.at):
		e.at = old.at
	case i >= 0:
		e.at = addrs[i]
	default:
		e.at, e.dead = addrs[0], nil
	}
	b.put(host, e)
	return e.at
}

// won binds host to the address that answered first.
func (b *bindings) won(host string, addrs []netip.Addr, at netip.Addr) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if now := time.Now(); !now.Before(b.hosts[host].until) {
		b.put(host, binding{at: at, until: now.Add(b.keep), among: addrs})
	}
}

// failed ends host's binding to an address that could not be dialled, and says
// whether there is another to try.
func (b *bindings) failed(host string, at netip.Addr) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	e, known := b.hosts[host]
	if !known || e.at != at {
		return e.at.IsValid() // bound anew since
	}
	e.until = time.Time{}
	if !slices.Contains(e.dead, at) {
		e.dead = append(slices.Clip(e.dead), at)
	}
	others := slices.ContainsFunc(e.among, func(a netip.Addr) bool { return !slices.Contains(e.dead, a) })
	if !others {
		e = binding{} // all over again
	}
	b.hosts[host] = e
	return others
}

// put writes e down. The lock is held.
func (b *bindings) put(host string, e binding) {
	if _, known := b.hosts[host]; !known && len(b.hosts) >= maxBound {
		now := time.Now()
		maps.DeleteFunc(b.hosts, func(_ string, e binding) bool { return !now.Before(e.until) })
		if len(b.hosts) >= maxBound {
			clear(b.hosts) // forgetting costs a question at most
		}
	}
	b.hosts[strings.Clone(host)] = e // it may be a part of a whole URL
}

// place is the one address that host is dialled at: itself, else at, else the
// one that it is bound to. Zero: whichever answers.
func (d *Client) place(host string, at netip.Addr) netip.Addr {
	if d.bindings == nil {
		return netip.Addr{}
	}
	if addr, err := netip.ParseAddr(host); err == nil {
		return addr.Unmap()
	}
	if at.IsValid() {
		return at
	}
	return d.bindings.lookup(host)
}

// KnownAddress gives the one address that host is reached at now, without asking for it; zero:
// none is known, or none would count.
func (d *Client) KnownAddress(host string) netip.Addr { return d.place(host, netip.Addr{}) }

// Address gives the one address that o's host is reached at for the next few
// minutes, for [Client.At]. Where none is known yet the name is resolved and what
// it leads to judged, as in a dial; the errors are those of a dial too. Without
// Options.OneAddress, and with a parent, which resolves names by itself, it is
// the zero Addr.
func (d *Client) Address(ctx context.Context, o robots.Origin) (netip.Addr, error) {
	if d.bindings == nil {
		return netip.Addr{}, nil
	}
	if err := d.Check(o.Host, o.Port); err != nil {
		return netip.Addr{}, err
	}
	if at := d.place(o.Host, netip.Addr{}); at.IsValid() {
		return at, nil
	}
	err := d.contacts.failure(o)
	if _, unresolved := errors.AsType[*net.DNSError](err); unresolved {
		return netip.Addr{}, err
	}
	o.Host = strings.Clone(o.Host) // it may be a part of a whole URL, and is remembered
	ctx, cancel := context.WithTimeout(ctx, d.dialTimeout)
	defer cancel()
	addrs, err := d.resolve(ctx, o.Host)
	if err != nil {
		d.tally.note(err) // it would have been one of a dial
		return netip.Addr{}, d.blame(o, dialError(o.Host, o.Port, err))
	}
	return d.bindings.bind(o.Host, addrs), nil
}
