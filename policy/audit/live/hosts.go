package live

import (
	"cmp"
	"container/list"
	"hash/maphash"
	"slices"
	"strings"
	"sync"
	"time"

	"robotsproxy/policy/audit"
)

// A Host is what has been decided for the requests to one.
type Host struct {
	Host             string
	Allowed, Blocked int64
	Waited           time.Duration // by all of them together
	Last             time.Time     // when the last of them came
}

// A Cause is a rule, or where none decided a reason, that has decided requests of a host.
type Cause struct {
	Host     string // "": of requests of which none could be made out
	Robots   string // the URL of the robots.txt that the rule is in, as Clip gives it; "" where no rule decided
	Rule     string // the pattern, as written, likewise; "" where none decided
	Line     int    // of Robots; zero where none decided
	Reason   string
	Decision string // allow or block
	Count    int64
	Last     time.Time // when the last such request came
}

// maxText bounds what is kept of an address or a rule, in octets: a line of a robots.txt
// may have 16 KiB, and there are as many causes as hosts times rules.
const maxText = 256

// Clip gives what a Cause has of an address or a rule: so much as is kept of it.
func Clip(text string) string { return text[:min(len(text), maxText)] }

// shards are so many that to look at all the hosts of one holds up requests for less
// than a millisecond.
const shards = 32

// A table has the hosts that were asked for last, each in the shard of its name.
type table struct {
	seed     maphash.Seed
	maxRules int
	shards   [shards]shard
	hostless shard // of requests whose host could not be made out, as one that is called ""
}

type shard struct {
	mu     sync.Mutex // guards what follows
	max    int
	byName map[string]*list.Element
	recent list.List // of *host, the one asked for last in front
}

type host struct {
	Host
	causes []Cause // Host in them is empty
}

func (t *table) begin(maxHosts, maxRules int) {
	t.seed, t.maxRules = maphash.MakeSeed(), maxRules
	for i := range t.shards {
		t.shards[i].max = max(1, maxHosts/shards)
		t.shards[i].byName = map[string]*list.Element{}
	}
	t.hostless.max, t.hostless.byName = 1, map[string]*list.Element{}
}

func (t *table) shard(name string) *shard { return &t.shards[maphash.String(t.seed, name)%shards] }

func (t *table) count(r *audit.Record) {
	name := r.Request.Origin.Host
	sh := t.shard(name)
	if name == "" {
		sh = &t.hostless
	}
	sh.mu.Lock()
	defer sh.mu.Unlock()
	h := sh.host(name)
	h.Last = r.Time
	h.Waited += r.Waited
	if r.Blocked() {
		h.Blocked++
	} else {
		h.Allowed++
	}
	h.cause(r, t.maxRules)
}

// host gives that of a name, and forgets the one asked for longest ago where there is
// no more room.
func (sh *shard) host(name string) *host {
	if e := sh.byName[name]; e != nil {
		sh.recent.MoveToFront(e)
		return e.Value.(*host)
	}
	if sh.recent.Len() >= sh.max {
		last := sh.recent.Back()
		delete(sh.byName, sh.recent.Remove(last).(*host).Host.Host)
	}
	h := &host{Host: Host{Host: strings.Clone(name)}} // or it would keep a whole request's head
	sh.byName[h.Host.Host] = sh.recent.PushFront(h)
	return h
}

// cause counts what has decided r. Where there is no more room it takes the place of
// what has decided least.
func (h *host) cause(r *audit.Record, most int) {
	d := &r.Decision
	robots, rule := "", Clip(d.Rule)
	if d.Line > 0 && d.Ruling.Result != nil {
		robots = Clip(d.Ruling.Result.URL)
	}
	decision := d.Verdict.String()
	i := slices.IndexFunc(h.causes, func(c Cause) bool {
		return c.Line == d.Line && c.Reason == string(d.Reason) && c.Decision == decision && c.Rule == rule && c.Robots == robots
	})
	if i < 0 {
		c := Cause{Robots: strings.Clone(robots), Rule: strings.Clone(rule), Line: d.Line, Reason: string(d.Reason), Decision: decision}
		if len(h.causes) < most {
			h.causes = append(h.causes, c)
			i = len(h.causes) - 1
		} else {
			i = least(h.causes)
			h.causes[i] = c
		}
	}
	h.causes[i].Count++
	h.causes[i].Last = r.Time
}

// least is which has decided least, and of these the one whose last request is the oldest.
func least(causes []Cause) (i int) {
	for j, c := range causes {
		if n := cmp.Compare(c.Count, causes[i].Count); n < 0 || n == 0 && c.Last.Before(causes[i].Last) {
			i = j
		}
	}
	return i
}

func (t *table) hosts() []Host {
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

// one gives a host and a copy of its causes.
func (t *table) one(name string) (Host, []Cause, bool) {
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

// blockers gives those that have blocked most.
func (t *table) blockers(most int) []Cause {
	all := mostFrequent(t.hostless.blockers(nil), most)
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
			if c.Decision == "block" {
				c.Host = h.Host.Host
				to = append(to, c)
			}
		}
	}
	return to
}

// mostFrequent sorts, and leaves at most so many.
func mostFrequent(causes []Cause, most int) []Cause {
	slices.SortFunc(causes, func(a, b Cause) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), b.Last.Compare(a.Last), cmp.Compare(a.Host, b.Host),
			cmp.Compare(a.Robots, b.Robots), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Reason, b.Reason))
	})
	return causes[:min(max(0, most), len(causes))]
}
