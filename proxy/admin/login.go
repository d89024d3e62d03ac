package admin

import (
	"net/http"
	"strings"
	"time"
)

// A loginView is what the login page shows.
type loginView struct {
	Next  string // where to go then
	Wrong string // why the last try came to nothing; "": there was none
}

// logins mounts how one logs in, and out.
func (s *server) logins(mux *http.ServeMux) {
	mux.HandleFunc("GET /login", s.showLogin)
	mux.HandleFunc("POST /login", s.login)
	mux.HandleFunc("POST /logout", s.logout)
}

func (s *server) showLogin(w http.ResponseWriter, r *http.Request) {
	next := ownPath(r.URL.Query().Get("next"))
	if token := s.o.Token(); token == "" || s.loggedIn(r, token) {
		http.Redirect(w, r, next, http.StatusSeeOther)
		return
	}
	s.show(w, http.StatusOK, "login", "login", loginView{Next: next})
}

// login gives who shows the token a cookie instead. Scripts cannot read it, and other
// sites cannot have it sent.
func (s *server) login(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, maxBody)
	if err := r.ParseForm(); err != nil {
		s.show(w, http.StatusBadRequest, "login", "login", loginView{Next: "/", Wrong: "That was no form of this page."})
		return
	}
	next, token := ownPath(r.PostForm.Get("next")), s.o.Token()
	if token == "" {
		http.Redirect(w, r, next, http.StatusSeeOther)
		return
	}
	if !same(strings.TrimSpace(r.PostForm.Get("token")), token) {
		w.Header().Set("WWW-Authenticate", `Bearer realm="robotsproxy"`)
		s.show(w, http.StatusUnauthorized, "login", "login", loginView{next, "This is not the token in admin.token."})
		return
	}
	http.SetCookie(w, sessionCookie(r, s.sessions.begin(token, time.Now()), int(maxSession.Seconds())))
	http.Redirect(w, r, next, http.StatusSeeOther)
}

func (s *server) logout(w http.ResponseWriter, r *http.Request) {
	for _, c := range r.CookiesNamed(cookieName) {
		s.sessions.end(c.Value, s.o.Token(), time.Now())
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
