package report

import (
	"fmt"
	"strings"

	"robotsproxy/policy/explain/humanize"
)

// sentences returns the main results in sentences.
func (r *Report) sentences() []string {
	t := &r.Totals
	if t.Requests == 0 {
		if r.Filters.String() == "" {
			return []string{"The audit has no request."}
		}
		return []string{"The audit has no request that matches the filters."}
	}
	said := []string{
		fmt.Sprintf("Clients sent %s (%s).", humanize.Count(t.Requests, "request"), r.period()),
		fmt.Sprintf("Allowed: %s. Disallowed by robots.txt or by the operator, and therefore not sent to the site%s: %s. Deferred, so that the client may send them later: %s. Failed, because of the site, the network, the client or the proxy: %s.",
			numberAndShare(t.Allowed, t), r.orWithheld(), numberAndShare(t.Disallowed, t), numberAndShare(t.Deferred, t), numberAndShare(t.Failed, t)),
	}
	if t.NotEnforced > 0 {
		said = append(said, fmt.Sprintf("Sent, although the proxy decided against it (mode: monitor): %s.", numberAndShare(t.NotEnforced, t)))
	}
	said = append(said, r.why()...)
	for _, s := range []struct {
		of   int64
		text string
	}{
		{t.Waited, r.waitedText()},
		{t.Reserved, were(t.Reserved, "request") + " sent although the site does not permit the use of the content for a purpose of the client. Reservations by sites has the statements, and the reasons of exceptions."},
		{t.Clamped, were(t.Clamped, "request") + " sent after a shorter Crawl-delay than the site asks for. The table of sites has both delays."},
		{t.BackedOff, were(t.BackedOff, "request") + " part of a back-off: the site answered 429 or 503, and the proxy sent it nothing for a while."},
		{t.Stale, were(t.Stale, "request") + " decided by an older copy of robots.txt, because the site did not return a new one."},
		{t.Away, were(t.Away, "request") + " paced while the store that the replicas share was unavailable. Each replica then kept to its own share of the rate."},
		{r.Source.Lost, were(r.Source.Lost, "record") + " lost, because the audit could not be written. This report does not count their requests."},
		{r.Source.Counted, were(r.Source.Counted, "further refusal") + " only counted, and the numbers of this report do not include them: a client caused more than 100 refusals in one second for reasons that do not depend on the site, such as a malformed request, an invalid login, a limit or a denied host."},
	} {
		if s.of > 0 {
			said = append(said, s.text)
		}
	}
	return said
}

// orWithheld completes what is said of the disallowed requests, if some were sent.
func (r *Report) orWithheld() string {
	if r.withheld == 0 {
		return ""
	}
	return fmt.Sprintf(" (except %s: the site disallows the use of the content only in its response, which the proxy did not pass on)", humanize.Count(r.withheld, "request"))
}

func numberAndShare(n int64, of *counts) string {
	return fmt.Sprintf("%s (%s)", humanize.Number(n), share(n, of.Requests))
}

// were returns a number of things and the verb.
func were(n int64, what string) string {
	if n == 1 {
		return humanize.Count(n, what) + " was"
	}
	return humanize.Count(n, what) + " were"
}

// waitedText says how long requests waited, and whose. It does not add up the waits, since requests
// wait at the same time.
func (r *Report) waitedText() string {
	t := &r.Totals
	text := fmt.Sprintf("%s waited for a slot, because the proxy spaces out the requests to each host: median %s, longest %s.",
		humanize.Count(t.Waited, "request"), humanize.Duration(t.WaitMedian), humanize.Duration(t.WaitMax))
	if who := r.whoWaited(); who != "" {
		text += " Most often: " + who + "."
	}
	return text
}

// whoWaited names the client and the host with the most requests that waited; "" if neither has a row.
func (r *Report) whoWaited() (who string) {
	c, n := mostWaited(&r.Clients)
	if n > 0 {
		who = fmt.Sprintf("client %s (%s)", shown(c.Client), humanize.Number(n))
	}
	h, n := mostWaited(&r.Hosts)
	if n > 0 {
		if who != "" {
			who += " and "
		}
		who += fmt.Sprintf("host %s (%s)", shown(h.Host), humanize.Number(n))
	}
	return who
}

