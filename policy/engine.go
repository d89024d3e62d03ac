package policy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"robotsproxy/policy/labels"
	"robotsproxy/policy/pace"
	"robotsproxy/policy/stops"
	"robotsproxy/policy/usage"
	"robotsproxy/robots"
	"robotsproxy/robots/cache"
)

// A Cache returns the current file of an origin. [cache.Cache] implements it.
type Cache interface {
	Lookup(ctx context.Context, q cache.Query, d robots.Dialect) (*cache.Entry, error)
}

// Options make an Engine.
type Options struct {
	// Cache has the robots.txt files; required.
	Cache Cache

	// TDMRep has the tdmrep.json files; nil: none is read.
	TDMRep Cache

	// Dialect is how robots.txt is read; zero: the standard dialect.
	Dialect robots.Dialect

	// Readings are the forms in which paths are matched; zero: those of the dialect.
	Readings Readings

	// Forbidden is what status 401 or 403 for robots.txt means; zero: AllowForbidden.
	Forbidden OnForbidden

	// Hosts has settings for some hosts. The first entry that matches and has not expired applies.
	Hosts []Host

	// Clients may use the proxy; empty: everybody may, and is known by address.
	Clients []Client

	// Labels are those of all requests.
	Labels labels.Set

	// Open lets others than the Clients use the proxy too.
	Open bool

	// ProductToken is the product token of every client; "": that in its User-Agent header.
	ProductToken string

	// FetchPerToken has robots.txt and tdmrep.json fetched with the client's product token, and cached for that token;
	// false: they are fetched with the proxy's own User-Agent, once for all clients.
	FetchPerToken bool

	// Require is how clients must identify themselves; zero: not at all.
	Require Require

	// MaxCrawlDelay is the longest Crawl-delay that is enforced; zero: ten seconds.
	MaxCrawlDelay time.Duration

	// OverMax is what happens if a site asks for more than MaxCrawlDelay; zero: Clamp.
	OverMax OverMax

	// Pace has the limits of every host. The Engine sets Key, BackOffKey, CrawlDelay, Client, AssetBurst and Unshared for
	// each request.
	Pace pace.Limits

	// Usage says for what purposes clients fetch, and whether requests are refused if a site disallows that.
	Usage usage.Policy

	// Quotas counts for several processes, and Used is what one before this one has counted. A Renew keeps the counts of its Engine,
	// and ignores both. Nil: this process counts alone.
	Quotas QuotaStore
	Used   []MeterUse

	// CoolDown says when a client is stopped at a host, if the entry of the host does not; zero: never.
	CoolDown CoolDown

	// CooledDown is called with each stop that a CoolDown begins in this process, in the goroutine of the request; nil: nothing is. A
	// Renew keeps that of its Engine.
	CooledDown func(stops.Stop)

	// FetchHeld says that a robots.txt is fetched also if nothing may be sent to its host, as check does.
	FetchHeld bool

	// Stops has the hosts to which nothing may be sent now; nil: there are none. A Renew keeps those of its Engine.
	Stops *stops.Table

	// PerDomain has the hosts of one registered domain share a pace; false: each has its own.
	PerDomain bool
}

// An Engine decides about requests. Use [New] to make one.
type Engine struct {
	o         Options
	admission *admission

	// clients are Options.Clients by name, and unknown is any other client.
	clients map[string]*clientState
	unknown clientState

	meters    *meterTable
	coolDowns *coolDowns
	hosts     hosts

	// fixedTokens has the configured product token alone; nil: there is none.
	fixedTokens []string
	agents      agentCache
}

// New returns an Engine. It returns an error for invalid options.
func New(o Options) (*Engine, error) { return newEngine(o, nil) }

// Renew returns an Engine with other Options that keeps the state of e: what clients of the same name have used of their
// quotas today, what was used of the budgets of hosts, pauses, cool-downs and the refusals that count for them, and which logins were
// verified, for unchanged passwords. e stays usable.
func (e *Engine) Renew(o Options) (*Engine, error) { return newEngine(o, e) }

