package proxy

import (
	"context"

	"robotsproxy/policy"
	"robotsproxy/policy/pace"
	"robotsproxy/proxy/egress/ftp"
)

// Explain gives what would be decided for a request that comes now, by the code that
// decides: its User-Agent and From are replaced, its destination is checked, and where
// its tunnel would not be opened, its host alone is judged. Its Pace has no Key where no
// slot would be waited for. Nothing is recorded, paced or sent, but for a robots.txt that
// is not known yet and, where the pace goes by address, a name that is.
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
