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

// purge removes an origin's files from the cache.
func (s *Server) purge(w http.ResponseWriter, r *http.Request) {
	var body struct {
		Origin string `json:"origin"`
	}
	if !decodeBody(w, r, &body) {
		return
	}
	o, ok := requireOrigin(w, body.Origin)
	if !ok {
		return
	}
	purged := s.opts.Cache.Purge(o)
	s.opts.Log.Info("robots.txt removed from the cache by an operator", "origin", o.String(), "known", purged)
	writeJSON(w, http.StatusOK, struct {
		Origin string `json:"origin"`

		// An entry was in memory.
		Purged bool `json:"purged"`
	}{o.String(), purged})
}

// refetch fetches an origin's files now.
func (s *Server) refetch(w http.ResponseWriter, r *http.Request) {
	var body struct {
		Origin    string `json:"origin"`
		UserAgent string `json:"user_agent"`
	}
	if !decodeBody(w, r, &body) {
		return
	}
	o, ok := requireOrigin(w, body.Origin)
	if !ok {
		return
	}
	q, err := s.policyRequest(&explainRequest{URL: o.String() + "/", UserAgent: body.UserAgent})
	if err != nil {
		writeProblem(w, http.StatusBadRequest, err.Error())
		return
	}
	s.opts.Log.Info("robots.txt fetch requested by an operator", "origin", o.String())
	s.writeAfterWait(w, r, func(ctx context.Context) (any, error) {
		e, err := s.opts.Cache.Refetch(ctx, s.opts.Query(q))
		if err != nil {
			return nil, err
		}
		return newOriginJSON(newOriginState(e, s.opts.rulings()(e)), time.Now()), nil
	})
}

// deleteBackOff ends the back-off of a host.
func (s *Server) deleteBackOff(w http.ResponseWriter, r *http.Request) {
	if !requireEmptyBody(w, r) {
		return
	}
	host, ok := requireHost(w, r)
	if !ok {
		return
	}
	ended, err := s.endBackOff(host)
	if err != nil {
		writeProblem(w, http.StatusServiceUnavailable, unrecordedEnd)
		return
	}
	writeJSON(w, http.StatusOK, struct {
		Host string `json:"host"`

		// This replica knew of a back-off.
		Ended bool `json:"ended"`
	}{host, ended})
}

// unrecordedEnd is what an operator learns if the audit cannot be written.
const unrecordedEnd = "The back-off has ended, but the audit cannot record it. The log has the error."

// endBackOff ends the back-off of a host, and those of single clients there, and records that.
// It reports whether this replica knew of one.
func (s *Server) endBackOff(host string) (ended bool, err error) {
	if ended = s.opts.Pacer.EndBackOff(host); !ended && s.opts.Store == nil {
		return false, nil
	}
	s.opts.Log.Info("back-off ended by an operator", "host", host)
	if err = s.opts.BackOffEnded(host); err != nil {
		s.opts.Log.Error("end of a back-off not recorded in the audit", "host", host, "error", err)
	}
	return ended, err
}

// reload reloads the configuration. If any part of it is invalid, nothing changes.
func (s *Server) reload(w http.ResponseWriter, r *http.Request) {
	if !requireEmptyBody(w, r) {
		return
	}
	if s.opts.Reload == nil {
		writeProblem(w, http.StatusNotImplemented, "This proxy has no configuration file to reload.")
		return
	}
	if err := s.opts.Reload(r.Context()); err != nil {
		writeProblem(w, http.StatusUnprocessableEntity, "The reload failed. The previous configuration stays active.", strings.Split(err.Error(), "\n")...)
		return
	}
	writeJSON(w, http.StatusOK, struct {
		Reloaded bool `json:"reloaded"`
	}{true})
}

// caPEM answers with the CA certificate that clients must trust.
func (s *Server) caPEM(w http.ResponseWriter, r *http.Request) {
	if _, ok := parseQuery(w, r); !ok {
		return
	}
	w.Header().Set("Content-Type", "application/x-pem-file")
	w.Header().Set("Content-Disposition", `attachment; filename="robotsproxy-ca.pem"`)
	w.Write(s.opts.CAPEM())
}

// proxyPAC answers with the proxy auto-configuration file for browsers.
func (s *Server) proxyPAC(w http.ResponseWriter, r *http.Request) {
	if _, ok := parseQuery(w, r); !ok {
		return
	}
	script := guide.PAC(s.opts.proxyAddress(r.Host))
	if script == nil {
		writeProblem(w, http.StatusBadRequest, "The Host header has no valid name for the proxy.")
		return
	}
	w.Header().Set("Content-Type", "application/x-ns-proxy-autoconfig")
	w.Write(script)
}

// proxyAddress returns the host:port at which a client reaches the proxy. reached is the host:port at which the client has
// reached this listener: if the proxy listens on all addresses, its host is used. If the proxy speaks TLS, https:// stands
// in front. proxyAddress returns "" if reached has no valid host.
func (o *Options) proxyAddress(reached string) string {
	host, port, err := net.SplitHostPort(o.Proxy.String())
	if err != nil {
		return ""
	}
	if ip := net.ParseIP(host); ip.IsUnspecified() {
		origin, err := robots.ParseOrigin("http", reached)
		if err != nil {
			return ""
		}
		host = origin.Host
	}
	host = net.JoinHostPort(host, port)
	if o.ProxyTLS {
		host = "https://" + host
	}
	return host
}
