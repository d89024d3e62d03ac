package proxy

import (
	"context"
	"errors"
	"net/http"
	"net/netip"
	"time"

	"robotsproxy/policy"
	"robotsproxy/policy/pace"
	"robotsproxy/proxy/egress/ftp"
)

// Explain returns the decision about a request as if it arrived now. It uses the code that
// decides about requests: it replaces User-Agent and From, checks the destination, and judges
// by the host alone if the tunnel would be passed through. Pace has no Key if the request would
// not wait for a slot. Otherwise wait is how long it would wait. A client that is given by an
// address needs no login; the client "" means any client. Explain records, counts and sends
// nothing. It may fetch a robots.txt that is not cached and, with PerAddress, resolve a name.
func (h *Handler) Explain(ctx context.Context, q policy.Request) (d policy.Decision, wait time.Duration) {
	rules := h.rules.acquire()
	defer rules.release()
	err := rules.checkURLLength(q.Target)
	if err == nil && q.Origin.Scheme == "ftp" {
		err = ftp.CheckPath(q.PathQuery)
	}
	if _, noAddress := netip.ParseAddr(q.Client); err == nil && noAddress == nil {
		q.Client, err = rules.Engine.Admit(ctx, q.Client, policy.Login{})
	}
	if err == nil {
		err = rules.admit(&q, nil)
	}
	if err != nil {
		return policy.Decision{Reason: answerTo(err).reason, Err: err}, 0
	}
	judge := rules.Engine.Decide
	if rules.passesThrough(q.Origin) {
		judge = rules.Engine.DecideTunnel
		// A CONNECT contains nothing that the client would send.
		q.Method, q.From = http.MethodConnect, ""
	}
	d = judge(ctx, q)
	if err := refusalError(&d); err != nil {
		answerTo(err).override(&d)
		return d, 0
	}
	cached := d.Reason == policy.ReasonRobotsTxt && rules.fromCache(ctx, q, "", &d)
	if rules.Monitor || cached {
		// Such a request does not wait.
		d.Pace = pace.Limits{CrawlDelay: d.Pace.CrawlDelay}
		return d, 0
	}
	if wait, err = rules.forecast(ctx, h.o.Pacer, &q, &d); err != nil {
		if held, ok := errors.AsType[*policy.HoldError](err); ok {
			d.Retry = held.Until
		} else if full, ok := errors.AsType[*policy.QuotaError](err); ok {
			d.Retry = full.Until
		}
		d.Err = err
		answerTo(err).override(&d)
	}
	return d, wait
}

// forecast does what waitForSlot does, without its effects.
func (g *generation) forecast(ctx context.Context, pacer *pace.Pacer, q *policy.Request, d *policy.Decision) (time.Duration, error) {
	if err := g.Engine.MayWait(q, d); err != nil {
		return 0, err
	}
	if err := g.Engine.CheckTake(ctx, q); err != nil {
		return 0, err
	}
	if _, err := g.chooseAddress(ctx, g.Egress.Through(d.Parent), q.Origin, &d.Pace); err != nil {
		return 0, err
	}
	return pacer.Forecast(policy.ShareKey(q.Client), d.Pace)
}
