package proxy

import (
	"context"

	"robotsproxy/policy"
	"robotsproxy/policy/pace"
	"robotsproxy/proxy/egress/ftp"
)

// Explain returns the decision about a request as if it came now, by the code that decides:
// it replaces User-Agent and From, checks the destination, and decides by the host
// alone if the tunnel would be passed through. Pace has no Key if the request would not wait
// for a slot. Explain records, paces and sends nothing, except that it may fetch a
// robots.txt that is not cached and, with PerAddress, resolve a name.
func (h *Handler) Explain(ctx context.Context, q policy.Request) policy.Decision {
	rules := h.rules.acquire()
	defer rules.release()
	err := rules.checkURLLength(len(q.Origin.String()) + len(q.PathQuery))
	if err == nil && q.Origin.Scheme == "ftp" {
		err = ftp.CheckPath(q.PathQuery)
	}
	if err == nil {
		err = rules.admit(&q, nil)
	}
	if err != nil {
		return policy.Decision{Reason: answerTo(err).reason, Err: err}
	}
	judge := rules.Engine.Decide
	if rules.passesThrough(q.Origin) {
		judge = rules.Engine.DecideTunnel
		q.From = "" // nothing that it sends is in a CONNECT
	}
	d := judge(ctx, q)
	if err := refusalError(&d); err != nil {
		answerTo(err).override(&d)
		return d
	}
	fromCopy := d.Reason == policy.ReasonRobotsTxt && rules.fromCopy(ctx, q, "", &d)
	if rules.Monitor || fromCopy {
		d.Pace = pace.Limits{CrawlDelay: d.Pace.CrawlDelay} // nothing is waited for
	} else if _, err := rules.chooseAddress(ctx, q.Origin, &d.Pace); err != nil {
		d.Err = err
	}
	return d
}
