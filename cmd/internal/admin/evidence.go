package admin

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"robotsproxy/policy/audit/trail"
	"robotsproxy/policy/explain/humanize"
)

const (
	// verifyTimeout bounds one verification, which runs in the background.
	verifyTimeout = 30 * time.Minute
	// reportTimeout bounds one report, for which its client waits.
	reportTimeout = 5 * time.Minute
)

// An Evidence gives access to the audit. All its fields are required.
type Evidence struct {
	// Verify verifies the chain of all lines; the error says what is wrong.
	Verify func(context.Context) (lines int, err error)

	// Report writes a report over the whole audit, as an HTML page.
	Report func(context.Context, io.Writer) error

	// Anchors returns where anchors are written to; empty: nowhere.
	Anchors func() []Anchor
}

// An Anchor is a place to which anchors of the audit are written.
type Anchor struct {
	// Place is a file or a URL.
	Place string

	// Last is when the newest anchor was written there; zero: none was.
	Last time.Time
}

var errShutdown = errors.New("the proxy is shutting down")

// A chainCheck verifies the audit in the background, once at a time.
type chainCheck struct {
	// wg counts the goroutine that verifies.
	wg sync.WaitGroup

	// mu guards the fields below.
	mu sync.Mutex

	// ended is set by stop.
	ended bool

	// cancel ends the verification; nil: none runs.
	cancel context.CancelCauseFunc

	// began is when the last verification began; zero: there was none.
	began time.Time
	lines int
	err   error
}

// start begins a verification unless one runs.
func (c *chainCheck) start(verify func(context.Context) (lines int, err error)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cancel != nil || c.ended {
		return
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	ctx, release := context.WithTimeoutCause(ctx, verifyTimeout, fmt.Errorf("not finished after %s", verifyTimeout))
	c.cancel, c.began = cancel, time.Now()
	c.wg.Go(func() {
		defer release()
		lines, err := verify(ctx)
		c.mu.Lock()
		defer c.mu.Unlock()
		c.cancel(nil)
		c.cancel, c.lines, c.err = nil, lines, err
	})
}

// stop ends the verification that runs, and waits for its end.
func (c *chainCheck) stop() {
	c.mu.Lock()
	c.ended = true
	if c.cancel != nil {
		c.cancel(errShutdown)
	}
	c.mu.Unlock()
	c.wg.Wait()
}

// badge says what the last verification has found.
func (c *chainCheck) badge(now time.Time) badge {
	c.mu.Lock()
	defer c.mu.Unlock()
	at := utcTime(c.began) + ", " + timeAgo(now, c.began)
	switch {
	case c.cancel != nil:
		return badge{Kind: "wait", Icon: "wait", Word: "Verifying", Note: "since " + at}
	case c.began.IsZero():
		return badge{Kind: "plain", Icon: "none", Word: "Not verified", Note: "since the start of the process"}
	case c.err != nil:
		b := badge{Kind: "wait", Icon: "info", Word: "Not verified", Note: at + ": " + clipPrintable(c.err.Error(), 2048)}
		if _, broken := errors.AsType[*trail.Fault](c.err); broken {
			b.Kind, b.Icon, b.Word = "block", "block", "Not intact"
		}
		return b
	}
	note := fmt.Sprintf("%s. No line of %s was changed, removed or moved. %s", at, humanize.Number(c.lines), trail.ChainLimit)
	return badge{Kind: "allow", Icon: "allow", Word: "Intact", Note: note}
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
