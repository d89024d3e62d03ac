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

	// params are the query parameters, each of which may occur once.
	params []string

	// handle returns what is answered as JSON. A nil result without an error means that handle has answered.
	handle func(http.ResponseWriter, *http.Request, *queryParams) (any, error)
}

// ServeHTTP implements [http.Handler].
func (e *endpoint) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var result any
	params, err := parseQuery(r, e.params)
	if err == nil {
		result, err = e.handle(w, r, &params)
	}
	switch {
	case err != nil:
		writeError(w, err)
	case result != nil:
		writeJSON(w, http.StatusOK, result)
	}
}

// IsLink reports whether a browser can open the endpoint by a link.
func (e endpoint) IsLink() bool { return e.Method == http.MethodGet && !strings.Contains(e.Path, "{") }

func (s *Server) endpoints() []endpoint {
	filtered := append([]string{"limit", "after"}, filterParams...)
	return []endpoint{
		{"GET", "/api/v1/status", "version, files, mode, health and reloads of this proxy", nil, s.status},
		{"GET", "/api/v1/decisions", "the newest lines of the audit", filtered, s.decisions},
		{"GET", "/api/v1/decisions/stream", "new lines of the audit, as server-sent events", filtered[1:], s.stream},
		{"GET", "/api/v1/series", "requests over time: allowed, disallowed, deferred, failed and waiting", []string{"span"}, s.series},
		{"GET", "/api/v1/blockers", "the rules and reasons for which most requests were not allowed", []string{"limit"}, s.blockers},
		{"GET", "/api/v1/hosts", "all hosts with their counts, pace and robots.txt files",
			[]string{"q", "sort", "limit", "after"}, s.listHosts},
		{"GET", "/api/v1/hosts/{host}", "one host, the rules and reasons that decided its requests, and the text of its robots.txt",
			[]string{"origin"}, s.getHost},
		{"DELETE", "/api/v1/hosts/{host}/back-off", "end the back-off of a host", nil, s.deleteBackOff},
		{"POST", "/api/v1/hosts/{host}/pause", "pause a host: refuse requests to it", nil, s.postPause},
		{"DELETE", "/api/v1/hosts/{host}/pause", "end the pause of a host", nil, s.deletePause},
		{"GET", "/api/v1/pause", "all pauses", nil, s.getPauses},
		{"POST", "/api/v1/pause", "pause all hosts", nil, s.postPause},
		{"DELETE", "/api/v1/pause", "end the pause of all hosts", nil, s.deletePause},
		{"POST", "/api/v1/explain", "how the proxy would decide a request, and why", nil, s.explain},
		{"POST", "/api/v1/purge", "remove the robots.txt of an origin from the cache", nil, s.purge},
		{"POST", "/api/v1/refetch", "fetch the robots.txt of an origin now", nil, s.refetch},
		{"POST", "/api/v1/reload", "reload the configuration", nil, s.reload},
		{"GET", checkpointPath, "the newest signed checkpoint of the audit", nil, s.opts.getCheckpoint},
		{"GET", "/api/v1/ca.pem", "the CA certificate that clients must trust", nil, s.caPEM},
		{"GET", "/api/v1/proxy.pac", "proxy auto-configuration file for browsers", nil, s.proxyPAC},
	}
}

func (s *Server) newAPIMux() *http.ServeMux {
	mux := http.NewServeMux()
	all := s.endpoints()
	for i := range all {
		mux.Handle(all[i].Method+" "+all[i].Path, &all[i])
	}
	mux.Handle("GET /api/v1/{$}", &endpoint{handle: func(http.ResponseWriter, *http.Request, *queryParams) (any, error) {
		return struct {
			Version   string     `json:"version"`
			Endpoints []endpoint `json:"endpoints"`
		}{s.opts.Version, all}, nil
	}})
	return mux
}

// serveAPI handles requests below /api/. It turns the error responses of the mux into problem
// details.
func (s *Server) serveAPI(w http.ResponseWriter, r *http.Request) {
	handler, pattern := s.apiMux.Handler(r)
	if pattern != "" {
		// Unlike handler, the mux sets the path values.
		s.apiMux.ServeHTTP(w, r)
		return
	}
	muted := statusRecorder{header: w.Header(), status: http.StatusOK}
	handler.ServeHTTP(&muted, r)
	w.Header().Del("Content-Length")
	if allowed := w.Header().Get("Allow"); muted.status == http.StatusMethodNotAllowed && allowed != "" {
		writeError(w, newProblem(muted.status, "Use the method "+strings.ReplaceAll(allowed, ", ", " or ")+"."))
		return
	}
	writeError(w, newProblem(muted.status, "GET /api/v1/ lists all endpoints."))
}
