package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"robotsproxy/policy/audit"
)

// maxSummary is how many hosts, and how many rules, are named one by one.
const maxSummary = 20

// printSummary says what has happened behind a run. Hosts, rules and reasons
// are strangers' words and are printed with care.
func printSummary(w io.Writer, s audit.Summary, auditFile string) {
	if s.Allowed+s.Blocked == 0 {
		fmt.Fprintln(w, "robotsproxy: no request came through the proxy (does the command honour http_proxy?)")
		return
	}
	fmt.Fprintf(w, "robotsproxy: %s, %d allowed, %d blocked, waited %s\n",
		count(s.Allowed+s.Blocked, "request"), s.Allowed, s.Blocked, seconds(s.Waited))
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for i, h := range s.Hosts {
		if i == maxSummary {
			fmt.Fprintf(t, "  and %s\n", count(int64(len(s.Hosts)-i), "more host"))
			break
		}
		fmt.Fprintf(t, "  %s\t%d allowed\t%d blocked\twaited %s\n", printable(h.Host), h.Allowed, h.Blocked, seconds(h.Waited))
	}
	t.Flush()
	for i, r := range s.Rules {
		if i == maxSummary {
			fmt.Fprintf(t, "  and %s\n", count(int64(len(s.Rules)-i), "more rule"))
			break
		}
		fmt.Fprintf(t, "  blocked %d\tat %s\tby %s\n", r.Count, printable(r.Host), cause(r))
	}
	t.Flush()
	fmt.Fprintf(w, "robotsproxy: audit in %s\nrobotsproxy: each run keeps a pace of its own: several at once, or beside a serve, do not share it\n", printable(auditFile))
}

// cause is the rule as robots.txt has it, or the reason where no rule decided.
func cause(r audit.RuleSummary) string {
	if r.Line > 0 {
		return fmt.Sprintf("line %d, Disallow: %s", r.Line, printable(r.Rule))
	}
	return printable(r.Reason)
}

func count(n int64, what string) string {
	if n != 1 {
		what += "s"
	}
	return fmt.Sprintf("%d %s", n, what)
}

// seconds is a duration as people want it: to the tenth of a second, without noughts at its end.
func seconds(d time.Duration) string {
	s := d.Round(100 * time.Millisecond).String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	return s
}
