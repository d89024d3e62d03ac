package policy

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"robotsproxy/policy/pace"
	"robotsproxy/robots"
	"robotsproxy/robots/cache"
)

// maxAgents bounds, but for a few, how many User-Agent headers are remembered
// with their product tokens; maxAgentHeader bounds each, in octets.
const (
	maxAgents      = 8192
	maxAgentHeader = 1 << 10
)

// OverMax says what happens to a site that asks for a Crawl-delay above the
// maximum.
type OverMax uint8

// What may be done. The zero value clamps.
const (
	Clamp        OverMax = iota // wait the maximum; what was asked stays in the record
	Honor                       // wait as long as the site asks
	RefuseExcess                // refuse the site's pages
)

// Keep gives the Crawl-delay in force where a site asks for one and most is
// the maximum, and whether the site's pages may be fetched at all.
func (m OverMax) Keep(asked, most time.Duration) (given time.Duration, ok bool) {
	switch {
	case asked <= most || m == Honor:
		return asked, true
	case m == RefuseExcess:
		return asked, false
	}
	return most, true
}

// A Book knows what the robots.txt of each origin says now; [cache.Cache] is one.
type Book interface {
	Lookup(ctx context.Context, o robots.Origin, userAgent string, d robots.Dialect) (*cache.Entry, error)
}

// Options make an Engine.
type Options struct {
	Book          Book           // required
	Dialect       robots.Dialect // zero: the standard dialect
	Clients       []Client       // who may come in; none: everybody, under its address
	Open          bool           // strangers may come in beside Clients
	ProductToken  string         // takes every client for this token; "": from its User-Agent header
	MaxCrawlDelay time.Duration  // zero: ten seconds
	OverMax       OverMax        // zero: Clamp
	Pace          pace.Limits    // for every host; Key and CrawlDelay are filled in for each
}

// An Engine decides. Make one with New.
type Engine struct {
	o        Options
	gate     *gate
	dialects map[string]robots.Dialect // of clients that have one of their own, by name
	fixed    []string                  // the configured product token alone, or nil
	agents   agents
}

// New checks the options and makes an Engine.
func New(o Options) (*Engine, error) {
	if o.Book == nil {
		return nil, errors.New("policy: no book of robots.txt files")
	}
	if o.Dialect == (robots.Dialect{}) {
		o.Dialect = robots.Standard()
	}
	if o.MaxCrawlDelay < 0 {
		return nil, fmt.Errorf("policy: maximum Crawl-delay %v is negative", o.MaxCrawlDelay)
	}
	if o.MaxCrawlDelay == 0 {
		o.MaxCrawlDelay = 10 * time.Second
	}
	gate, err := newGate(o.Clients, o.Open)
	if err != nil {
		return nil, err
	}
	e := &Engine{o: o, gate: gate, dialects: make(map[string]robots.Dialect)}
	for _, c := range o.Clients {
		if c.Dialect != (robots.Dialect{}) {
			e.dialects[c.Name] = c.Dialect
		}
	}
	if o.ProductToken != "" {
		e.fixed = []string{o.ProductToken}
	}
	return e, nil
}

// Decide judges one request. It may wait for the origin's robots.txt to be
// fetched, and gives up when ctx ends. It never returns an error: trouble is a
// refusal with Err.
func (e *Engine) Decide(ctx context.Context, r Request) Decision {
	if robots.IsRobotsTxt(r.PathQuery) {
		// RFC 9309 2.2.2: the /robots.txt URI is implicitly allowed.
		return Decision{Verdict: Allow, Reason: ReasonRobotsTxt, Token: first(e.tokens(r.UserAgent)), Pace: e.Limits(r.Origin)}
	}
	d, g := e.group(ctx, r)
	if d.Verdict != Allow || d.Ruling.Outcome != cache.Rules {
		return d
	}
	v, _ := match(g, r)
	d.Rule, d.Line = v.Rule, v.Line
	d.Reason = ReasonNoRule
	if v.Rule != "" {
		d.Reason = ReasonRule
	}
	if !v.Allow {
		d.Verdict = Refuse
	}
	return d
}

// DecideTunnel judges a tunnel that stays closed to us: it may be made unless
// the whole site is disallowed for this client.
func (e *Engine) DecideTunnel(ctx context.Context, r Request) Decision {
	d, g := e.group(ctx, r)
	if d.Verdict != Allow {
		return d
	}
	d.Reason = ReasonTunnel
	if d.Ruling.Outcome == cache.Rules && g.DisallowsAll() {
		v := g.Match("/")
		d.Verdict, d.Rule, d.Line = Refuse, v.Rule, v.Line
	}
	return d
}

// group finds the file and the group that apply. The Decision is a refusal,
// or allowed as far as the file's existence and its Crawl-delay go.
func (e *Engine) group(ctx context.Context, r Request) (Decision, robots.Group) {
	tokens := e.tokens(r.UserAgent)
	dialect := e.dialect(r.Client)
	d := Decision{Token: first(tokens), Dialect: dialect.Name, Pace: e.Limits(r.Origin)}
	entry, err := e.o.Book.Lookup(ctx, r.Origin, r.UserAgent, dialect)
	if err != nil {
		d.Reason, d.Err = ReasonUnreachable, err
		if ctx.Err() != nil {
			d.Reason = ReasonClient
		}
		return d, robots.Group{}
	}
	d.Ruling = entry.Under(dialect)
	d.Err = d.Ruling.Err
	switch d.Ruling.Outcome {
	case cache.NoConnection:
		d.Reason = ReasonOrigin
		return d, robots.Group{}
	case cache.NoFile:
		d.Verdict, d.Reason = Allow, ReasonNoFile
		return d, robots.Group{}
	case cache.Rules:
	default:
		d.Reason = ReasonUnreachable // RFC 9309 2.3.1.4: unreachable means no access at all
		return d, robots.Group{}
	}
	g := d.Ruling.File.For(tokens...)
	d.Verdict, d.Group, d.Token = Allow, g.Name(), g.Token()
	d.Asked = g.CrawlDelay()
	var ok bool
	if d.Pace.CrawlDelay, ok = e.o.OverMax.Keep(d.Asked, e.o.MaxCrawlDelay); !ok {
		d.Verdict, d.Reason = Refuse, ReasonCrawlDelay
	}
	return d, g
}

// Limits are those of an origin's host before its robots.txt has been asked.
func (e *Engine) Limits(o robots.Origin) pace.Limits {
	l := e.o.Pace
	l.Key = o.Host
	return l
}

// tokens are the product tokens that a client may be known by, the most
// significant first.
func (e *Engine) tokens(userAgent string) []string {
	if e.fixed != nil {
		return e.fixed
	}
	return e.agents.tokens(userAgent)
}

// agents remembers the product tokens of User-Agent headers. When it is full it
// forgets all of them: to read one again costs about a microsecond.
type agents struct {
	known sync.Map // of []string, by header
	n     atomic.Int64
}

func (a *agents) tokens(userAgent string) []string {
	if len(userAgent) > maxAgentHeader {
		userAgent = userAgent[:maxAgentHeader+1] // one more, so that it is seen to be cut
	}
	if t, ok := a.known.Load(userAgent); ok {
		return t.([]string)
	}
	if a.n.Add(1) > maxAgents {
		a.known.Clear()
		a.n.Store(1)
	}
	userAgent = strings.Clone(userAgent) // or it and the tokens would keep a whole request's head
	t := robots.ProductTokens(userAgent)
	a.known.Store(userAgent, t)
	return t
}

func first(tokens []string) string {
	if len(tokens) == 0 {
		return ""
	}
	return tokens[0]
}
