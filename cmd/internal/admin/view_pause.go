package admin

import (
	"errors"
	"net/http"
	"time"

	"robotsproxy/policy/explain/humanize"
	"robotsproxy/policy/stops"
	"robotsproxy/robots"
)

// A pauseView is a pause on a page.
type pauseView struct {
	// Left says how long it lasts, and Since since when.
	Left, Since, Reason, By string
}

// pauseView returns the pause of a host alone or, for "", of all hosts; nil: there is none.
func (s *Server) pauseView(host string, now time.Time) *pauseView {
	p, ok := s.opts.ownPause(host)
	if !ok {
		return nil
	}
	return &pauseView{pauseLeft(newPauseState(p), now), timeWithAge(now, p.Since), p.Reason, p.By}
}

// pauseLeft says how long a pause lasts.
func pauseLeft(p *pauseState, now time.Time) string {
	if p.Until.IsZero() {
		return "no end set"
	}
	return "for " + humanize.Duration(p.Until.Sub(now))
}

// changePause handles the buttons that begin and end the pause of a host or, if the path names none, of all hosts.
func (s *Server) changePause(w http.ResponseWriter, r *http.Request) {
	// The form of a host's page was parsed.
	if r.PostForm == nil && !s.parseForm(w, r) {
		return
	}
	host, back := "", "/hosts"
	if name := r.PathValue("host"); name != "" {
		var err error
		if host, err = robots.ParseHost(name); err != nil {
			s.refuse(w, r, http.StatusBadRequest, badHost)
			return
		}
		back = hostHref(host)
	}
	done := "bad-pause"
	switch r.PostForm.Get("do") {
	case "pause":
		done = s.pauseByForm(r, host)
	case "resume":
		done = s.resumeByForm(r, host)
	default:
		s.refuse(w, r, http.StatusBadRequest, "The form names no action of this page.")
		return
	}
	http.Redirect(w, r, back+"?done="+done, http.StatusSeeOther)
}

// pauseByForm pauses a host or all, and returns the key of doneFlashes.
func (s *Server) pauseByForm(r *http.Request, host string) string {
	until, err := parseUntil(r.PostForm.Get("until"), time.Now())
	if err != nil {
		return "bad-pause"
	}
	// Without a name it cannot fail.
	by, _ := operator(r, "dashboard", "")
	switch _, err = s.pause(r.Context(), stops.Stop{Host: host, Reason: r.PostForm.Get("reason"), Until: until, By: by}); {
	case errors.Is(err, stops.ErrInvalid):
		return "bad-pause"
	case errors.Is(err, stops.ErrFull):
		return "many-pauses"
	case err != nil:
		return "pause-lost"
	}
	return "paused"
}

// resumeByForm ends the pause of a host or of all, and returns the key of doneFlashes.
func (s *Server) resumeByForm(r *http.Request, host string) string {
	by, _ := operator(r, "dashboard", "")
	switch ended, err := s.endPause(r.Context(), host, by); {
	case err != nil:
		return "end-lost"
	case !ended:
		return "no-pause"
	}
	return "resumed"
}
