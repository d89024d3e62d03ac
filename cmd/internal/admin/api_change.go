package admin

import (
	"context"
	"net/http"
	"strings"

	"robotsproxy/policy/stops"
	"robotsproxy/proxy/guide"
)

// purge removes an origin's files from the cache.
func (s *Server) purge(w http.ResponseWriter, r *http.Request, _ *queryParams) (any, error) {
	var body struct {
		Origin string `json:"origin"`
	}
	if err := decodeBody(w, r, &body); err != nil {
		return nil, err
	}
	o, err := parseOrigin(body.Origin)
	if err != nil {
		return nil, err
	}
	purged := s.opts.Cache.Purge(o)
	s.opts.Log.Info("robots.txt removed from the cache by an operator", "origin", o.String(), "known", purged)
	return struct {
		Origin string `json:"origin"`

		// Purged is set if an entry was in memory.
		Purged bool `json:"purged"`
	}{o.String(), purged}, nil
}

// refetch fetches an origin's files now.
func (s *Server) refetch(w http.ResponseWriter, r *http.Request, _ *queryParams) (any, error) {
	var body struct {
		Origin    string `json:"origin"`
		UserAgent string `json:"user_agent"`
	}
	if err := decodeBody(w, r, &body); err != nil {
		return nil, err
	}
	o, err := parseOrigin(body.Origin)
	if err != nil {
		return nil, err
	}
	q, err := s.policyRequest(&explainRequest{URL: o.String() + "/", UserAgent: body.UserAgent})
	if err != nil {
		return nil, err
	}
	s.opts.Log.Info("robots.txt fetch requested by an operator", "origin", o.String())
	return s.afterWait(w, r, func(ctx context.Context) (any, error) {
		e, err := s.opts.Cache.Refetch(ctx, s.opts.Query(q))
		if err != nil {
			return nil, err
		}
		return newOriginState(e, s.opts.rulings()(e)), nil
	})
}

// deleteBackOff ends the back-off of a host.
func (s *Server) deleteBackOff(w http.ResponseWriter, r *http.Request, _ *queryParams) (any, error) {
	if err := requireEmptyBody(w, r); err != nil {
		return nil, err
	}
	host, err := hostOf(r)
	if err != nil {
		return nil, err
	}
	ended, err := s.endBackOff(host)
	if err != nil {
		return nil, newProblem(http.StatusServiceUnavailable, unrecordedEnd)
	}
	return struct {
		Host string `json:"host"`

		// Ended is set if this replica knew of a back-off.
		Ended bool `json:"ended"`
	}{host, ended}, nil
}

// unrecordedEnd is what an operator learns if the audit cannot be written.
const unrecordedEnd = "The back-off has ended, but the audit cannot record it. The log has the error."

// endBackOff ends the back-off and the cool-down of a host, and those of single clients there, and records that.
// It reports whether this replica knew of one.
func (s *Server) endBackOff(host string) (ended bool, err error) {
	ended = s.opts.Pacer.EndBackOff(host)
	for _, c := range s.opts.coolDowns(host) {
		_, held := s.opts.Stops.End(stops.Key{Kind: stops.CoolDown, Host: host, Client: c.Client}, "")
		ended = ended || held
	}
	if !ended && s.opts.Store == nil {
		return false, nil
	}
	s.opts.Log.Info("back-off ended by an operator", "host", host)
	if err = s.opts.BackOffEnded(host); err != nil {
		s.opts.Log.Error("end of a back-off not recorded in the audit", "host", host, "error", err)
	}
	return ended, err
}

// reloadFailed is what an operator learns if the configuration is invalid.
const reloadFailed = "The reload failed. The previous configuration stays active."

// reload reloads the configuration. If any part of it is invalid, nothing changes.
func (s *Server) reload(w http.ResponseWriter, r *http.Request, _ *queryParams) (any, error) {
	if err := requireEmptyBody(w, r); err != nil {
		return nil, err
	}
	if s.opts.Reload == nil {
		return nil, newProblem(http.StatusNotImplemented, "This proxy has no configuration file to reload.")
	}
	if err := s.opts.Reload(r.Context()); err != nil {
		return nil, newProblem(http.StatusUnprocessableEntity, reloadFailed, strings.Split(err.Error(), "\n")...)
	}
	return struct {
		Reloaded    bool     `json:"reloaded"`
		NeedRestart []string `json:"needs_restart,omitempty"`
	}{true, s.opts.NeedRestart()}, nil
}

// caPEM answers with the CA certificate that clients must trust.
func (s *Server) caPEM(w http.ResponseWriter, _ *http.Request, _ *queryParams) (any, error) {
	w.Header().Set("Content-Type", "application/x-pem-file")
	w.Header().Set("Content-Disposition", `attachment; filename="robotsproxy-ca.pem"`)
	w.Write(s.opts.CAPEM())
	return nil, nil
}

// proxyPAC answers with the proxy auto-configuration file for browsers.
func (s *Server) proxyPAC(w http.ResponseWriter, r *http.Request, _ *queryParams) (any, error) {
	script := guide.PAC(s.opts.proxyAddress(r.Host))
	if script == nil {
		return nil, newProblem(http.StatusBadRequest, "The Host header has no valid name for the proxy.")
	}
	w.Header().Set("Content-Type", "application/x-ns-proxy-autoconfig")
	w.Write(script)
	return nil, nil
}
