package admin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"robotsproxy/cmd/internal/notary"
	"robotsproxy/policy/audit/trail"
	"robotsproxy/policy/explain/humanize"
)

// verifyTimeout bounds one verification, which runs in the background.
const verifyTimeout = 30 * time.Minute

// An Evidence gives access to the audit. All its fields are required.
type Evidence struct {
	// Verify verifies the chain of all lines; the error says what is wrong.
	Verify func(context.Context) (lines int, err error)

	// Report writes a report over the whole audit, as an HTML page.
	Report func(context.Context, io.Writer) error

	// Checkpoints returns where checkpoints are kept.
	Checkpoints func() []notary.Place
}

// checkpointPath is the path of the newest checkpoint in the API, also of a Monitor.
const checkpointPath = "/api/v1/audit/checkpoint"

// getCheckpoint answers with the newest checkpoint.
func (o *Options) getCheckpoint(w http.ResponseWriter, _ *http.Request, _ *queryParams) (any, error) {
	text := o.Checkpoint()
	if text == nil {
		return nil, newProblem(http.StatusNotFound, "The audit has no checkpoint yet.")
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Write(text)
	return nil, nil
}

// overdue says why a checkpoint that is due was not written.
func overdue(err error) string {
	if err == nil {
		return ""
	}
	return "; a newer one is overdue: " + clipPrintable(err.Error(), maxCell)
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
