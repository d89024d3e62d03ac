package proxy_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"robotsproxy/robots/testkit"
)

// logins are the users that are logged in on the connections of an origin, by remote address, as by NTLM and
// Negotiate (RFC 4559 6).
type logins struct {
	mu    sync.Mutex
	users map[string]string
}

// page says who is logged in on the connection. The token "1" is the first message of NTLM.
func (l *logins) page(w http.ResponseWriter, r *http.Request) {
	l.mu.Lock()
	defer l.mu.Unlock()
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	switch {
	case token == "1":
		l.users[r.RemoteAddr] = "half"
		w.Header().Set("WWW-Authenticate", scheme+" 2")
		w.WriteHeader(http.StatusUnauthorized)
		return
	case token != "" && (scheme != "NTLM" || l.users[r.RemoteAddr] == "half"):
		l.users[r.RemoteAddr] = token
	}
	fmt.Fprintf(w, "%s by %s", l.users[r.RemoteAddr], r.Proto)
}

// TestLoginOfAConnection checks that a connection to an origin on which a client has logged in is used for
// the requests of that client's connection only, that it is not HTTP/2, and that it ends with the client's.
func TestLoginOfAConnection(t *testing.T) {
	t.Parallel()
	for _, route := range routes {
		for _, scheme := range []string{"NTLM", "Negotiate"} {
			t.Run(route.name+" "+scheme, func(t *testing.T) {
				site := route.serve(t, "", (&logins{users: map[string]string{}}).page)
				r := start(t, setup{front: route.front, origins: []*httptest.Server{site.Server}})
				ask := func(c *http.Client, login, want string) {
					t.Helper()
					req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, site.URL+"/", nil)
					testkit.Must(t, err)
					if login != "" {
						req.Header.Set("Authorization", scheme+" "+login)
					}
					resp, err := c.Do(req)
					testkit.Must(t, err)
					defer resp.Body.Close()
					if b, err := io.ReadAll(resp.Body); err != nil || string(b) != want {
						t.Errorf("%q, %v, want %q", b, err, want)
					}
				}
				other := " by HTTP/1.1"
				if route.h2origin {
					other = " by HTTP/2.0"
				}
				one, two := route.client(r), route.client(r)
				ask(two, "", other)
				if scheme == "NTLM" {
					ask(one, "1", "")
				}
				ask(one, "alice", "alice by HTTP/1.1")
				ask(two, "", other)
				ask(one, "", "alice by HTTP/1.1")
				if scheme == "NTLM" {
					ask(two, "1", "")
				}
				ask(two, "bob", "bob by HTTP/1.1")
				ask(one, "", "alice by HTTP/1.1")
				three := route.client(r)
				ask(three, "", other)
				before := r.egress.Stats().Origins.Open
				one.CloseIdleConnections()
				testkit.Eventually(t, "the connection with the login of the client that has left is closed", func() bool {
					return r.egress.Stats().Origins.Open < before
				})
				ask(three, "", other)
				ask(two, "", "bob by HTTP/1.1")
			})
		}
	}
}