func newEngine(o Options, before *Engine) (*Engine, error) {
	if o.Cache == nil {
		return nil, errors.New("policy: no robots.txt cache")
	}
	if o.Readings > LiteralReadings {
		return nil, errors.New("policy: unknown readings")
	}
	if o.Forbidden > RefuseForbidden {
		return nil, errors.New("policy: unknown value of Options.Forbidden")
	}
	if o.MaxCrawlDelay < 0 {
		return nil, fmt.Errorf("policy: maximum Crawl-delay %v is negative", o.MaxCrawlDelay)
	}
	o.Dialect = cmp.Or(o.Dialect, robots.Standard())
	o.MaxCrawlDelay = cmp.Or(o.MaxCrawlDelay, 10*time.Second)
	a, err := newAdmission(o.Clients, o.Open)
	if err != nil {
		return nil, err
	}
	hosts, err := newHosts(o.Hosts, o.Pace, o.CoolDown)
	if err != nil {
		return nil, fmt.Errorf("policy: %w", err)
	}
	clients := make(map[string]*clientState, len(o.Clients))
	for _, c := range o.Clients {
		if c.Labels, err = o.Labels.With(c.Labels); err != nil {
			return nil, fmt.Errorf("policy: client %q: %w", c.Name, err)
		}
		clients[c.Name] = &clientState{c, singleToken(c.ProductToken), cmp.Or(c.Dialect, o.Dialect)}
	}
	if err := o.CoolDown.check(); err != nil {
		return nil, fmt.Errorf("policy: %w", err)
	}
	counts := &meterTable{store: o.Quotas, all: map[string]*meter{}}
	counts.restore(o.Used)
	if o.Stops == nil {
		o.Stops = stops.New()
	}
	cools := newCoolDowns(o.Stops, o.CooledDown)
	if before != nil {
		o.Stops, cools = before.o.Stops, before.coolDowns
		a.keepLogins(before.admission)
		counts = before.meters
		counts.forget(time.Now(), clients)
	}
	return &Engine{
		o: o, admission: a, clients: clients, unknown: clientState{Client: Client{Labels: o.Labels}, dialect: o.Dialect},
		meters: counts, coolDowns: cools, hosts: hosts, fixedTokens: singleToken(o.ProductToken),
	}, nil
}

// A requestConfig is the configuration that applies to one request.
type requestConfig struct {
	// client is Engine.unknown if the client is not one of Options.Clients.
	client *clientState

	// host is the entry of Options.Hosts that applies.
	host appliedEntry

	// tokens are the product tokens of the client, the most significant first, and source is where they are from.
	tokens []string
	source TokenSource
}

func (e *Engine) configFor(r *Request) requestConfig {
	c := requestConfig{client: e.clientState(r.Client), host: e.hosts.of(r)}
	c.tokens, c.source = e.tokens(c.client, r.UserAgent)
	return c
}

// configForHost is configFor for a tunnel, which has no path.
func (e *Engine) configForHost(r Request) requestConfig {
	r.Method = http.MethodConnect
	return e.configFor(&r)
}

// clientState returns the clientState of a client, also of one that is not among Options.Clients.
func (e *Engine) clientState(name string) *clientState {
	if c := e.clients[name]; c != nil {
		return c
	}
	return &e.unknown
}

// Labels returns the labels of a request of a client that asks for further ones, of which the first count. Those of the
// configuration count most. The error says that there are too many.
func (e *Engine) Labels(client string, more ...labels.Set) (all labels.Set, err error) {
	all = e.clientState(client).Labels
	for _, l := range more {
		with, err := all.With(l)
		if err != nil {
			return all, err
		}
		all = with
	}
	return all, nil
}

// Decide decides about one request. It may wait until the origin's robots.txt is fetched,
// or ctx ends. An error is a refusal with Err set.
func (e *Engine) Decide(ctx context.Context, r Request) Decision {
	c := e.configFor(&r)
	var d Decision
	if e.decideEarly(&d, &r, &c) || e.decideHeld(ctx, &d, &r, &c) {
		return d
	}
	if robots.IsRobotsTxt(r.PathQuery) {
		// RFC 9309 2.2.2: the /robots.txt URI is implicitly allowed. RobotsTxt returns the
		// Crawl-delay.
		d.Verdict, d.Reason = Allow, ReasonRobotsTxt
		// The proxy may just have fetched the file itself.
		d.Pace.Unshared = true
		return d
	}
	e.judge(ctx, &d, &r, &c)
	e.applyHold(ctx, &d, &r, &c)
	return d
}

