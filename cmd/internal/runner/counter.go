package runner

import (
	"cmp"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"robotsproxy/cmd/internal/daemon"
	"robotsproxy/policy"
	"robotsproxy/policy/audit"
	"robotsproxy/policy/explain"
	"robotsproxy/policy/pace"
)

// maxCounted bounds how many hosts, and how many causes, a counter counts apart. It counts
// later ones under the name others.
const (
	maxCounted = 10_000
	others     = "(others)"
)

// noHost is the name under which requests without a host are counted.
const noHost = "(no host)"

// noticed is the wait from which a summary names the rate as its cause.
const noticed = 100 * time.Millisecond

// A counter counts Records by host, and those of requests that were not allowed also by cause. The
// zero counter is ready for use.
type counter struct {
	mu    sync.Mutex
	total summary
	hosts map[string]*hostSummary

	// causes has the number of requests by a cause whose Count is zero.
	causes map[causeSummary]int64
}

// outcomeCounts counts requests by what became of them. The index is a [policy.Outcome].
type outcomeCounts [policy.Deferred + 1]int64

// total returns the number of all requests.
func (o *outcomeCounts) total() (n int64) {
	for _, of := range o {
		n += of
	}
	return n
}

// A summary is the result of a counter.
type summary struct {
	Outcomes    outcomeCounts
	LongestWait time.Duration

	// StoreAway counts requests that were paced without the shared store.
	StoreAway int64

	// Unreached counts requests to hosts without an address or a connection.
	Unreached int64

	// NotEnforced counts requests that were not allowed, and sent nevertheless (mode: monitor).
	NotEnforced int64

	// Hosts are sorted by name.
	Hosts []hostSummary

	// Causes are sorted by Count, the highest first.
	Causes []causeSummary
}

// hasCause reports whether err, which causeOf returns as it is, is among the causes.
func (s *summary) hasCause(err error) bool {
	return slices.ContainsFunc(s.Causes, func(c causeSummary) bool { return c.Text == err.Error() })
}

// A hostSummary counts the requests to one host.
type hostSummary struct {
	Host        string
	Outcomes    outcomeCounts
	LongestWait time.Duration

	// HTTPS says that one of the requests came over HTTPS.
	HTTPS bool

	// Asked is a Crawl-delay that was shortened, and Sent the interval that was kept instead; zero: none was shortened.
	Asked, Sent time.Duration

	// Rate, in requests per second, is what alone delayed a request; zero: it delayed none.
	Rate float64
}

// setPace sets what limited the pace of a request that took a slot.
func (h *hostSummary) setPace(r *audit.Record) {
	if !r.Slot || r.Decision.Reason == policy.ReasonRobotsTxt {
		return
	}
	l := &r.Decision.Pace
	every := l.Interval()
	if r.Decision.Asked > every {
		h.Asked, h.Sent = r.Decision.Asked, every
	}
	if r.Waited >= noticed && every > max(l.CrawlDelay, r.Slowed) && l.Client == (pace.Rate{}) && r.BackOff == 0 && !r.StoreAway {
		h.Rate = l.PerSecond
	}
}

// A causeSummary counts the requests to one host that were not allowed, or not sent, for the same cause.
type causeSummary struct {
	Host    string
	Outcome policy.Outcome

	// Rule is the rule of robots.txt that decided, and Line its line, from 1; zero: no rule decided.
	Rule string
	Line int

	// Text says what decided where no rule did.
	Text  string
	Count int64
}

// Write counts a record. It never fails.
func (c *counter) Write(r *audit.Record) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.hosts == nil {
		c.hosts, c.causes = map[string]*hostSummary{}, map[causeSummary]int64{}
	}
	h := c.host(hostOf(r))
	h.LongestWait, c.total.LongestWait = max(h.LongestWait, r.Waited), max(c.total.LongestWait, r.Waited)
	h.HTTPS = h.HTTPS || r.Request.Origin.Scheme == "https" && r.Request.Method != http.MethodConnect
	h.setPace(r)
	if r.StoreAway {
		c.total.StoreAway++
	}
	if r.Monitor && r.Blocked() {
		c.total.NotEnforced++
	}
	unreached := daemon.Unreached(r)
	if unreached {
		c.total.Unreached++
	}
	outcome := r.Outcome()
	h.Outcomes[outcome]++
	c.total.Outcomes[outcome]++
	if outcome == policy.Allowed && !unreached {
		return nil
	}
	k := causeSummary{Host: h.Host, Outcome: outcome}
	if d := &r.Decision; outcome != policy.Allowed && explain.ByRobots(d.Reason) && d.Line > 0 {
		k.Rule, k.Line = strings.Clone(d.Rule), d.Line
	} else {
		k.Text = causeOf(r)
	}
	if _, ok := c.causes[k]; !ok && len(c.causes) >= maxCounted {
		k = causeSummary{Host: others, Outcome: outcome, Text: reasonCause(r.Decision.Reason)}
	}
	c.causes[k]++
	return nil
}

// hostOf returns the name under which the request is counted: its host, or the destination of a redirected
// connection that carried no request.
func hostOf(r *audit.Record) string {
	if host := r.Request.Origin.Host; host != "" {
		return host
	}
	if r.Decision.Reason == policy.ReasonConfined && r.Target != "" {
		return r.Target
	}
	return noHost
}

// host returns the counts of a host, or of others.
func (c *counter) host(name string) *hostSummary {
	if c.hosts[name] == nil && len(c.hosts) >= maxCounted {
		name = others
	}
	if c.hosts[name] == nil {
		// The name is part of the request header, which it would keep in memory.
		name = strings.Clone(name)
		c.hosts[name] = &hostSummary{Host: name}
	}
	return c.hosts[name]
}

// counts returns what became of the requests so far. It costs less than summary.
func (c *counter) counts() outcomeCounts {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.total.Outcomes
}

// summary returns the counts so far.
func (c *counter) summary() summary {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.total
	for _, name := range slices.Sorted(maps.Keys(c.hosts)) {
		s.Hosts = append(s.Hosts, *c.hosts[name])
	}
	for k, n := range c.causes {
		k.Count = n
		s.Causes = append(s.Causes, k)
	}
	slices.SortFunc(s.Causes, func(a, b causeSummary) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Host, b.Host), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Text, b.Text))
	})
	return s
}
