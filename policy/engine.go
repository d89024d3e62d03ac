package policy

import (
	"context"
	"errors"
	"fmt"
	"time"

	"robotsproxy/policy/pace"
	"robotsproxy/robots"
	"robotsproxy/robots/cache"
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

// Readings says in which forms the engine judges a path.
type Readings uint8

// These Readings there are.
const (
	ReadingsOfDialect Readings = iota // those of the dialect, see robots.Dialect.Literal
	AllReadings                       // as it was sent, and as servers may read it: see Form
	LiteralReadings                   // as it was sent, and without dot segments
)

// A Book knows what the robots.txt of each origin says now; [cache.Cache] is one.
type Book interface {
	Lookup(ctx context.Context, q cache.Query, d robots.Dialect) (*cache.Entry, error)
}

// Options make an Engine.
type Options struct {
	Book          Book           // required
	Dialect       robots.Dialect // zero: the standard dialect
	Readings      Readings       // zero: those of the dialect
	Hosts         []Host         // what is different for some hosts; of those that fit, the first that is in force counts
	Clients       []Client       // who may come in; none: everybody, under its address
	Open          bool           // strangers may come in beside Clients
	ProductToken  string         // takes every client for this token; "": from its User-Agent header
	FetchPerToken bool           // robots.txt is fetched with the client's product token, and its outcome kept for that token; false: with the proxy's own User-Agent, once for all clients
	Require       Require        // what a client has to say of itself; zero: nothing
	MaxCrawlDelay time.Duration  // zero: ten seconds
	OverMax       OverMax        // zero: Clamp
	Pace          pace.Limits    // for every host; Key, CrawlDelay, Client, AssetBurst and Unshared are filled in for each request
	PerDomain     bool           // the hosts of one registrable domain share a pace; false: each has its own
}

// An Engine decides. Make one with New.
type Engine struct {
	o       Options
	gate    *gate
	members map[string]*member // Options.Clients by name
	left    map[string]*quota  // of names that are not among them, but were, and have sent something that day
	hosts   hosts
	fixed   []string // the configured product token alone, or nil
	agents  agents
}

// New checks the options and makes an Engine.
func New(o Options) (*Engine, error) { return newEngine(o, nil) }

// Renew makes an Engine of other Options that goes on where e is: what clients of
// the same name have sent today counts on, and who has logged in with a password
// that is the same still need not have it checked again. e stays as it is.
func (e *Engine) Renew(o Options) (*Engine, error) { return newEngine(o, e) }

func newEngine(o Options, before *Engine) (*Engine, error) {
	if o.Book == nil {
		return nil, errors.New("policy: no book of robots.txt files")
	}
	if o.Dialect == (robots.Dialect{}) {
		o.Dialect = robots.Standard()
	}
	if o.Readings > LiteralReadings {
		return nil, errors.New("policy: unknown readings")
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
	left := map[string]*quota{}
	if before != nil {
		gate.goOn(before.gate)
		left = before.counted(time.Now())
	}
	members, err := newMembers(o.Clients, left)
	if err != nil {
		return nil, fmt.Errorf("policy: %w", err)
	}
	hosts, err := newHosts(o.Hosts)
	if err != nil {
		return nil, fmt.Errorf("policy: %w", err)
	}
	for name := range members {
		delete(left, name)
	}
	return &Engine{o: o, gate: gate, members: members, left: left, hosts: hosts, fixed: alone(o.ProductToken)}, nil
}

// A matter is what the configuration has for one request.
type matter struct {
	member *member // who asks; nil: nobody of Options.Clients
	entry  *Host   // for the host; nil: there is none
	tokens []string
	source TokenSource
}

func (e *Engine) matter(r *Request) matter {
	m := matter{member: e.members[r.Client], entry: e.hosts.entry(r.Origin.Host)}
	m.tokens, m.source = e.tokens(m.member, r.UserAgent)
	return m
}

func (m *matter) treatment() Treatment {
	if m.entry == nil {
		return Enforce
	}
	return m.entry.Robots
}

// dialect is the one that robots.txt is read under.
func (e *Engine) dialect(m *member) robots.Dialect {
	if m != nil && m.Dialect != (robots.Dialect{}) {
		return m.Dialect
	}
	return e.o.Dialect
}

// Decide judges one request. It may wait for the origin's robots.txt to be
// fetched, and gives up when ctx ends. It never returns an error: trouble is a
// refusal with Err.
func (e *Engine) Decide(ctx context.Context, r Request) Decision {
	m := e.matter(&r)
	var d Decision
	switch {
	case e.decided(&d, &r, &m):
		return d
	case robots.IsRobotsTxt(r.PathQuery):
		// RFC 9309 2.2.2: the /robots.txt URI is implicitly allowed. RobotsTxt gives the Crawl-delay.
		d.Verdict, d.Reason = Allow, ReasonRobotsTxt
		d.Pace.Unshared = true // the proxy may just have fetched the file itself
		return d
	case m.treatment() == Ignore:
		d.Verdict, d.Reason = Allow, ReasonOverride
		return d
	}
	g := e.ask(ctx, &r, &m, &d)
	if d.Verdict != Allow || d.Ruling.Outcome != cache.Rules {
		return d
	}
	j := match(g, &r, e.literal(&m, e.dialect(m.member)))
	d.Rule, d.Line = j.Rule, j.Line
	if j.form != 0 && (j.Rule != "" || j.GaveUp) { // else no form decided
		d.Form, d.Read = j.form, j.asked
	}
	d.Reason = ReasonNoRule
	switch {
	case j.GaveUp:
		d.Reason = ReasonTooComplex
	case j.Rule != "":
		d.Reason = ReasonRule
	}
	if !j.Allow {
		d.Verdict = Refuse
	}
	if !j.GaveUp {
		d.Usage = g.ContentUsage(j.asked)
	}
	return d
}

// literal reports whether a request is judged only as it was sent and without dot segments.
// The entry for the host decides, else the options, else the dialect.
func (e *Engine) literal(m *matter, d robots.Dialect) bool {
	r := e.o.Readings
	if m.entry != nil && m.entry.Readings != ReadingsOfDialect {
		r = m.entry.Readings
	}
	if r == ReadingsOfDialect {
		return d.Literal
	}
	return r == LiteralReadings
}

// DecideTunnel judges a tunnel that stays closed to us: it may be made unless
// the whole site is disallowed for this client. All that is known of that is
// the head of its CONNECT.
func (e *Engine) DecideTunnel(ctx context.Context, r Request) Decision {
	m := e.matter(&r)
	var d Decision
	switch {
	case e.decided(&d, &r, &m):
		return d
	case m.treatment() == Ignore:
		d.Verdict, d.Reason = Allow, ReasonOverride
		return d
	}
	g := e.ask(ctx, &r, &m, &d)
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

// DecideConnect judges a tunnel that will be opened. Who asks, and for what, is
// said by the requests in it; so it may be made unless an entry denies the host.
func (e *Engine) DecideConnect(r Request) Decision {
	m := e.matter(&r)
	d := Decision{Verdict: Allow, Reason: ReasonTunnel}
	e.begin(&d, &r, &m)
	if m.treatment() == Deny {
		d.Verdict, d.Reason = Refuse, ReasonDenied
	}
	return d
}

// decided begins a Decision with what is known before robots.txt is asked, and
// says whether that decides: a client that does not say who it is, a host that
// is denied.
func (e *Engine) decided(d *Decision, r *Request, m *matter) bool {
	e.begin(d, r, m)
	if d.Err = e.unmet(r); d.Err != nil {
		d.Reason = ReasonIdentity
		return true
	}
	if m.treatment() == Deny {
		d.Verdict, d.Reason = Refuse, ReasonDenied
		return true
	}
	return false
}

// query gives the cache.Query for the robots.txt that a request is judged by.
func (e *Engine) query(r *Request, m *matter) cache.Query {
	q := cache.Query{Origin: r.Origin, Client: ShareKey(r.Client)}
	if e.o.FetchPerToken {
		q.Token = first(m.tokens)
	}
	return q
}

// FetchLimits gives the limits of the GETs that fetches of robots.txt send to an origin,
// whichever client causes them. They have no Crawl-delay: the file is not known yet.
func (e *Engine) FetchLimits(o robots.Origin) pace.Limits {
	var d Decision
	e.begin(&d, &Request{Origin: o}, &matter{entry: e.hosts.entry(o.Host)})
	return d.Pace
}

// RobotsTxt gives what the robots.txt of a request's origin says now, and the name of the
// dialect in which it is read, and enters the file's Crawl-delay in limits, which are those of
// a request for robots.txt itself. It fetches the file if that is not known. The Ruling is zero
// if the host's robots.txt is not asked, or ctx ends first.
func (e *Engine) RobotsTxt(ctx context.Context, r Request, limits *pace.Limits) (_ cache.Ruling, dialect string) {
	m := e.matter(&r)
	if m.treatment() != Enforce {
		return cache.Ruling{}, ""
	}
	d := e.dialect(m.member)
	entry, err := e.o.Book.Lookup(ctx, e.query(&r, &m), d)
	if err != nil {
		return cache.Ruling{}, ""
	}
	ruling := entry.Under(d)
	if ruling.Outcome == cache.Rules {
		given, ok := e.o.OverMax.Keep(ruling.File.For(m.tokens...).CrawlDelay(), e.o.MaxCrawlDelay)
		if !ok {
			given = e.o.MaxCrawlDelay // the file may be fetched all the same
		}
		delay(limits, given)
	}
	return ruling, d.Name
}

// Query gives the cache.Query for the robots.txt that Decide judges a request by.
func (e *Engine) Query(r Request) cache.Query {
	m := e.matter(&r)
	return e.query(&r, &m)
}

// ask finds the file and the group that apply. It leaves a refusal in d, or that
// the request is allowed as far as the file's existence and its Crawl-delay go.
func (e *Engine) ask(ctx context.Context, r *Request, m *matter, d *Decision) robots.Group {
	dialect := e.dialect(m.member)
	d.Dialect = dialect.Name
	entry, err := e.o.Book.Lookup(ctx, e.query(r, m), dialect)
	if err != nil {
		d.Reason, d.Err = ReasonUnreachable, err
		if ctx.Err() != nil {
			d.Reason = ReasonClient
		}
		return robots.Group{}
	}
	d.Ruling = entry.Under(dialect)
	d.Err = d.Ruling.Err
	switch d.Ruling.Outcome {
	case cache.NoConnection:
		d.Reason = ReasonOrigin
		return robots.Group{}
	case cache.NoFile:
		d.Verdict, d.Reason = Allow, ReasonNoFile
		return robots.Group{}
	case cache.Rules:
	default:
		d.Reason = ReasonUnreachable // RFC 9309 2.3.1.4: unreachable means no access at all
		return robots.Group{}
	}
	g := d.Ruling.File.For(m.tokens...)
	d.Verdict, d.Group, d.Token = Allow, g.Name(), g.Token()
	d.Asked, d.Signals = g.CrawlDelay(), g.ContentSignals()
	given, ok := e.o.OverMax.Keep(d.Asked, e.o.MaxCrawlDelay)
	delay(&d.Pace, given)
	if !ok {
		d.Verdict, d.Reason = Refuse, ReasonCrawlDelay
	}
	return g
}

// begin fills in what the configuration has for a request: the entry for its host,
// and its limits before a Crawl-delay is known.
func (e *Engine) begin(d *Decision, r *Request, m *matter) {
	d.Token = first(m.tokens)
	d.Pace = e.o.Pace
	d.Pace.Key = e.PaceKey(r.Origin.Host)
	if m.entry != nil {
		d.Entry, d.EntryReason = m.entry.Match, m.entry.Reason
	}
	switch {
	case m.member != nil:
		adapt(&d.Pace, m.entry, &m.member.Client, r.Dest)
	case m.entry != nil:
		adapt(&d.Pace, m.entry, nil, r.Dest)
	}
}
