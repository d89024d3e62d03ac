package live

import (
	"cmp"
	"container/list"
	"hash/maphash"
	"slices"
	"strings"
	"sync"
	"time"

	"robotsproxy/policy"
	"robotsproxy/policy/audit"
	"robotsproxy/policy/explain"
)

// A Host has the counts of the requests to one host.
type Host struct {
	Host   string
	Counts Counts

	// Waited is the sum of the waits of all requests.
	Waited time.Duration

	// Last is when the last request arrived.
	Last time.Time

	// Asked is the Crawl-delay that the site asked for, as of the last page that was paced; zero: none. Paced is
	// pace.Limits.Interval of that page.
	Asked, Paced time.Duration
}

// A Cause has decided requests to a host: a rule, a statement about uses of the content, or otherwise a
// reason.
type Cause struct {
	// Host is the host; "": the requests have no valid host.
	Host string

	// Robots is the URL of the robots.txt of Line, cut by Clip; "": there is no Line.
	Robots string

	// Rule is the pattern or the statement as written, cut by Clip; "": a reason alone decided.
	Rule string

	// Line is that of Robots; zero: no line of it decided.
	Line   int
	Reason string

	// Decision is "allow" or "block".
	Decision string
	Class    Class
	Count    int64

	// Last is when the last of these requests arrived.
	Last time.Time
}

// maxText bounds a URL or a rule, in bytes: a line of a robots.txt may have 16 KiB, and there are
// as many Causes as hosts times rules.
const maxText = 256

// Clip truncates a URL or a rule to the length of a Cause.
func Clip(text string) string { return text[:min(len(text), maxText)] }

// shards is the number of shards. With so many, reading all hosts of one holds up requests for
// less than a millisecond.
const shards = 32

// A hostTable has the hosts that were requested last, each in the shard of its name.
type hostTable struct {
	seed     maphash.Seed
	maxRules int
	shards   [shards]shard

	// noHost has the requests without a valid host, as a host named "".
	noHost shard
}

type shard struct {
	// mu guards what follows.
	mu     sync.Mutex
	max    int
	byName map[string]*list.Element

	// recent is a list of *host, the last requested in front.
	recent list.List
}

type host struct {
	Host

	// causes have an empty Host.
	causes []Cause
}

func (t *hostTable) init(maxHosts, maxRules int) {
	t.seed, t.maxRules = maphash.MakeSeed(), maxRules
	for i := range t.shards {
		t.shards[i].max = max(1, maxHosts/shards)
		t.shards[i].byName = map[string]*list.Element{}
	}
	t.noHost.max, t.noHost.byName = 1, map[string]*list.Element{}
}

func (t *hostTable) shard(name string) *shard { return &t.shards[maphash.String(t.seed, name)%shards] }

func (t *hostTable) count(r *audit.Record, c Class) {
	name := r.Request.Origin.Host
	sh := t.shard(name)
	if name == "" {
		sh = &t.noHost
	}
	sh.mu.Lock()
	defer sh.mu.Unlock()
	h := sh.host(name)
	// Records come when their requests end.
	if r.Time.After(h.Last) {
		h.Last = r.Time
	}
	h.Waited += r.Waited
	h.Counts[c]++
	if r.Slot && r.Decision.Reason != policy.ReasonRobotsTxt {
		h.Asked, h.Paced = r.Decision.Asked, r.Decision.Pace.Interval()
	}
	h.cause(r, c, t.maxRules)
}

// host returns the host of a name. If it is new and the shard is full, the host that was not
// requested for longest is removed.
func (sh *shard) host(name string) *host {
	if e := sh.byName[name]; e != nil {
		sh.recent.MoveToFront(e)
		return e.Value.(*host)
	}
	if sh.recent.Len() >= sh.max {
		last := sh.recent.Back()
		delete(sh.byName, sh.recent.Remove(last).(*host).Host.Host)
	}
	// The clone does not keep the whole request header in memory.
	h := &host{Host: Host{Host: strings.Clone(name)}}
	sh.byName[h.Host.Host] = sh.recent.PushFront(h)
	return h
}

