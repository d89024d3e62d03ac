package daemon

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"robotsproxy/cmd/internal/config"
	"robotsproxy/proxy/inbound"
	"robotsproxy/proxy/socket"
)

// listen opens the listeners that New was not given.
func (d *Daemon) listen(cfg config.Config) (err error) {
	if d.listener == nil {
		if err := d.listenForClients(cfg); err != nil {
			return err
		}
	}
	if d.adminListener, err = listenForOperators(cfg.Admin.Listen); err != nil {
		return listenError("admin.listen",
			`choose another address with --admin-listen or with admin.listen in the configuration, or "" for no admin listener`, err)
	}
	if d.monitorListener, err = listenForOperators(cfg.Admin.MetricsListen); err != nil {
		return listenError("admin.metrics_listen",
			`choose another address with admin.metrics_listen in the configuration, or "" for no such listener`, err)
	}
	return nil
}

// listenForOperators returns a listener; nil: address is "".
func listenForOperators(address string) (net.Listener, error) {
	if address == "" {
		return nil, nil
	}
	return net.Listen(listenNetwork(address), address)
}

// listenForClients opens the listeners that the configuration names.
func (d *Daemon) listenForClients(cfg config.Config) (err error) {
	if d.listener, err = net.Listen(listenNetwork(cfg.Listen), cfg.Listen); err != nil {
		return listenError("listen", "choose another address with --listen or with listen in the configuration", err)
	}
	if cfg.ListenTransparent != "" {
		if d.transparent, err = inbound.ListenTransparent(cfg.ListenTransparent); err != nil {
			return listenError("listen_transparent", "choose another address with listen_transparent in the configuration", err)
		}
	}
	return nil
}

// listenNetwork returns the network for net.Listen.
func listenNetwork(address string) string {
	if ip, err := netip.ParseAddrPort(address); err == nil && ip.Addr().Is4() {
		// With "tcp", 0.0.0.0 would also be every IPv6 address.
		return "tcp4"
	}
	return "tcp"
}

// listenError explains why the proxy cannot listen on the address of a key. inUse is what to do
// if another program listens there.
func listenError(key, inUse string, err error) error {
	if errors.Is(err, socket.EADDRINUSE) {
		return fmt.Errorf("%s: %w: %s", key, err, inUse)
	}
	return fmt.Errorf("%s: %w", key, err)
}

// listenAddrs returns the addresses of this network namespace on which the daemon listens.
func (d *Daemon) listenAddrs() (all []netip.AddrPort) {
	listeners := []net.Listener{d.adminListener, d.monitorListener}
	if !d.elsewhere {
		listeners = append(listeners, d.listener, d.transparent)
	}
	for _, l := range listeners {
		if l != nil {
			all = append(all, l.Addr().(*net.TCPAddr).AddrPort())
		}
	}
	return all
}
