package proxy_test

import (
	"bufio"
	"net"
	"testing"

	"robotsproxy/robots/testkit"
)

// redirected returns a function that sends requests to an origin on connections that a firewall redirects.
func (r *rig) redirected(t *testing.T, host string) func(method, target, body string) string {
	_, port, err := net.SplitHostPort(host)
	testkit.Must(t, err)
	at := r.redirect(port, nil)
	return http1("", host, func() (net.Conn, *bufio.Reader) {
		c, err := net.Dial("tcp", at)
		testkit.Must(t, err)
		return c, bufio.NewReader(c)
	})
}
