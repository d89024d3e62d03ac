//go:build !linux

package confine

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os/exec"
)

// errLinux is the only result on other systems.
var errLinux = errors.New("confinement needs Linux")

// A Confinement is a command in namespaces of its own. There is none on this system.
type Confinement struct{}

// Start returns an error.
func Start(Options) (*Confinement, error) { return nil, errLinux }

// Check returns an error.
func Check() error { return errLinux }

// Stage returns at once.
func Stage() {}

// Proxy is never called.
func (c *Confinement) Proxy() net.Listener { return nil }

// Transparent is never called.
func (c *Confinement) Transparent() net.Listener { return nil }

// NameOf is never called.
func (c *Confinement) NameOf(netip.Addr) (name string, release func()) { return "", nil }

// Serve is never called.
func (c *Confinement) Serve(context.Context) error { return errLinux }

// Run is never called.
func (c *Confinement) Run(string, Trust, []string) (notes []string, err error) { return nil, errLinux }

// Command is never called.
func (c *Confinement) Command() *exec.Cmd { return nil }

// Close is never called.
func (c *Confinement) Close() {}
