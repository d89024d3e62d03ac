package admin

import (
	"cmp"
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"path"
	"strconv"
	"strings"
	"time"
)

// contentSecurityPolicy (Content Security Policy Level 3) lets pages load only what this
// server serves, run no inline script, and be in no frame.
const contentSecurityPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; " +
	"font-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// setSecurityHeaders sets the headers of every response: browsers must not guess its type,
// cache it, or let other origins use it.
func setSecurityHeaders(h http.Header) {
	h.Set("Content-Security-Policy", contentSecurityPolicy)
	h.Set("X-Content-Type-Options", "nosniff")
	// With no-referrer, browsers would send the forms of these pages with Origin: null (Fetch Standard 3.1).
	h.Set("Referrer-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
}

// guard authenticates requests before next handles them, and sets the security headers of
// every response.
func (s *Server) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		setSecurityHeaders(w.Header())
		token := s.opts.Token()
		switch {
		// A client that looks for the proxy has no token.
		case isProxyRequest(r):
			s.opts.showProxy(w, r, "admin")
			return
		case token == "":
			if status, detail := rejectNonLocal(r); status != 0 {
				s.refuse(w, r, status, detail)
				return
			}
		case !isPublicPath(r.URL.Path) && !s.authenticated(r, token):
			s.challenge(w, r)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// isProxyRequest reports whether a client takes this listener for a proxy: it sends a CONNECT, or names a whole URL as the target
// (RFC 9112 3.2.2) that is not at the port of this listener.
func isProxyRequest(r *http.Request) bool {
	if r.Method == http.MethodConnect {
		return true
	}
	local, _ := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
	return r.URL.IsAbs() && local != nil && (r.URL.Scheme != "http" || cmp.Or(r.URL.Port(), "80") != strconv.Itoa(local.Port))
}

// showProxy answers a client that takes the listener with this name for the proxy.
func (o *Options) showProxy(w http.ResponseWriter, r *http.Request, listener string) {
	at := ""
	if local, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr); ok {
		at = local.String()
	}
	text := "this is the " + listener + " listener; the proxy is at " + o.proxyAddress(at)
	// RFC 9209 defines the header.
	w.Header().Set("Proxy-Status", "robotsproxy; error=http_request_error; details="+strconv.Quote(text))
	http.Error(w, "robotsproxy: "+text, http.StatusMisdirectedRequest)
}

// isPublicPath reports whether a path is served without a token: health and what the login
// page needs.
func isPublicPath(p string) bool {
	switch p {
	case "/healthz", "/readyz", "/login", "/logout":
		return true
	}
	// Assets are the same for everybody.
	return strings.HasPrefix(p, "/static/") && path.Clean(p) == p
}

// rejectNonLocal returns why a request is refused when no token is configured; status 0
// accepts it. The connection must come from loopback and Host must be a local name. Browsers
// send a foreign name in Host when a web site lets its own name resolve to loopback (DNS
// rebinding).
func rejectNonLocal(r *http.Request) (status int, detail string) {
	local, _ := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
	if local == nil || !local.IP.IsLoopback() {
		return http.StatusForbidden, "Without admin.token, the listener answers only requests from this machine."
	}
	// No browser sends HTTP/1.0.
	if r.Host == "" && !r.ProtoAtLeast(1, 1) {
		return 0, ""
	}
	if !isLocalName(r.Host) {
		return http.StatusMisdirectedRequest, "Without admin.token, the listener answers only requests to localhost or to an IP " +
			"address, because another name may belong to a web site."
	}
	return 0, ""
}

// isLocalName reports whether a Host header, with or without a port, is an IP address or a
// name that can only mean this machine (RFC 6761 6.3).
func isLocalName(hostPort string) bool {
	host := hostPort
	if h, port, err := net.SplitHostPort(hostPort); err == nil {
		if _, err := strconv.ParseUint(port, 10, 16); err != nil && port != "" {
			return false
		}
		host = h
	} else if unbracketed, ok := strings.CutPrefix(hostPort, "["); ok {
		if host, ok = strings.CutSuffix(unbracketed, "]"); !ok {
			return false
		}
	}
	if _, err := netip.ParseAddr(host); err == nil {
		return true
	}
	host = strings.TrimSuffix(strings.ToLower(host), ".")
	return host == "localhost" || strings.HasSuffix(host, ".localhost")
}

// authenticated reports whether a request has the token, as a bearer token or by a session
// cookie.
func (s *Server) authenticated(r *http.Request, token string) bool {
	presented, ok := bearerToken(r)
	return ok && equalSecrets(presented, token) || s.hasSession(r, token)
}

// challenge answers 401, or redirects a browser to the login page.
func (s *Server) challenge(w http.ResponseWriter, r *http.Request) {
	_, presented := bearerToken(r)
	if !presented && wantsHTML(r) {
		http.Redirect(w, r, loginURL(r), http.StatusSeeOther)
		return
	}
	challenge := `Bearer realm="robotsproxy"`
	detail := "The token in admin.token is required. Send it as Authorization: Bearer TOKEN."
	if presented {
		// RFC 6750 3.1 defines the error.
		challenge += `, error="invalid_token"`
		detail = "The token is wrong. It must be the one in admin.token."
	}
	w.Header().Set("WWW-Authenticate", challenge)
	s.refuse(w, r, http.StatusUnauthorized, detail)
}

// equalSecrets compares two secrets in a time that depends neither on their lengths nor on
// where they differ. Failed attempts are not limited: a limit would let anybody lock out the
// operator, and a token is too long to be guessed.
func equalSecrets(a, b string) bool {
	x, y := sha256.Sum256([]byte(a)), sha256.Sum256([]byte(b))
	return subtle.ConstantTimeCompare(x[:], y[:]) == 1
}

// bearerToken returns the token in Authorization: Bearer (RFC 6750 2.1).
func bearerToken(r *http.Request) (token string, ok bool) {
	scheme, token, ok := strings.Cut(r.Header.Get("Authorization"), " ")
	return strings.TrimSpace(token), ok && strings.EqualFold(scheme, "Bearer")
}

// wantsHTML reports whether a request comes from a browser that loads a page.
func wantsHTML(r *http.Request) bool {
	if r.Method != http.MethodGet && r.Method != http.MethodHead || isAPIRequest(r) || r.URL.Path == "/metrics" {
		return false
	}
	return r.Header.Get("Sec-Fetch-Mode") == "navigate" || strings.Contains(r.Header.Get("Accept"), "text/html")
}

// refuse answers with an error: browsers get text, programs get problem details.
func (s *Server) refuse(w http.ResponseWriter, r *http.Request, status int, detail string) {
	if !wantsHTML(r) {
		writeError(w, newProblem(status, detail))
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	fmt.Fprintf(w, "%d %s\n%s\n", status, http.StatusText(status), detail)
}

// loginURL returns the URL of the login page, which leads back to the requested page.
func loginURL(r *http.Request) string {
	next := localPath(r.URL.RequestURI())
	if next == "/" {
		return "/login"
	}
	return "/login?next=" + url.QueryEscape(next)
}

// localPath returns next if it is a path and query on this server, and "/" otherwise.
func localPath(next string) string {
	u, err := url.ParseRequestURI(next)
	if err != nil || u.Scheme != "" || u.Host != "" || !strings.HasPrefix(next, "/") || strings.HasPrefix(next, "//") ||
		strings.Contains(next, `\`) || u.Path == "/login" || u.Path == "/logout" {
		return "/"
	}
	return next
}

// hasSession reports whether a request has the cookie of a valid session.
func (s *Server) hasSession(r *http.Request, token string) bool {
	// Cookies do not respect ports: another server on this host may have set one.
	for _, c := range r.CookiesNamed(cookieName) {
		if s.sessions.valid(c.Value, token, time.Now()) {
			return true
		}
	}
	return false
}
