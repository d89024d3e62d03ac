package admin

import (
	"bytes"
	"net/http"
	"time"
)

// A frame is what all pages have around them.
type frame struct {
	Title         string
	Version       string
	Nav           []link
	HealthErrors  []string // what is wrong with the proxy
	ReloadWarning string   // that the last reload was; "": it was not
	StoreWarning  string   // that this replica paces without the others; "": it does not
	SignOut       bool     // who asks has logged in
	Flash         *flash   // what came of what was done last; nil: nothing was
}

// A link leads to a page; Here is what aria-current has of it.
type link struct{ Name, Href, Current string }

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

// frame makes that of one page; in is the address of the part that it belongs to.
func (s *Server) newFrame(title, in string) frame {
	f := frame{Title: title, Version: s.opts.Version, HealthErrors: s.healthErrors(), ReloadWarning: s.opts.reloadStatus().warning(), StoreWarning: s.opts.storeWarning(), SignOut: s.opts.Token() != ""}
	f.Nav = []link{{Name: "Overview", Href: "/"}, {Name: "Hosts", Href: "/hosts"}, {Name: "Explain", Href: "/explain"}, {Name: "About", Href: "/about"}}
	for i := range f.Nav {
		if f.Nav[i].Href == in {
			f.Nav[i].Current = "page"
		}
	}
	return f
}

// show answers with a page, whole or not at all.
func (s *Server) render(w http.ResponseWriter, status int, page, part string, view any) {
	var b bytes.Buffer
	if err := ui().templates[page].ExecuteTemplate(&b, part, view); err != nil {
		s.opts.Log.Error("a page could not be made", "page", page, "error", err)
		http.Error(w, "This page could not be made; the log says why.", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	w.Write(b.Bytes())
}

// form reads what a form has sent; else it answers.
func (s *Server) parseForm(w http.ResponseWriter, r *http.Request) bool {
	r.Body = http.MaxBytesReader(w, r.Body, maxBody)
	if err := r.ParseForm(); err != nil {
		s.refuse(w, r, http.StatusBadRequest, "That was no form of this page.")
		return false
	}
	return true
}

// now is when a page is made, as it is shown.
func nowUTC() time.Time { return time.Now().UTC() }