// judge sets in d what robots.txt and the site's statements about uses say.
func (e *Engine) judge(ctx context.Context, d *Decision, r *Request, c *requestConfig) {
	g := e.applyRobots(ctx, r, c, d)
	switch {
	case d.Verdict != Allow:
		return
	case d.Ruling.Meaning != cache.Rules:
		e.applyPreferences(ctx, d, r, c, g, "")
		return
	}
	j := matchForms(g, r, e.countedChanges(c, c.client.dialect))
	d.Rule, d.Line = j.Rule, j.Line
	d.JoinedLine = g.JoinedAgent(j.Line)
	// Without a rule no form decided.
	if j.form != 0 && (j.Rule != "" || j.GaveUp) {
		d.Form, d.Read = j.form, j.path
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
		e.applyPreferences(ctx, d, r, c, g, j.path)
	}
}

// countedChanges returns the changes of a path that count. The entry for the host decides, otherwise the
// options, otherwise the dialect.
func (e *Engine) countedChanges(c *requestConfig, d robots.Dialect) Form {
	switch r := cmp.Or(c.host.Readings, e.o.Readings); {
	case r == LiteralReadings, r == ReadingsOfDialect && d.Literal:
		return literalChanges
	case d.ReservedAsWritten:
		return allChanges
	}
	// Package robots compares escaped punctuation and unescaped punctuation alike.
	return allChanges &^ PunctuationDecoded
}

// RulingOf returns what the robots.txt of an origin means under a dialect and the configuration of its host.
func (e *Engine) RulingOf(entry *cache.Entry, d robots.Dialect) cache.Ruling {
	return e.ruling(entry, d, e.hosts.find(entry.Origin().Host))
}

// ruling is RulingOf with the entry of Options.Hosts for the host.
func (e *Engine) ruling(entry *cache.Entry, d robots.Dialect, host *Host) cache.Ruling {
	r := entry.Under(d)
	if cmp.Or(host.Forbidden, e.o.Forbidden) == RefuseForbidden && r.Meaning == cache.NoFile && r.Err == nil {
		switch status := r.Result.Status; status {
		case http.StatusUnauthorized, http.StatusForbidden:
			r.Meaning, r.Retry = cache.Unreachable, entry.Expires()
			r.Err = fmt.Errorf("fetch %s: status %d, which robots.forbidden treats as unreachable", r.Result.URL, status)
		}
	}
	return r
}

// DecideTunnel decides about a tunnel that is passed through. It is allowed unless
// robots.txt disallows the whole site for this client. r comes from the head of the
// CONNECT.
func (e *Engine) DecideTunnel(ctx context.Context, r Request) (d Decision) {
	c := e.configForHost(r)
	if e.decideEarly(&d, &r, &c) || e.decideHeld(ctx, &d, &r, &c) {
		return d
	}
	defer e.applyHold(ctx, &d, &r, &c)
	g := e.applyRobots(ctx, &r, &c, &d)
	if d.Verdict != Allow {
		return d
	}
	if d.Reason != ReasonOverride {
		d.Reason = ReasonTunnel
	}
	if d.Ruling.Meaning == cache.Rules && g.DisallowsAll() {
		v := g.Match("/")
		d.Verdict, d.Rule, d.Line, d.JoinedLine = Refuse, v.Rule, v.Line, g.JoinedAgent(v.Line)
	}
	e.applyPreferences(ctx, &d, &r, &c, g, "/")
	return d
}

// DecideConnect decides about a tunnel that will be intercepted. It is allowed unless an entry denies
// the host, or the host is paused: the requests in the tunnel are decided about one by one.
func (e *Engine) DecideConnect(r Request) Decision {
	c := e.configForHost(r)
	d := Decision{Verdict: Allow, Reason: ReasonTunnel}
	e.start(&d, &r, &c)
	if c.host.Robots == Deny {
		d.Verdict, d.Reason = Refuse, ReasonDenied
	} else if paused := e.paused(&r); paused != nil {
		d.refuseHeld(paused)
	}
	return d
}

// decideEarly sets in d what does not depend on robots.txt, and reports whether that decides: the client does not identify
// itself as required, or an entry denies the request, or it takes too long to find the entry, or the host is paused.
func (e *Engine) decideEarly(d *Decision, r *Request, c *requestConfig) bool {
	e.start(d, r, c)
	if e.o.Require != RequireNothing {
		d.Err = e.o.Require.unmetBy(e.agents.parse(r.UserAgent), r.From)
	}
	if d.Err != nil {
		d.Reason = ReasonIdentity
		return true
	}
	switch {
	case c.host.Robots == Deny:
		d.Verdict, d.Reason = Refuse, ReasonDenied
	case c.host.tooComplex:
		d.Verdict, d.Reason = Refuse, ReasonTooComplex
	default:
		paused := e.paused(r)
		if paused == nil {
			return false
		}
		d.refuseHeld(paused)
	}
	return true
}

