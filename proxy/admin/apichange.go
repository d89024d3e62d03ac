package admin

import (
	"context"
	"net"
	"net/http"
	"strings"
	"time"

	"robotsproxy/proxy/guide"
	"robotsproxy/robots"
)

// purge forgets an origin's robots.txt.
func (s *server) purge(w http.ResponseWriter, r *http.Request) {
	var about struct {
		Origin string `json:"origin"`
	}
	if !body(w, r, &about) {
		return
	}
	o, ok := named(w, about.Origin)
	if !ok {
		return
	}
	purged := s.o.Book.Purge(o)
	s.o.Log.Info("a robots.txt is forgotten, as the operator asks", "origin", o.String(), "known", purged)
	writeJSON(w, http.StatusOK, struct {
		Origin string `json:"origin"`
		Purged bool   `json:"purged"` // there was something to forget in memory
	}{o.String(), purged})
}

// refetch has an origin's robots.txt fetched now.
func (s *server) refetch(w http.ResponseWriter, r *http.Request) {
	var about struct {
		Origin    string `json:"origin"`
		UserAgent string `json:"user_agent"`
	}
	if !body(w, r, &about) {
		return
	}
	o, ok := named(w, about.Origin)
	if !ok {
		return
	}
	q, err := s.request(&inquiry{URL: o.String() + "/", UserAgent: about.UserAgent})
	if err != nil {
		problem(w, http.StatusBadRequest, err.Error())
		return
	}
	s.o.Log.Info("a robots.txt is fetched, as the operator asks", "origin", o.String())
	s.ask(w, r, func(ctx context.Context) (any, error) {
		e, err := s.o.Book.Refetch(ctx, s.o.Query(q))
		if err != nil {
			return nil, err
		}
		return shownOriginOf(newOriginState(e, s.o.Dialect()), time.Now()), nil
	})
}

// reload has the configuration read anew, whole or not at all.
func (s *server) reload(w http.ResponseWriter, r *http.Request) {
	if !nothing(w, r) {
		return
	}
	if s.o.Reload == nil {
		problem(w, http.StatusNotImplemented, "This proxy has no configuration that it could read anew.")
		return
	}
	if err := s.o.Reload(r.Context()); err != nil {
		problem(w, http.StatusUnprocessableEntity, "The configuration stays as it was.", strings.Split(err.Error(), "\n")...)
		return
	}
	writeJSON(w, http.StatusOK, struct {
		Reloaded bool `json:"reloaded"`
	}{true})
}

// caPEM answers with the certificate that clients have to trust.
func (s *server) caPEM(w http.ResponseWriter, r *http.Request) {
	if _, ok := parameters(w, r); !ok {
		return
	}
	w.Header().Set("Content-Type", "application/x-pem-file")
	w.Header().Set("Content-Disposition", `attachment; filename="robotsproxy-ca.pem"`)
	w.Write(s.o.CAPEM())
}

// proxyPAC answers with the file by which a browser finds the proxy.
func (s *server) proxyPAC(w http.ResponseWriter, r *http.Request) {
	if _, ok := parameters(w, r); !ok {
		return
	}
	script := guide.PAC(s.proxyFor(r))
	if script == nil {
		problem(w, http.StatusBadRequest, "It cannot be told by which name you reach the proxy.")
		return
	}
	w.Header().Set("Content-Type", "application/x-ns-proxy-autoconfig")
	w.Write(script)
}

// proxyFor gives the proxy's host:port as who asks reaches it: where it listens, or if
// that is everywhere, the host that was asked; with a scheme in front where it speaks TLS,
// and "" where the host is none.
func (s *server) proxyFor(r *http.Request) string {
	host, port, err := net.SplitHostPort(s.o.Proxy.String())
	if err != nil {
		return ""
	}
	if ip := net.ParseIP(host); ip.IsUnspecified() {
		asked, err := robots.ParseOrigin("http", r.Host)
		if err != nil {
			return ""
		}
		host = asked.Host
	}
	host = net.JoinHostPort(host, port)
	if s.o.ProxyTLS {
		host = "https://" + host
	}
	return host
}
