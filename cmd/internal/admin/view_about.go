package admin

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"time"

	"robotsproxy/policy/audit"
)

// An aboutView is the page about this proxy.
type aboutView struct {
	frame
	Connect string
	Go      string
	Dialect string
	About   About
	CA      *caCertificate
	Reloads *reloadStatus

	// ReloadErrors say why the last reload was refused.
	ReloadErrors   []string
	Healthy, Ready badge

	// Store is the state of the replica; nil: the proxy is no replica.
	Store *Store

	// Replicas is nil if the proxy is no replica.
	Replicas *replicasView

	// Shared says whether it paces together with the other replicas.
	Shared    badge
	CanReload bool
	Space     audit.Space

	// Evidence gives access to the audit; nil: the audit cannot be read.
	Evidence *Evidence

	// Chain says what the last verification of the audit has found.
	Chain badge
	API   []endpoint
}

func (s *Server) newAboutView(r *http.Request) aboutView {
	v := aboutView{
		frame: s.newFrame("About", "/about"), Connect: s.connectAddress(r), Go: runtime.Version(), Dialect: s.opts.Dialect().Name,
		About: s.opts.About(), CA: s.opts.caCertificate(), Reloads: s.opts.reloadStatus(), CanReload: s.opts.Reload != nil,
		Space: s.opts.Space(), Evidence: s.opts.Evidence, Chain: s.chain.badge(nowUTC()),
		Healthy: healthBadge(s.opts.Healthy()), Ready: healthBadge(s.opts.Ready()), API: s.endpoints(),
	}
	if v.Reloads != nil {
		v.ReloadErrors = clipErrors(v.Reloads.Errors)
	}
	if s.opts.Store != nil {
		v.Store = new(s.opts.Store())
		v.Shared, v.Replicas = v.Store.sharedBadge(), newReplicasView(v.Store)
	}
	return v
}

func clipErrors(lines []string) (all []string) {
	for _, line := range lines {
		if line = strings.TrimRight(line, "\r"); line != "" {
			all = append(all, clipPrintable(line, 2048))
		}
	}
	return all
}

func healthBadge(err error) badge {
	if err != nil {
		return badge{Kind: "block", Icon: "block", Word: "No", Note: printable(err.Error())}
	}
	return badge{Kind: "allow", Icon: "allow", Word: "Yes"}
}

func (s *Server) showAbout(w http.ResponseWriter, r *http.Request) {
	v := s.newAboutView(r)
	if r.URL.Query().Get("done") == "reload" {
		v.Flash = successFlash("The configuration was reloaded.")
		if keys := s.opts.NeedRestart(); len(keys) > 0 {
			const except = "The configuration was reloaded, except for changes that need a restart: "
			v.Flash = successFlash(except + strings.Join(keys, ", ") + ".")
		}
	}
	s.render(w, http.StatusOK, "about", "frame", v)
}

// postReload reloads the configuration and shows the errors line by line.
func (s *Server) postReload(w http.ResponseWriter, r *http.Request) {
	if s.opts.Reload == nil {
		s.refuse(w, r, http.StatusNotImplemented, "This proxy has no configuration file to reload.")
		return
	}
	// A reload must finish even if the client disconnects.
	err := s.opts.Reload(context.WithoutCancel(r.Context()))
	if err == nil {
		http.Redirect(w, r, "/about?done=reload", http.StatusSeeOther)
		return
	}
	v := s.newAboutView(r)
	// The flash has the errors already.
	v.Flash, v.ReloadErrors = errorFlash(reloadFailed, clipErrors(strings.Split(err.Error(), "\n"))...), nil
	s.render(w, http.StatusUnprocessableEntity, "about", "frame", v)
}

// sharedBadge says whether the replica paces together with the others.
func (s *Store) sharedBadge() badge {
	if warning := s.warning(); warning != "" {
		return badge{Kind: "wait", Icon: "info", Word: "No", Note: warning}
	}
	return badge{Kind: "allow", Icon: "allow", Word: "Yes"}
}

// postVerify begins a verification of the audit. The page about the proxy shows its result.
func (s *Server) postVerify(w http.ResponseWriter, r *http.Request) {
	if s.opts.Evidence == nil {
		s.refuse(w, r, http.StatusNotImplemented, "This proxy cannot read its audit.")
		return
	}
	s.chain.start(s.opts.Evidence.Verify)
	http.Redirect(w, r, "/about#audit", http.StatusSeeOther)
}

// reportTimeout bounds one report, for which its client waits.
const reportTimeout = 5 * time.Minute

// postReport answers with a report over the whole audit, as a file to save. It is no GET, so that pages of
// other origins cannot make the proxy read its audit.
func (s *Server) postReport(w http.ResponseWriter, r *http.Request) {
	if s.opts.Evidence == nil {
		s.refuse(w, r, http.StatusNotImplemented, "This proxy cannot read its audit.")
		return
	}
	if !s.reportSlots.tryAcquire() {
		w.Header().Set("Retry-After", "5")
		s.refuse(w, r, http.StatusServiceUnavailable, "Another report is being made. Try again in a moment.")
		return
	}
	defer s.reportSlots.release()
	ctx, cancel := context.WithTimeoutCause(r.Context(), reportTimeout, fmt.Errorf("the report was not finished after %s", reportTimeout))
	defer cancel()
	extendDeadlines(w, reportTimeout+requestTimeout)
	// The page fits into memory, since its tables have a bounded number of rows.
	var page bytes.Buffer
	if err := s.opts.Evidence.Report(ctx, &page); err != nil {
		s.opts.Log.Error("audit report failed", "err", err)
		s.refuse(w, r, http.StatusInternalServerError,
			"The report could not be made: "+clipPrintable(err.Error(), 2048)+". robotsproxy audit report has no time limit.")
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Content-Disposition", `attachment; filename="robotsproxy-report-`+nowUTC().Format(time.DateOnly)+`.html"`)
	w.Write(page.Bytes())
}

// A configView is the page of the active configuration.
type configView struct {
	frame

	// Text is "" if the configuration is not known.
	Text string
}

func (s *Server) showConfig(w http.ResponseWriter, r *http.Request) {
	v := configView{frame: s.newFrame("Configuration", "/about")}
	if s.opts.Config != nil {
		for line := range bytes.Lines(s.opts.Config()) {
			v.Text += printable(string(bytes.TrimRight(line, "\n"))) + "\n"
		}
	}
	s.render(w, http.StatusOK, "config", "frame", v)
}