// query returns the cache.Query for the robots.txt, and the tdmrep.json, that applies to a request.
func (e *Engine) query(r *Request, c *requestConfig) cache.Query {
	q := cache.Query{Origin: r.Origin, Client: ShareKey(r.Client)}
	if e.o.FetchPerToken {
		q.Token = cmp.Or(c.tokens...)
	}
	return q
}

// RobotsTxt returns the current robots.txt of a request's origin and the name of the dialect in
// which it is read, and sets the file's Crawl-delay in limits, which are those of a request for
// robots.txt itself. It fetches the file if it is not cached. The Ruling is zero if robots.txt is
// not enforced for the host, or ctx ends first.
func (e *Engine) RobotsTxt(ctx context.Context, r Request, limits *pace.Limits) (_ cache.Ruling, dialect string) {
	c := e.configFor(&r)
	if c.host.Robots != Enforce {
		return cache.Ruling{}, ""
	}
	d := c.client.dialect
	entry, err := e.o.Cache.Lookup(ctx, e.query(&r, &c), d)
	if err != nil {
		return cache.Ruling{}, ""
	}
	ruling := entry.Under(d)
	if ruling.Meaning == cache.Rules {
		given, ok := e.o.OverMax.Keep(ruling.File.For(c.tokens...).CrawlDelay(), e.o.MaxCrawlDelay)
		if !ok {
			// A Crawl-delay that is too long does not forbid to fetch the file itself.
			given = e.o.MaxCrawlDelay
		}
		setCrawlDelay(limits, given)
	}
	return ruling, d.Name
}

// Query returns the cache.Query for the robots.txt that Decide uses for a request.
func (e *Engine) Query(r Request) cache.Query {
	c := e.configFor(&r)
	return e.query(&r, &c)
}

// applyRobots finds the robots.txt and the group that apply, unless an entry ignores the file. It sets in d whether the
// request is refused because of the file's state or its Crawl-delay; the caller matches the rules.
func (e *Engine) applyRobots(ctx context.Context, r *Request, c *requestConfig, d *Decision) robots.Group {
	if c.host.Robots == Ignore {
		d.Verdict, d.Reason = Allow, ReasonOverride
		return robots.Group{}
	}
	dialect := c.client.dialect
	d.Dialect = dialect.Name
	entry, err := e.o.Cache.Lookup(ctx, e.query(r, c), dialect)
	if err != nil {
		d.refuseUnread(ctx, err)
		return robots.Group{}
	}
	d.Ruling = e.ruling(entry, dialect, c.host.Host)
	d.Err = d.Ruling.Err
	switch d.Ruling.Meaning {
	case cache.NoConnection:
		d.Reason = ReasonOrigin
		return robots.Group{}
	case cache.NoFile:
		d.Verdict, d.Reason = Allow, ReasonNoFile
		return robots.Group{}
	case cache.Rules:
	default:
		// RFC 9309 2.3.1.4: unreachable means no access at all.
		d.Reason = ReasonUnreachable
		return robots.Group{}
	}
	g := d.Ruling.File.For(c.tokens...)
	d.Verdict, d.Group, d.Token = Allow, g.Name(), g.Token()
	d.Asked, d.DelayLine, d.Decoded = g.CrawlDelay(), g.DelayLine(), d.Ruling.File.Coding()
	d.Visits = g.VisitTimes()
	d.Signals, d.Licenses = g.ContentSignals(), joinLicenses(d.Ruling.File.Licenses())
	given, ok := e.o.OverMax.Keep(d.Asked, e.o.MaxCrawlDelay)
	setCrawlDelay(&d.Pace, given)
	if !ok {
		d.Verdict, d.Reason = Refuse, ReasonCrawlDelay
	}
	return g
}

// refuseUnread refuses a request because a cache gave no file.
func (d *Decision) refuseUnread(ctx context.Context, err error) {
	d.Verdict, d.Reason, d.Err = Refuse, ReasonUnreachable, err
	if ctx.Err() != nil {
		d.Reason = ReasonClient
	}
}

