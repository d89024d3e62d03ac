package admin

import (
	"bytes"
	"net/http"
	"time"
)

// A frame has what all pages show around their content.
type frame struct {
	Title   string
	Version string

	// Replica is the name of the replica that the page shows; "": the proxy is no replica.
	Replica string

	// Section is the path of the page's entry in the navigation; "": it has none.
	Section string

	// HealthErrors say why the proxy is not healthy or not ready.
	HealthErrors []string

	// ReloadWarning is "" if the last reload succeeded.
	ReloadWarning string

	// StoreWarning is "" unless this replica paces alone.
	StoreWarning string

	// Warnings say what the operator should see to before it stops requests.
	Warnings []string

	// Monitor is set if decisions are only recorded.
	Monitor bool

	// AllPaused is the pause of all hosts; nil: there is none.
	AllPaused *pauseView

	// SignOut is set if there is a login to sign out of.
	SignOut bool

	// Flash is the outcome of the last action; nil: there was none.
	Flash *flash
}

// A flash is a message at the top of a page.
type flash struct {
	Kind, Icon string
	Text       string
	Lines      []string
}

func successFlash(text string) *flash { return &flash{Kind: "good", Icon: "allow", Text: text} }

func errorFlash(text string, lines ...string) *flash {
	return &flash{Kind: "bad", Icon: "block", Text: text, Lines: lines}
}

// newFrame makes the frame of a page. section is the path of its entry in the navigation.
func (s *Server) newFrame(title, section string) frame {
	replica := ""
	if st := s.opts.storeStatus(); st != nil {
		replica = printable(st.Replica)
	}
	return frame{
		Title: title, Section: section, Version: s.opts.Version, Replica: replica,
		SignOut: s.opts.Token() != "", HealthErrors: s.healthErrors(),
		ReloadWarning: s.opts.reloadStatus().warning(), StoreWarning: s.opts.storeWarning(), Warnings: s.opts.warnings(),
		Monitor: s.opts.Monitor(), AllPaused: s.pauseView("", nowUTC()),
	}
}

// render answers with a template. If the template fails, it answers 500 with nothing of the
// page.
func (s *Server) render(w http.ResponseWriter, status int, page, part string, view any) {
	var b bytes.Buffer
	if err := ui().templates[page].ExecuteTemplate(&b, part, view); err != nil {
		s.opts.Log.Error("page template failed", "page", page, "error", err)
		http.Error(w, "The server could not render this page. The log has the error.", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	w.Write(b.Bytes())
}

// parseForm parses a posted form. It answers 400 and returns false on errors.
func (s *Server) parseForm(w http.ResponseWriter, r *http.Request) bool {
	r.Body = http.MaxBytesReader(w, r.Body, maxBody)
	if err := r.ParseForm(); err != nil {
		s.refuse(w, r, http.StatusBadRequest, "The form data is invalid.")
		return false
	}
	return true
}

// nowUTC returns the time at which a page is made, in UTC as pages show it.
func nowUTC() time.Time { return time.Now().UTC() }