// cause counts what has decided r. If there are too many causes, it replaces the least frequent
// one.
func (h *host) cause(r *audit.Record, class Class, most int) {
	d := &r.Decision
	robots, rule, line := "", Clip(d.Rule), d.Line
	if !explain.ByRobots(d.Reason) {
		rule, line = "", 0
	}
	if d.Reason == policy.ReasonUsage {
		if by := d.Forbidding(); by.Source != "" {
			rule, line = Clip(by.String()), by.Line
		}
	}
	if line > 0 && d.Ruling.Result != nil {
		robots = Clip(d.Ruling.Result.URL)
	}
	i := slices.IndexFunc(h.causes, func(c Cause) bool {
		return c.Line == line && c.Reason == string(d.Reason) && c.Class == class && c.Rule == rule && c.Robots == robots
	})
	if i < 0 {
		c := Cause{
			Robots: strings.Clone(robots), Rule: strings.Clone(rule), Line: line,
			Reason: string(d.Reason), Decision: d.Verdict.String(), Class: class,
		}
		if len(h.causes) < most {
			h.causes = append(h.causes, c)
			i = len(h.causes) - 1
		} else {
			i = leastFrequent(h.causes)
			h.causes[i] = c
		}
	}
	by := &h.causes[i]
	by.Count++
	if r.Time.After(by.Last) {
		by.Last = r.Time
	}
}

// leastFrequent returns the index of the least frequent cause, and of several the one whose last
// request is the oldest.
func leastFrequent(causes []Cause) (i int) {
	for j, c := range causes {
		if n := cmp.Compare(c.Count, causes[i].Count); n < 0 || n == 0 && c.Last.Before(causes[i].Last) {
			i = j
		}
	}
	return i
}

func (t *hostTable) hosts() []Host {
	var all []Host
	for i := range t.shards {
		all = t.shards[i].hosts(all)
	}
	slices.SortFunc(all, func(a, b Host) int { return cmp.Or(b.Last.Compare(a.Last), cmp.Compare(a.Host, b.Host)) })
	return all
}

func (sh *shard) hosts(to []Host) []Host {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	for e := sh.recent.Front(); e != nil; e = e.Next() {
		to = append(to, e.Value.(*host).Host)
	}
	return to
}

// host returns a host and a copy of its causes.
func (t *hostTable) host(name string) (Host, []Cause, bool) {
	sh := t.shard(name)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	e := sh.byName[name]
	if e == nil {
		return Host{}, nil, false
	}
	h := e.Value.(*host)
	causes := slices.Clone(h.causes)
	for i := range causes {
		causes[i].Host = name
	}
	return h.Host, causes, true
}

// blockers returns the causes for which most requests were not allowed.
func (t *hostTable) blockers(most int) []Cause {
	all := mostFrequent(t.noHost.blockers(nil), most)
	for i := range t.shards {
		all = mostFrequent(t.shards[i].blockers(all), most)
	}
	return all
}

func (sh *shard) blockers(to []Cause) []Cause {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	for e := sh.recent.Front(); e != nil; e = e.Next() {
		h := e.Value.(*host)
		for _, c := range h.causes {
			if c.Class != Allowed {
				c.Host = h.Host.Host
				to = append(to, c)
			}
		}
	}
	return to
}

// mostFrequent sorts causes, and returns at most so many.
func mostFrequent(causes []Cause, most int) []Cause {
	slices.SortFunc(causes, func(a, b Cause) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), b.Last.Compare(a.Last), cmp.Compare(a.Host, b.Host),
			cmp.Compare(a.Robots, b.Robots), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Reason, b.Reason))
	})
	return causes[:min(max(0, most), len(causes))]
}
