package admin

import (
	"net/http"
	"strings"
	"time"
)

// A loginView is the content of the login page.
type loginView struct {
	// Next is the path to which the login leads.
	Next string

	// Error says why the last attempt failed; "": there was none.
	Error string
}

// mountLogin adds the login and logout handlers.
func (s *Server) mountLogin(mux *http.ServeMux) {
	mux.HandleFunc("GET /login", s.showLogin)
	mux.HandleFunc("POST /login", s.login)
	mux.HandleFunc("POST /logout", s.logout)
}

func (s *Server) showLogin(w http.ResponseWriter, r *http.Request) {
	next := localPath(r.URL.Query().Get("next"))
	if token := s.opts.Token(); token == "" || s.hasSession(r, token) {
		http.Redirect(w, r, next, http.StatusSeeOther)
		return
	}
	s.render(w, http.StatusOK, "login", "login", loginView{Next: next})
}

// login sets a session cookie if the form has the token. Scripts cannot read the cookie, and
// other sites cannot make a browser send it.
func (s *Server) login(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, maxBody)
	if err := r.ParseForm(); err != nil {
		s.render(w, http.StatusBadRequest, "login", "login", loginView{Next: "/", Error: "The form data is invalid."})
		return
	}
	next, token := localPath(r.PostForm.Get("next")), s.opts.Token()
	if token == "" {
		http.Redirect(w, r, next, http.StatusSeeOther)
		return
	}
	if !equalSecrets(strings.TrimSpace(r.PostForm.Get("token")), token) {
		w.Header().Set("WWW-Authenticate", `Bearer realm="robotsproxy"`)
		s.render(w, http.StatusUnauthorized, "login", "login", loginView{next, "The token is wrong. It must be the one in admin.token."})
		return
	}
	http.SetCookie(w, sessionCookie(r, s.sessions.create(token, time.Now()), int(sessionLifetime.Seconds())))
	http.Redirect(w, r, next, http.StatusSeeOther)
}

func (s *Server) logout(w http.ResponseWriter, r *http.Request) {
	for _, c := range r.CookiesNamed(cookieName) {
		s.sessions.revoke(c.Value, s.opts.Token(), time.Now())
	}
	http.SetCookie(w, sessionCookie(r, "", -1))
	http.Redirect(w, r, "/login", http.StatusSeeOther)
}

func sessionCookie(r *http.Request, value string, seconds int) *http.Cookie {
	return &http.Cookie{
		Name: cookieName, Value: value, Path: "/", MaxAge: seconds,
		HttpOnly: true, SameSite: http.SameSiteStrictMode, Secure: r.TLS != nil,
	}
}
