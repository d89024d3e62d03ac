package policy

import (
	"net/netip"

	"robotsproxy/robots"
)

// A Client is one that is known by where it asks from, and judged in a way of
// its own.
type Client struct {
	Name     string // never an address
	Networks []netip.Prefix
	Dialect  robots.Dialect // zero: that of the Engine
}

// Identify gives what a client that asks from an address is called: the name
// of the first of Options.Clients that it belongs to, else the address.
func (e *Engine) Identify(address string) string {
	if len(e.o.Clients) == 0 {
		return address
	}
	addr, err := netip.ParseAddr(address)
	if err != nil {
		return address
	}
	addr = addr.Unmap().WithZone("")
	for i := range e.o.Clients {
		for _, network := range e.o.Clients[i].Networks {
			if network.Contains(addr) {
				return e.o.Clients[i].Name
			}
		}
	}
	return address
}

// dialect is the one that a client's requests are judged under.
func (e *Engine) dialect(client string) robots.Dialect {
	if d, ok := e.dialects[client]; ok {
		return d
	}
	return e.o.Dialect
}
