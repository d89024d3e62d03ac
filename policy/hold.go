package policy

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"time"

	"robotsproxy/policy/hours"
	"robotsproxy/policy/pace"
	"robotsproxy/robots"
)

// ErrHeld matches each [HoldError] with errors.Is, and the error of a robots.txt that redirects to a host to which nothing is sent now.
var ErrHeld = errors.New("nothing is sent to the host now")

// A HoldError says why nothing is sent to a host now, whatever robots.txt says. It is [ErrHeld].
type HoldError struct {
	// Reason is ReasonPaused, ReasonHours, ReasonCoolDown or ReasonBudget.
	Reason Reason

	// Until is when the request may be sent; zero: that is not known.
	Until time.Time

	// Detail is a sentence for the client without its full stop, in printable text.
	Detail string
}

// Is makes a HoldError ErrHeld.
func (e *HoldError) Is(target error) bool { return target == ErrHeld }

func (e *HoldError) Error() string { return e.Detail }

// MayWait returns a *HoldError if the request r, for which Decide has returned d, is held back for longer than it may wait. Otherwise
// it puts the time until which r is held back into d.Pace.
func (e *Engine) MayWait(r *Request, d *Decision) error {
	if held := e.held(r, d, d.Pace.MaxWait); held != nil {
		return held
	}
	return nil
}

// MaySend returns a *HoldError if the request r, for which Decide has returned d, must not be sent at this moment. Call it right
// before the request is sent, and before a connection is made for it.
func (e *Engine) MaySend(r *Request, d *Decision) error {
	if held := e.held(r, d, 0); held != nil {
		return held
	}
	return nil
}

// held returns what holds a request back for longer than it may wait; nil: nothing does. A shorter time is put into d.Pace.NotBefore.
func (e *Engine) held(r *Request, d *Decision, mayWait time.Duration) *HoldError {
	if paused := e.paused(r); paused != nil {
		return paused
	}
	if h := d.terms; h != nil && (len(h.Hours) > 0 || h.RobotsHours && len(d.Visits) > 0) {
		var visits []robots.VisitTime
		if h.RobotsHours {
			visits = d.Visits
		}
		now := time.Now()
		if at, ok := opening(h.Hours, visits, now); !ok || at.Sub(now) > mayWait {
			return &HoldError{ReasonHours, at, h.hoursDetail(visits)}
		} else if at.After(now) {
			d.Pace.NotBefore = at
		}
	}
	return e.coolingDown(r, d.terms)
}

// decideHeld refuses a request that would be held back after its robots.txt was fetched, if the file is not in memory: it is not fetched
// then. It reports whether it refuses the request.
func (e *Engine) decideHeld(ctx context.Context, d *Decision, r *Request, c *requestConfig) bool {
	if e.o.FetchHeld {
		return false
	}
	held := cmp.Or(e.held(r, d, d.Pace.MaxWait), e.spent(ctx, r, &c.host))
	if held == nil || c.host.Robots != Enforce {
		return false
	}
	q := e.query(r, c)
	q.OnlyKnown = true
	if _, err := e.o.Cache.Lookup(ctx, q, c.client.dialect); err == nil {
		return false
	}
	d.refuseHeld(held)
	return true
}

// applyHold refuses a request that is allowed, but must not be sent for longer than it may wait. It also refuses one whose robots.txt
// was not fetched for that.
func (e *Engine) applyHold(ctx context.Context, d *Decision, r *Request, c *requestConfig) {
	var held *HoldError
	if d.Verdict == Allow {
		held = cmp.Or(e.held(r, d, d.Pace.MaxWait), e.spent(ctx, r, &c.host))
	} else if d.Reason == ReasonOrigin || d.Reason == ReasonUnreachable {
		held, _ = errors.AsType[*HoldError](d.Err)
	}
	if held != nil {
		d.refuseHeld(held)
	}
}

func (d *Decision) refuseHeld(held *HoldError) {
	d.Verdict, d.Reason, d.Retry, d.Err = Refuse, held.Reason, held.Until, held
	d.Pace.NotBefore = time.Time{}
}

// FetchLimits returns the limits for the proxy's own fetches of a target, whichever client causes them: a robots.txt, or what one is
// redirected to. They have no Crawl-delay, since the file is not known yet. The error is a *HoldError if nothing may be sent to the host
// for longer than a request may wait.
func (e *Engine) FetchLimits(t robots.Target) (pace.Limits, error) {
	var d Decision
	r := Request{Target: t}
	e.start(&d, &r, &requestConfig{client: &e.unknown, host: e.hosts.of(&r)})
	if held := e.held(&r, &d, d.Pace.MaxWait); held != nil {
		return d.Pace, held
	}
	return d.Pace, nil
}

// MayFetch is MaySend for a fetch of the proxy itself.
func (e *Engine) MayFetch(t robots.Target) error {
	r := Request{Target: t}
	return e.MaySend(&r, &Decision{terms: e.hosts.of(&r).Host})
}

// maxOpening bounds the search for a time at which several schedules are open.
const maxOpening = 14 * 24 * time.Hour

// opening returns when all schedules are open and the site may be visited, at now or later. ok is false if that is not within two
// weeks.
func opening(all []*hours.Schedule, visits []robots.VisitTime, now time.Time) (at time.Time, ok bool) {
	at = now
	for at.Sub(now) <= maxOpening {
		before := at
		for _, s := range all {
			if open, until := s.At(at); !open {
				if until.IsZero() {
					return time.Time{}, false
				}
				at = until
			}
		}
		if _, at = robots.MayVisit(visits, at); at.Equal(before) || len(all)+min(1, len(visits)) == 1 {
			return at, true
		}
	}
	return time.Time{}, false
}

// hoursDetail returns a sentence with the hours.
func (h *Host) hoursDetail(visits []robots.VisitTime) string {
	var all []string
	for _, s := range h.Hours {
		all = append(all, s.String())
	}
	text := "Requests to this host are sent only at these hours: " + strings.Join(all, "; and ")
	if len(visits) > 0 {
		var lines []string
		for _, v := range visits {
			lines = append(lines, v.String())
		}
		text = "The robots.txt of this site wants visits only at " + strings.Join(lines, ", ") + " UTC (Visit-time)"
		if len(all) > 0 {
			text += ". The operator permits only " + strings.Join(all, "; and ")
		}
	}
	return text
}
