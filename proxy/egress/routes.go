package egress

import (
	"errors"
	"fmt"
	"net/url"
	"strings"

	"golang.org/x/net/http/httpproxy"

	"robotsproxy/robots"
)

// An Environment names upstream proxies in the form of environment variables, each as a URL like Options.Parent
// or as host:port of an HTTP proxy; "" means none. The zero Environment names none.
type Environment struct {
	// The upstream proxies for origins of these schemes.
	HTTP, HTTPS, FTP string

	// NoProxy lists origins that are reached directly, in the form of NO_PROXY in golang.org/x/net/http/httpproxy.
	// localhost and loopback addresses always are.
	NoProxy string
}

// IsZero reports whether e names no upstream proxy.
func (e Environment) IsZero() bool { return e.HTTP == "" && e.HTTPS == "" && e.FTP == "" }

// routes are the Clients of upstream proxies that an Environment names. A nil *routes has none.
type routes struct {
	// through has the Client of each scheme, and all has each of them once.
	through map[string]*Client
	all     []*Client

	// excludes returns nil for an origin in NoProxy.
	excludes func(*url.URL) (*url.URL, error)
}

// newRoutes makes the Clients of o.Environment. No error contains a password.
func newRoutes(o Options, direct *Client) (*routes, error) {
	e := o.Environment
	everywhere := httpproxy.Config{HTTPSProxy: "http://any", NoProxy: e.NoProxy}
	r := &routes{through: make(map[string]*Client), excludes: everywhere.ProxyFunc()}
	o.Environment, o.Parents, o.Previous = Environment{}, nil, direct
	byURL := make(map[string]*Client)
	for scheme, text := range map[string]string{"http": e.HTTP, "https": e.HTTPS, "ftp": e.FTP} {
		if text == "" {
			continue
		}
		if byURL[text] == nil {
			var err error
			if o.Parent, err = parseParent(text); err != nil {
				return r, fmt.Errorf("proxy for %s: %w", scheme, err)
			}
			if byURL[text], err = New(o); err != nil {
				return r, fmt.Errorf("proxy for %s: %w", scheme, err)
			}
			r.all = append(r.all, byURL[text])
		}
		r.through[scheme] = byURL[text]
	}
	return r, nil
}

// parseParent parses the URL or host:port of an upstream proxy.
func parseParent(text string) (*url.URL, error) {
	if !strings.Contains(text, "://") {
		text = "http://" + text
	}
	u, err := url.Parse(text)
	if err != nil {
		// err repeats the password.
		return nil, errors.New("not a URL")
	}
	return u, nil
}

// via returns the Client for an origin: c, or that of an upstream proxy.
func (c *Client) via(o robots.Origin) *Client {
	if c.routes == nil {
		return c
	}
	through := c.routes.through[o.Scheme]
	if through == nil {
		return c
	}
	if proxy, err := c.routes.excludes(&url.URL{Scheme: "https", Host: o.Addr()}); proxy == nil || err != nil {
		return c
	}
	return through
}

// viaURL is via for the origin of a URL. An invalid one fails later.
func (c *Client) viaURL(u *url.URL) *Client {
	if c.routes != nil {
		if o, err := robots.ParseOrigin(u.Scheme, u.Host); err == nil {
			return c.via(o)
		}
	}
	return c
}

// viaTLS is via for the destination of a tunnel, whose scheme is not known.
func (c *Client) viaTLS(host string, port uint16) *Client {
	return c.via(robots.Origin{Scheme: "https", Host: host, Port: port})
}
