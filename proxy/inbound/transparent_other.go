//go:build !linux

package inbound

import (
	"errors"
	"net"
)

// ListenTransparent returns an error: only Linux tells the original destination of a connection.
func ListenTransparent(string) (net.Listener, error) {
	return nil, errors.New("a transparent listener needs Linux")
}
