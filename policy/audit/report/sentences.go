package report

import (
	"fmt"
	"robotsproxy/policy/explain/humanize"
)

// sentences returns the main results in sentences.
func (r *Report) sentences() []string {
	t := &r.Totals
	if t.Requests == 0 {
		return []string{"The audit holds no request of those that are asked for."}
	}
	said := []string{
		fmt.Sprintf("From %s to %s UTC, %s judged.", spoken(t.First), spoken(t.Last), were(t.Requests, "request")),
		fmt.Sprintf("Allowed: %s (%s). Blocked, and so not sent to the site: %s (%s).",
			humanize.Number(t.Allowed), share(t.Allowed, t.Requests), humanize.Number(t.Blocked), share(t.Blocked, t.Requests)),
	}
	said = append(said, r.why()...)
	for _, s := range []struct {
		of   int64
		text string
	}{
		{t.Waited, fmt.Sprintf("%s waited in turn, as requests to one site are spaced out: %s on average, %s at most.",
			humanize.Count(t.Waited, "request"), humanize.Duration(t.WaitMean), humanize.Duration(t.WaitMax))},
		{t.Clamped, fmt.Sprintf("%s went to a site that asks for longer pauses (Crawl-delay) than the configuration keeps. The sites, and what was kept, are listed below.",
			humanize.Count(t.Clamped, "request"))},
		{t.BackedOff, fmt.Sprintf("%s met a site that had asked for quiet (status 429 or 503) and was left alone for a while.", humanize.Count(t.BackedOff, "request"))},
		{t.Stale, fmt.Sprintf("%s judged by an older copy of robots.txt, as the site did not give it again.", were(t.Stale, "request"))},
		{t.Away, fmt.Sprintf("%s paced while the store that the replicas share was away: each then kept to its own part of the pace, and judged by the copies that it held.",
			were(t.Away, "request"))},
		{r.Source.Lost, fmt.Sprintf("%s lost, as the audit could not be written at the time: this report does not count what they said.", were(r.Source.Lost, "record"))},
		{r.Source.Counted, fmt.Sprintf("%s only counted, and this report's numbers do not include them: a client sent more than 100 requests in a second that were malformed, not let in or over a limit.", were(r.Source.Counted, "further refusal"))},
	} {
		if s.of > 0 {
			said = append(said, s.text)
		}
	}
	return said
}

// were returns a number of things and the verb.
func were(n int64, what string) string {
	if n == 1 {
		return humanize.Count(n, what) + " was"
	}
	return humanize.Count(n, what) + " were"
}

// why returns sentences about the reasons of refusals and exceptions.
func (r *Report) why() []string {
	of := map[string]*counts{}
	for i := range r.Reasons.Rows {
		of[r.Reasons.Rows[i].Reason] = r.Reasons.Rows[i].all()
	}
	var said []string
	say := func(reason string, n func(*counts) int64, what string) {
		if c := of[reason]; c != nil && n(c) > 0 {
			said = append(said, were(n(c), "request")+" "+what)
		}
	}
	blocked := func(c *counts) int64 { return c.Blocked }
	say("rule", blocked, "blocked by a rule of a site's robots.txt. Each of these rules is listed below.")
	say("unreachable", blocked, "blocked because a site gave no usable robots.txt at the time: a site that does not say is not visited.")
	if r.Monitored > 0 {
		said = append(said, fmt.Sprintf("%s came while the proxy only watched (monitor mode). Decided against, sent on all the same, and not counted as blocked: %s.",
			humanize.Count(r.Monitored, "request"), humanize.Number(r.Totals.NotEnforced)))
	}
	all := func(c *counts) int64 { return c.Requests }
	say("override", all, "decided by an entry of the configuration that sets robots.txt aside. Each entry is listed below, with the reason that was given for it.")
	say("denied-host", all, "for a site that the configuration denies, whatever its robots.txt says.")
	if of["override"] == nil && r.Reasons.Others.Requests == 0 { // beyond the rows there may be one
		said = append(said, "The audit has no exception from robots.txt: in none of these requests was it set aside.")
	}
	return said
}
