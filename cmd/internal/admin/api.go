package admin

import (
	"net/http"
	"strings"
)

// An endpoint is one method and path of the API.
type endpoint struct {
	Method      string `json:"method"`
	Path        string `json:"path"`
	Description string `json:"what"`
	handler     http.HandlerFunc
}

func (s *Server) endpoints() []endpoint {
	return []endpoint{
		{"GET", "/api/v1/status", "version, files, mode, health and reloads of this proxy", s.status},
		{"GET", "/api/v1/decisions", "the newest lines of the audit", s.decisions},
		{"GET", "/api/v1/decisions/stream", "new lines of the audit, as server-sent events", s.stream},
		{"GET", "/api/v1/series", "requests over time: allowed, disallowed, deferred, failed and waiting", s.series},
		{"GET", "/api/v1/blockers", "the rules and reasons for which most requests were not allowed", s.blockers},
		{"GET", "/api/v1/hosts", "all hosts with their counts, pace and robots.txt files", s.listHosts},
		{"GET", "/api/v1/hosts/{host}", "one host, the rules and reasons that decided its requests, and the text of its robots.txt", s.getHost},
		{"DELETE", "/api/v1/hosts/{host}/back-off", "end the back-off of a host", s.deleteBackOff},
		{"POST", "/api/v1/explain", "how the proxy would decide a request, and why", s.explain},
		{"POST", "/api/v1/purge", "remove the robots.txt of an origin from the cache", s.purge},
		{"POST", "/api/v1/refetch", "fetch the robots.txt of an origin now", s.refetch},
		{"POST", "/api/v1/reload", "reload the configuration", s.reload},
		{"GET", "/api/v1/ca.pem", "the CA certificate that clients must trust", s.caPEM},
		{"GET", "/api/v1/proxy.pac", "proxy auto-configuration file for browsers", s.proxyPAC},
	}
}

func (s *Server) newAPIMux() *http.ServeMux {
	mux := http.NewServeMux()
	all := s.endpoints()
	for _, e := range all {
		mux.HandleFunc(e.Method+" "+e.Path, e.handler)
	}
	mux.HandleFunc("GET /api/v1/{$}", func(w http.ResponseWriter, r *http.Request) {
		if _, ok := parseQuery(w, r); ok {
			writeJSON(w, http.StatusOK, struct {
				Version   string     `json:"version"`
				Endpoints []endpoint `json:"endpoints"`
			}{s.opts.Version, all})
		}
	})
	return mux
}

// serveAPI handles requests below /api/. It turns the error responses of the mux into problem
// details.
func (s *Server) serveAPI(w http.ResponseWriter, r *http.Request) {
	handler, pattern := s.apiMux.Handler(r)
	if pattern != "" {
		// Unlike handler, it sets the path values.
		s.apiMux.ServeHTTP(w, r)
		return
	}
	muted := statusRecorder{header: w.Header(), status: http.StatusOK}
	handler.ServeHTTP(&muted, r)
	w.Header().Del("Content-Length")
	if allowed := w.Header().Get("Allow"); muted.status == http.StatusMethodNotAllowed && allowed != "" {
		writeProblem(w, muted.status, "Use the method "+strings.ReplaceAll(allowed, ", ", " or ")+".")
		return
	}
	writeProblem(w, muted.status, "GET /api/v1/ lists all endpoints.")
}
