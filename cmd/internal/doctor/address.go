package doctor

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"robotsproxy/cmd/internal/config"
)

// proxyURL parses a proxy's URL as variables and flags give it: without a scheme it is http.
func proxyURL(s string) (*url.URL, error) {
	if !strings.Contains(s, "://") {
		s = "http://" + s
	}
	u, err := url.Parse(s)
	if err != nil || u.Hostname() == "" {
		// The text of err would contain the password.
		return nil, errors.New("not the URL of a proxy (example: http://127.0.0.1:8080)")
	}
	if hint := config.AddressHint(u.Host); hint != "" {
		return nil, fmt.Errorf("%s %s", u.Host, hint)
	}
	if u.Scheme != "http" && u.Scheme != "https" {
		return nil, fmt.Errorf("the scheme of %s must be http or https", u.Redacted())
	}
	if u.Port() == "" {
		u.Host = net.JoinHostPort(u.Hostname(), map[string]string{"http": "80", "https": "443"}[u.Scheme])
	}
	return u, nil
}

// authorityOf returns HOST:PORT for CONNECT, with port 443 if site has none.
func authorityOf(site string) (string, error) {
	host, port, err := net.SplitHostPort(site)
	if err != nil {
		host, port = strings.Trim(site, "[]"), "443"
	}
	if host == "" || strings.ContainsAny(host, "/@ \t\r\n") || strings.Trim(port, "0123456789") != "" {
		return "", errors.New("must be HOST or HOST:PORT")
	}
	return net.JoinHostPort(host, port), nil
}

// sameListener reports whether two addresses lead to one listener.
func sameListener(ctx context.Context, a, b string) bool {
	hostA, portA, errA := net.SplitHostPort(a)
	hostB, portB, errB := net.SplitHostPort(b)
	if errA != nil || errB != nil || portA != portB {
		return false
	}
	if strings.EqualFold(hostA, hostB) {
		return true
	}
	there := addresses(ctx, hostB)
	return slices.ContainsFunc(addresses(ctx, hostA), func(at netip.Addr) bool { return slices.Contains(there, at) })
}

// dialableAddress returns an address at which a listener can be reached: loopback if it listens on all addresses.
func dialableAddress(listen string) string {
	host, port, err := net.SplitHostPort(listen)
	if err != nil {
		return listen
	}
	switch ip, err := netip.ParseAddr(host); {
	case host == "", err == nil && ip == netip.IPv4Unspecified():
		host = "127.0.0.1"
	case err == nil && ip.IsUnspecified():
		host = "::1"
	}
	return net.JoinHostPort(host, port)
}

// addresses returns the addresses of a host. For a wildcard, it returns all addresses of this machine.
func addresses(ctx context.Context, host string) (all []netip.Addr) {
	ip, err := netip.ParseAddr(host)
	switch {
	case err == nil && !ip.IsUnspecified():
		return []netip.Addr{ip.Unmap()}
	case err == nil || host == "":
		// If the interfaces are unknown, no addresses match.
		nets, _ := net.InterfaceAddrs()
		for _, n := range nets {
			if p, err := netip.ParsePrefix(n.String()); err == nil {
				all = append(all, p.Addr().Unmap())
			}
		}
		return all
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	found, _ := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	for _, ip := range found {
		all = append(all, ip.Unmap())
	}
	return all
}
