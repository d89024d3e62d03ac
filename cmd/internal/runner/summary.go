package runner

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"robotsproxy/policy/audit"
	"robotsproxy/policy/explain"
	"robotsproxy/policy/explain/humanize"
)

// maxSummary is how many hosts, and how many rules, are named one by one.
const maxSummary = 20

// printSummary says what has happened behind a run. Hosts, rules and reasons
// are strangers' words and are printed with care.
func printSummary(w io.Writer, s audit.Summary, auditFile string) {
	fmt.Fprintf(w, "robotsproxy: %s, %d allowed, %d blocked", count(s.Allowed+s.Blocked+s.ClientLeft, "request"), s.Allowed, s.Blocked)
	if s.ClientLeft > 0 {
		fmt.Fprintf(w, ", %d given up by the client", s.ClientLeft)
	}
	fmt.Fprintf(w, ", waited %s\n", seconds(s.Waited))
	printHosts(w, s.Hosts)
	printRules(w, s.Rules)
	if s.StoreAway > 0 {
		were := "were"
		if s.StoreAway == 1 {
			were = "was"
		}
		fmt.Fprintf(w, "robotsproxy: %s %s paced alone, and slower, since the store in store.redis was away: robotsproxy doctor says why\n", count(s.StoreAway, "request"), were)
	}
	fmt.Fprintf(w, "robotsproxy: audit in %s\n", humanize.Printable(auditFile))
}

// printHosts has those first that were asked most.
func printHosts(w io.Writer, hosts []audit.HostSummary) {
	hosts = slices.SortedFunc(slices.Values(hosts), func(a, b audit.HostSummary) int {
		return cmp.Or(cmp.Compare(b.Allowed+b.Blocked+b.ClientLeft, a.Allowed+a.Blocked+a.ClientLeft), cmp.Compare(a.Host, b.Host))
	})
	shown := hosts[:min(len(hosts), maxSummary)]
	var name, allowed, blocked, left int // columns
	for _, h := range shown {
		name = max(name, utf8.RuneCountInString(humanize.Printable(h.Host)))
		allowed, blocked = max(allowed, digits(h.Allowed)), max(blocked, digits(h.Blocked))
		if h.ClientLeft > 0 {
			left = max(left, digits(h.ClientLeft))
		}
	}
	for _, h := range shown {
		fmt.Fprintf(w, "  %-*s  %*d allowed  %*d blocked", name, humanize.Printable(h.Host), allowed, h.Allowed, blocked, h.Blocked)
		if left > 0 {
			fmt.Fprintf(w, "  %*d given up", left, h.ClientLeft)
		}
		fmt.Fprintf(w, "  waited %s\n", seconds(h.Waited))
	}
	if more := len(hosts) - len(shown); more > 0 {
		fmt.Fprintf(w, "  and %s\n", count(int64(more), "more host"))
	}
}

// printRules has those first that blocked most, as a Summary does.
func printRules(w io.Writer, rules []audit.RuleSummary) {
	shown := rules[:min(len(rules), maxSummary)]
	var times, name int // columns
	for _, r := range shown {
		times, name = max(times, digits(r.Count)), max(name, utf8.RuneCountInString(humanize.Printable(r.Host)))
	}
	for _, r := range shown {
		fmt.Fprintf(w, "  blocked %*d  at %-*s  by %s\n", times, r.Count, name, humanize.Printable(r.Host), cause(r))
	}
	if more := len(rules) - len(shown); more > 0 {
		fmt.Fprintf(w, "  and %s\n", count(int64(more), "more rule"))
	}
}

// count is a number of things, whose name takes an s for more than one.
func count(n int64, thing string) string {
	if n != 1 {
		thing += "s"
	}
	return fmt.Sprintf("%d %s", n, thing)
}

func digits(n int64) int { return len(strconv.FormatInt(n, 10)) }

// cause is the rule as robots.txt has it, or the reason where no rule decided.
func cause(r audit.RuleSummary) string {
	if r.Line > 0 {
		return explain.RuleText(false, r.Rule, r.Line)
	}
	return humanize.Printable(r.Reason)
}

// seconds is a duration as people want it: to the tenth of a second, without noughts at its end.
func seconds(d time.Duration) string {
	s := d.Round(100 * time.Millisecond).String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	return s
}
