package admin

import (
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

// policyOfContent (Content Security Policy 3) has a page take nothing from elsewhere,
// run no script that stands in it, and stand in no other page.
const contentSecurityPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; " +
	"font-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// secure says of an answer, whatever it is, that it is what it says it is, is not to be
// kept, and is for nobody else's page.
func setSecurityHeaders(h http.Header) {
	h.Set("Content-Security-Policy", contentSecurityPolicy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "same-origin") // with no-referrer our own forms would come from the origin "null" (Fetch Standard 3.1)
	h.Set("Cache-Control", "no-store")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
}

// guard lets in who may ask, and gives every answer its security headers.
func (s *Server) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		setSecurityHeaders(w.Header())
		token := s.opts.Token()
		switch {
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

// public says what is answered without a token: health, and what a login takes.
func isPublicPath(p string) bool {
	switch p {
	case "/healthz", "/readyz", "/login", "/logout":
		return true
	}
	return strings.HasPrefix(p, "/static/") && path.Clean(p) == p // the same for everybody
}

// strange says of a request that comes without a token detail it is not answered; zero:
// it is. It has to have come to loopback, and for a name of this machine's: a page that
// makes a name of its own lead here (DNS rebinding) has the browser send that name.
func rejectNonLocal(r *http.Request) (status int, detail string) {
	local, _ := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
	if local == nil || !local.IP.IsLoopback() {
		return http.StatusForbidden, "Without admin.token, only this machine itself is answered."
	}
	if r.Host == "" && !r.ProtoAtLeast(1, 1) { // no browser is so old
		return 0, ""
	}
	if !isLocalName(r.Host) {
		return http.StatusMisdirectedRequest, "Without admin.token, only requests for localhost or for an address are answered: another name may be a stranger's."
	}
	return 0, ""
}

// ownName says whether a Host header, with any port or none, is an address or a name
// that can only mean this machine (RFC 6761 6.3).
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

// knows says whether a request shows that who sends it knows the token: by itself, or by
// the cookie of a login.
func (s *Server) authenticated(r *http.Request, token string) bool {
	presented, ok := bearerToken(r)
	return ok && equalSecrets(presented, token) || s.hasSession(r, token)
}

// challenge asks who does not know the token for it.
func (s *Server) challenge(w http.ResponseWriter, r *http.Request) {
	_, presented := bearerToken(r)
	if !presented && wantsHTML(r) {
		http.Redirect(w, r, loginURL(r), http.StatusSeeOther)
		return
	}
	challenge := `Bearer realm="robotsproxy"`
	detail := "This asks for the token in admin.token: send it as Authorization: Bearer TOKEN."
	if presented {
		challenge += `, error="invalid_token"` // RFC 6750 3.1
		detail = "This is not the token in admin.token."
	}
	w.Header().Set("WWW-Authenticate", challenge)
	s.refuse(w, r, http.StatusUnauthorized, detail)
}

// same compares in a time that tells neither where two texts differ nor how long they are.
// How many are tried is not bounded: whoever is to be let in would have to be held up by
// what others try, and a token is too long to be found that way.
func equalSecrets(a, b string) bool {
	x, y := sha256.Sum256([]byte(a)), sha256.Sum256([]byte(b))
	return subtle.ConstantTimeCompare(x[:], y[:]) == 1
}

// bearer gives what stands behind Authorization: Bearer (RFC 6750 2.1).
func bearerToken(r *http.Request) (token string, ok bool) {
	scheme, token, ok := strings.Cut(r.Header.Get("Authorization"), " ")
	return strings.TrimSpace(token), ok && strings.EqualFold(scheme, "Bearer")
}

// wantsPage says whether it is a person that waits for the answer.
func wantsHTML(r *http.Request) bool {
	if r.Method != http.MethodGet && r.Method != http.MethodHead || isAPIRequest(r) || r.URL.Path == "/metrics" {
		return false
	}
	return r.Header.Get("Sec-Fetch-Mode") == "navigate" || strings.Contains(r.Header.Get("Accept"), "text/html")
}

// refuse answers detail a request is not answered: programs in JSON, others in words.
func (s *Server) refuse(w http.ResponseWriter, r *http.Request, status int, detail string) {
	if !wantsHTML(r) {
		writeProblem(w, status, detail)
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	fmt.Fprintf(w, "%d %s\n%s\n", status, http.StatusText(status), detail)
}

// loginFor is where somebody is sent who has to log in first.
func loginURL(r *http.Request) string {
	next := localPath(r.URL.RequestURI())
	if next == "/" {
		return "/login"
	}
	return "/login?next=" + url.QueryEscape(next)
}

// ownPath gives a path and query that lead nowhere but here, "/" instead of any other.
func localPath(next string) string {
	u, err := url.ParseRequestURI(next)
	if err != nil || u.Scheme != "" || u.Host != "" || !strings.HasPrefix(next, "/") || strings.HasPrefix(next, "//") ||
		strings.Contains(next, `\`) || u.Path == "/login" || u.Path == "/logout" {
		return "/"
	}
	return next
}

// loggedIn says whether a request has the cookie of a session.
func (s *Server) hasSession(r *http.Request, token string) bool {
	for _, c := range r.CookiesNamed(cookieName) { // one may be of another port's
		if s.sessions.valid(c.Value, token, time.Now()) {
			return true
		}
	}
	return false
}