// start sets in d what the configuration says about a request: the entry for its host, and its
// limits before a Crawl-delay is known.
func (e *Engine) start(d *Decision, r *Request, c *requestConfig) {
	d.Token, d.terms = cmp.Or(c.tokens...), c.host.Host
	d.Pace = e.o.Pace
	if d.Pace.Key = e.PaceKey(r.Origin.Host); d.Pace.Key != r.Origin.Host {
		d.Pace.BackOffKey = r.Origin.Host
	}
	d.Entry, d.EntryReason, d.Parent = c.host.name, c.host.Reason, c.host.Parent
	applyEntries(&d.Pace, c.host.Host, &c.client.Client, r.Dest)
}

// Admit identifies the client at an address, and refuses one that no entry of Options.Clients
// matches. It returns the name of the client, or the address if there are no Clients or if
// Options.Open admits others.
//
// If any client could log in from the address and l is offered, l decides: name and password
// must be right, and the address must be in the client's Networks if it has any. A wrong login
// is refused even if the address alone would be admitted. Otherwise the first client without a
// password whose Networks contain the address is chosen.
//
// The error is ErrLogin, ErrStranger, ErrTooManyLogins, or the cause of ctx if that ends while
// the password waits to be checked. It never contains the login.
func (e *Engine) Admit(ctx context.Context, address string, l Login) (client string, err error) {
	return e.admission.admit(ctx, address, l)
}

// AddressShare returns the key of the fair share of an address whose client is not known yet: that of the
// first client without a password whose Networks contain the address, else that of the address. An address in the
// Networks of a client with a password has a key apart from other addresses with the same [ShareKey].
func (e *Engine) AddressShare(address string) string { return e.admission.addressShare(address) }

// tokens returns the product tokens of a client, the most significant first, and their source.
func (e *Engine) tokens(c *clientState, userAgent string) ([]string, TokenSource) {
	switch {
	case c.tokens != nil:
		return c.tokens, FromClient
	case e.fixedTokens != nil:
		return e.fixedTokens, FromOptions
	}
	return e.agents.parse(userAgent).tokens, FromHeader
}

// PaceKey returns the key of a host's pace, unless the pace is kept by address.
func (e *Engine) PaceKey(host string) string {
	if !e.o.PerDomain {
		return host
	}
	return registeredDomain(host)
}

// Pass returns the Pass of a client that Admit has admitted from an address by a Login.
func (e *Engine) Pass(client, address string, l Login) Pass {
	p := Pass{client: client, address: address}
	if a := e.admission.accounts[client]; a != nil {
		d := e.admission.passwords.digest(true, l)
		if by := a.verified(&d); by != nil {
			p.hash = by.hash
		}
	}
	return p
}

// Readmit identifies a client by a Pass of an earlier Engine: as the same client if the password's
// hash is still one of its own and it may log in from the address, else as Admit would without a login.
// The error is Admit's.
func (e *Engine) Readmit(p Pass) (client string, err error) {
	a := e.admission.accounts[p.client]
	if p.hash != "" && a.password(p.hash) != nil && a.mayUseFrom(addrOf(p.address)) {
		return p.client, nil
	}
	// Without a login no password is checked, so this does not wait.
	return e.admission.admit(context.Background(), p.address, Login{})
}

// A Reading explains how Decide read a request. It decides nothing.
type Reading struct {
	Dialect robots.Dialect

	// Tokens are the product tokens that chose the group, the most significant first, and Source is where they are from.
	Tokens []string
	Source TokenSource

	// Group is zero if no robots.txt was read.
	Group robots.Group

	// PathQuery has the path and query that the rules were matched with; "": none was.
	PathQuery string
}

// Reading returns how Decide read the request r, for its result d.
func (e *Engine) Reading(r Request, d Decision) Reading {
	c := e.configFor(&r)
	x := Reading{Dialect: c.client.dialect, Tokens: slices.Clone(c.tokens), Source: c.source}
	if d.Ruling.Meaning == cache.Rules {
		x.Group = d.Ruling.File.For(x.Tokens...)
		// A tunnel is decided by its host.
		if d.Reason != ReasonTunnel {
			x.PathQuery = matchForms(x.Group, &r, e.countedChanges(&c, x.Dialect)).path
		}
	}
	return x
}
