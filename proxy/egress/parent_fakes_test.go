package egress

import (
	"encoding/base64"
	"net"
	"net/url"
	"sync"
	"testing"

	"robotsproxy/proxy/egress/parenttest"
)

// The credentials of the tests, with characters that must be escaped. No message may
// contain the password in any form.
const (
	parentUser     = "we"
	parentPassword = "s3cr:t/@%"
)

var basicCredentials = "Basic " + base64.StdEncoding.EncodeToString([]byte(parentUser+":"+parentPassword))

type ask = parenttest.Request

// A fakeParent is an upstream proxy of the test that resolves the test's names.
type fakeParent struct {
	*origin
	*parenttest.Parent
	scheme string
	locked bool // requires the credentials
}

var parentKinds = []string{"http", "https", "socks5"}

func newParentOf(kind string, locked bool) *fakeParent {
	p := &fakeParent{scheme: kind, locked: locked, Parent: &parenttest.Parent{Names: map[string]string{"origin.test": "127.0.0.1"}}}
	if locked {
		p.User, p.Password = parentUser, parentPassword
	}
	return p
}

// startParent starts an upstream proxy of a kind. ca signs its certificate.
func startParent(t testing.TB, kind string, ca *authority, locked bool) *fakeParent {
	t.Helper()
	p := newParentOf(kind, locked)
	switch kind {
	case "http":
		p.origin = serve(t, p.ServeHTTP)
	case "https":
		p.origin = serve(t, p.ServeHTTP, ca.leaf(t, "127.0.0.1", later()))
	case "socks5":
		o, l := listen(t, "http", "127.0.0.1")
		p.origin = o
		eachConn(t, l, p.ServeSocks)
	}
	return p
}

// eachConn serves each connection on a separate goroutine.
func eachConn(t testing.TB, l net.Listener, f func(net.Conn)) {
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			serving.Go(func() {
				defer c.Close()
				f(c)
			})
		}
	})
	t.Cleanup(func() {
		l.Close()
		serving.Wait()
	})
}

// url returns the URL of the upstream proxy, with the credentials if it requires them.
func (p *fakeParent) url() *url.URL {
	u := &url.URL{Scheme: p.scheme, Host: p.Addr()}
	if p.locked {
		u.User = url.UserPassword(parentUser, parentPassword)
	}
	return u
}
