//go:build !linux

package socket

import (
	"errors"
	"net/netip"
)

// OriginalDestination returns errors.ErrUnsupported.
func (c *Conn) OriginalDestination() (netip.AddrPort, error) {
	return netip.AddrPort{}, errors.ErrUnsupported
}

// Peek returns errors.ErrUnsupported.
func (c *Conn) Peek([]byte, int) (int, error) { return 0, errors.ErrUnsupported }
