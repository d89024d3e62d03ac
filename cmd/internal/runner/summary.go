package runner

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"robotsproxy/policy"
	"robotsproxy/policy/explain"
	"robotsproxy/policy/explain/humanize"
)

// maxSummary is how many hosts, and how many causes, are named one by one.
const maxSummary = 20

// printSummary prints what became of the requests of a run, whose pace.requests_per_second was rate. Hosts,
// rules and causes are strangers' words: it prints them escaped.
func printSummary(w io.Writer, s summary, rate float64, auditFile string) {
	fmt.Fprintf(w, "robotsproxy: %s: %s, longest wait %s\n",
		count(s.Outcomes.total(), "request"), outcomesText(s.Outcomes), humanize.Duration(s.LongestWait))
	printHosts(w, s.Hosts)
	printCauses(w, s.Causes)
	printPace(w, s.Hosts, rate)
	if s.StoreAway > 0 {
		were := "were"
		if s.StoreAway == 1 {
			were = "was"
		}
		fmt.Fprintf(w, "robotsproxy: %s %s paced alone, at a lower rate, because the shared store (store.redis) was unavailable: "+
			"run robotsproxy doctor to see why\n", count(s.StoreAway, "request"), were)
	}
	fmt.Fprintf(w, "robotsproxy: audit in %s\n", humanize.Printable(auditFile))
}

// outcomes are the outcomes in the order in which they are shown.
var outcomes = []policy.Outcome{policy.Allowed, policy.Disallowed, policy.Deferred, policy.Failed}

// alwaysShown is how many of outcomes are always shown. The others are shown if there are any.
const alwaysShown = 2

// outcomesText returns what became of requests: "120 allowed, 3 disallowed".
func outcomesText(n outcomeCounts) string {
	var parts []string
	for i, o := range outcomes {
		if i < alwaysShown || n[o] > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n[o], o))
		}
	}
	return strings.Join(parts, ", ")
}

// printHosts prints the hosts with the most requests first.
func printHosts(w io.Writer, hosts []hostSummary) {
	hosts = slices.SortedFunc(slices.Values(hosts), func(a, b hostSummary) int {
		return cmp.Or(cmp.Compare(b.Outcomes.total(), a.Outcomes.total()), cmp.Compare(a.Host, b.Host))
	})
	shown := hosts[:min(len(hosts), maxSummary)]
	// These are the widest of their columns.
	name, most := 0, outcomeCounts{}
	for _, h := range shown {
		name = max(name, utf8.RuneCountInString(humanize.Printable(h.Host)))
		for o, n := range h.Outcomes {
			most[o] = max(most[o], n)
		}
	}
	for _, h := range shown {
		fmt.Fprintf(w, "  %-*s", name, humanize.Printable(h.Host))
		for i, o := range outcomes {
			if i < alwaysShown || most[o] > 0 {
				fmt.Fprintf(w, "  %*d %s", digits(most[o]), h.Outcomes[o], o)
			}
		}
		fmt.Fprintf(w, "  longest wait %s\n", humanize.Duration(h.LongestWait))
	}
	if more := len(hosts) - len(shown); more > 0 {
		fmt.Fprintf(w, "  and %s\n", count(int64(more), "more host"))
	}
}

// printCauses prints why requests were not allowed or not sent, in the order of a summary.
func printCauses(w io.Writer, causes []causeSummary) {
	shown := causes[:min(len(causes), maxSummary)]
	// These are the widths of the columns.
	word, times := 0, 0
	for _, c := range shown {
		word, times = max(word, len(c.Outcome.String())), max(times, digits(c.Count))
	}
	for _, c := range shown {
		fmt.Fprintf(w, "  %-*s  %*d at %s%s\n", word, c.Outcome, times, c.Count, humanize.Printable(c.Host), cause(c))
	}
	if more := len(causes) - len(shown); more > 0 {
		fmt.Fprintf(w, "  and %s\n", count(int64(more), "more cause"))
	}
}

// printPace prints which hosts ask for a longer Crawl-delay than was kept, and whether rate delayed requests.
func printPace(w io.Writer, hosts []hostSummary, rate float64) {
	shortened, limited := 0, false
	for _, h := range hosts {
		limited = limited || h.Rate == rate
		if h.Asked == 0 {
			continue
		}
		if shortened++; shortened <= maxSummary {
			fmt.Fprintf(w, "robotsproxy: %s %s\n", humanize.Printable(h.Host), explain.Shortened(h.Asked, h.Sent))
		}
	}
	if more := shortened - maxSummary; more > 0 {
		fmt.Fprintf(w, "robotsproxy: and %s with a shorter Crawl-delay than the host asks for\n", count(int64(more), "more host"))
	}
	if limited {
		requests := "requests"
		if rate == 1 {
			requests = "request"
		}
		fmt.Fprintf(w, "robotsproxy: paced at %g %s/s: pace.requests_per_second\n", rate, requests)
	}
}

// count is a number of things, whose name takes an s for more than one.
func count(n int64, thing string) string {
	if n != 1 {
		thing += "s"
	}
	return fmt.Sprintf("%d %s", n, thing)
}

// digits returns how many digits n has.
func digits(n int64) int { return len(strconv.FormatInt(n, 10)) }

// cause returns the rule in the form of robots.txt, or another cause of the decision, to be
// appended to a host.
func cause(c causeSummary) string {
	if c.Line > 0 {
		return " by " + explain.RuleText(false, c.Rule, c.Line)
	}
	return ": " + humanize.Prose(c.Text)
}