// mostWaited returns the row with the most requests that waited, and their number.
func mostWaited[R any, P counted[R]](t *table[R]) (most R, n int64) {
	for i := range t.Rows {
		if waited := P(&t.Rows[i]).all().Waited; waited > n {
			most, n = t.Rows[i], waited
		}
	}
	return most, n
}

// monitoring says what mode: monitor means for the numbers; "": no request came under it.
func (r *Report) monitoring() string {
	m := &r.monitored
	if r.Monitored == 0 {
		return ""
	}
	whose := fmt.Sprintf("%s of %s", humanize.Number(r.Monitored), humanize.Count(r.Totals.Requests, "request"))
	if r.Monitored == r.Totals.Requests {
		whose = "all requests"
	}
	text := fmt.Sprintf("Monitoring: nothing was blocked for %s (%s). The proxy only recorded its decisions (mode: monitor). Would have been disallowed: %s",
		whose, period(m.First, m.Ended), humanize.Number(m.WouldDisallowed))
	if m.WouldDeferred > 0 {
		text += ", deferred: " + humanize.Number(m.WouldDeferred)
	}
	if m.WouldFailed > 0 {
		text += "; would have failed: " + humanize.Number(m.WouldFailed)
	}
	text += "."
	if m.WouldDeferred == 0 {
		text += " Pace and quotas were not evaluated."
	}
	return text
}

// why returns sentences about the reasons of refusals and exceptions.
func (r *Report) why() []string {
	var said []string
	say := func(reason string, n func(*counts) int64, what string) {
		if c := r.byReason(reason); c != nil && n(c) > 0 {
			said = append(said, were(n(c), "request")+" "+what)
		}
	}
	blocked := func(c *counts) int64 { return c.Blocked }
	say("rule", blocked, "disallowed by a rule of a site's robots.txt. The rules are listed below.")
	say("unreachable", blocked, "refused because a site gave no usable robots.txt. Until a site gives one, the proxy sends it no request (RFC 9309 2.3.1.4).")
	all := func(c *counts) int64 { return c.Requests }
	say("override", all, overrideText)
	say("denied-host", all, "for a site that the configuration denies, whatever its robots.txt says.")
	if n := r.tunnels(); n > 0 {
		said = append(said, were(n, "tunnel")+" passed through: robots.txt decided about the whole site only. The requests inside have no records, and can be for pages that robots.txt disallows.")
	}
	if text, none := strings.CutPrefix(r.exceptions(), "none"); none {
		said = append(said, "No exceptions"+text)
	}
	return said
}

const overrideText = "decided by an entry of the configuration that ignores robots.txt. The entries are listed below, with their reasons."

// byReason returns the counts of a reason; nil: it has no row.
func (r *Report) byReason(name string) *counts {
	for i := range r.Reasons.Rows {
		if r.Reasons.Rows[i].Reason == name {
			return r.Reasons.Rows[i].all()
		}
	}
	return nil
}

// tunnels returns how many tunnels were passed through.
func (r *Report) tunnels() int64 {
	if c := r.byReason("tunnel"); c != nil {
		return c.Allowed + c.NotEnforced
	}
	return 0
}

// exceptions says whether requests were sent although robots.txt was ignored; "": it is not known.
// The text begins with "none" if there were none.
func (r *Report) exceptions() string {
	if c := r.byReason("override"); c != nil {
		return were(c.Requests, "request") + " " + overrideText
	}
	// Beyond the rows there may be one.
	if r.Totals.Requests == 0 || r.Reasons.Others.Requests > 0 {
		return ""
	}
	text := "none"
	if r.byReason("denied-host") != nil {
		text += " except denied hosts"
	}
	switch {
	case r.Monitored > 0:
		text += ": no entry of the configuration ignores robots.txt for these requests"
	case r.Totals.Allowed == 0:
		return text + ": the report has no request that the proxy sent."
	default:
		text += ": robots.txt was applied to every request that the proxy sent"
	}
	if r.tunnels() > 0 {
		text += ", but not inside the tunnels that it passed through"
	}
	return text + "."
}
