package checkcmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"robotsproxy/cmd/internal/cli"
	"robotsproxy/cmd/internal/config"
	"robotsproxy/cmd/internal/daemon"
	"robotsproxy/policy"
	"robotsproxy/policy/audit"
	"robotsproxy/policy/explain"
	"robotsproxy/policy/explain/humanize"
	"robotsproxy/proxy"
	"robotsproxy/proxy/egress"
	"robotsproxy/proxy/egress/ftp"
	"robotsproxy/robots"
	"robotsproxy/robots/cache"
	"robotsproxy/robots/fetch"
)

// maxOthers is how many rules that did not decide are shown.
const maxOthers = 3

// A checker judges URLs and explains the decisions.
type checker struct {
	engine *policy.Engine

	// out fetches the files, under rules; nil if they are not fetched.
	out   *egress.Client
	rules proxy.Rules

	// userAgent and from are the User-Agent and From headers of the requests.
	userAgent, from string

	// file is the robots.txt of every origin; nil if each origin has its own.
	file *File

	// passthrough reports whether the tunnels of a host are passed through.
	passthrough func(host string) bool

	// maxURL is limits.url, in bytes.
	maxURL int

	// unreached says that an origin could not be reached.
	unreached bool
}

// newChecker makes a checker that fetches the files of each origin, or takes file for the robots.txt of each if there is one. done
// releases it.
func newChecker(cfg config.Config, file *File) (c *checker, done func(), err error) {
	c = &checker{userAgent: cfg.Identity.UserAgent, from: cfg.Identity.From, file: file, maxURL: int(cfg.Limits.URL)}
	done = func() {}
	if file == nil {
		if c.out, err = daemon.NewEgress(cfg); err != nil {
			return nil, nil, err
		}
		done = c.out.Close
	}
	robotsCache, tdmrepCache, err := c.newCaches(cfg)
	if err == nil {
		c.engine, err = daemon.NewEngine(cfg, robotsCache, tdmrepCache)
		c.rules.Engine = c.engine
	}
	if err == nil {
		c.passthrough, err = daemon.Passthrough(cfg)
	}
	if err != nil {
		done()
		return nil, nil, err
	}
	return c, done, nil
}

// newCaches creates the cache of each origin's robots.txt, or of the one file for all, and that of each origin's tdmrep.json. The
// second is nil with a file, or if the configuration does not want it.
func (c *checker) newCaches(cfg config.Config) (robotsCache, tdmrepCache policy.Cache, err error) {
	if c.file != nil {
		robotsCache, err = cache.New(cache.Options{Fetcher: c.file})
		return robotsCache, nil, err
	}
	signers, _, err := daemon.Signers(cfg)
	if err != nil {
		return nil, nil, err
	}
	// In monitor mode the fetches need no pace.
	c.rules = proxy.Rules{Egress: c.out, Identity: proxy.Identity{Signers: signers}, Monitor: true}
	sender := &proxy.Fetches{Rules: &c.rules}
	robotsCache, err = c.newCache(cfg, fetch.Options{Sender: sender})
	if err == nil && cfg.Usage.TDMRep {
		tdmrepCache, err = c.newCache(cfg, fetch.Options{Sender: sender, File: cache.TDMRep()})
	}
	return robotsCache, tdmrepCache, err
}

func (c *checker) newCache(cfg config.Config, o fetch.Options) (policy.Cache, error) {
	options, err := daemon.CacheOptions(cfg, o, func() *policy.Engine { return c.engine })
	if err != nil {
		return nil, err
	}
	return cache.New(options)
}

// checkAll writes its findings about each URL, as text or as JSON lines, and returns the exit status.
func (c *checker) checkAll(ctx context.Context, out io.Writer, urls []string, asJSON bool) (status int, err error) {
	colours, gap := cli.SupportsColour(out), ""
	for _, u := range urls {
		f := c.check(ctx, u)
		status = max(status, f.exitStatus())
		if asJSON {
			err = cli.WriteJSON(out, f)
		} else {
			_, err = io.WriteString(out, gap+f.text(colours))
		}
		if err != nil {
			return 0, err
		}
		gap = "\n"
	}
	return status, nil
}

// check judges a URL.
func (c *checker) check(ctx context.Context, address string) finding {
	r, err := c.request(address)
	if err != nil {
		f := finding{URL: address}
		f.Error = humanize.Error(err)
		return f
	}
	d := c.decide(ctx, &r)
	c.unreached = c.unreached || daemon.Unreached(&audit.Record{Decision: d})
	f := finding{URL: address, Allowed: d.Verdict == policy.Allow, Explanation: explain.Of(&d), header: r.UserAgent}
	switch {
	case errors.Is(d.Err, egress.ErrForbiddenAddr):
		f.Reason = policy.ReasonAddress
	case errors.Is(d.Err, egress.ErrForbiddenPort):
		f.Reason = policy.ReasonPort
	case errors.Is(d.Err, egress.ErrParent):
		f.Reason = policy.ReasonParent
	}
	f.Fetched = f.Fetched.Truncate(time.Second)
	if answer := d.Ruling.Result; answer != nil {
		f.Status, f.Cut = answer.Status, len(answer.Body) >= robots.MaxBytes
	}
	// A file of this machine was not fetched.
	if c.file != nil {
		f.Fetch, f.Fetched, f.Status = nil, time.Time{}, 0
	}
	f.addReading(d, c.engine.Reading(r, d))
	return f
}

// decide decides about a request as the proxy does. It refuses what the proxy would not connect to, whatever robots.txt says. It
// drops the From header of a request that stays in a tunnel.
func (c *checker) decide(ctx context.Context, r *policy.Request) policy.Decision {
	if c.out != nil {
		if err := c.out.Through(c.engine.ParentOf(r.Origin.Host)).Check(r.Origin.Host, r.Origin.Port); err != nil {
			return policy.Decision{Err: err}
		}
	}
	if r.Origin.Scheme == "https" && c.passthrough(r.Origin.Host) {
		// The proxy sees only the host of such a request.
		r.From = ""
		return c.engine.DecideTunnel(ctx, *r)
	}
	return c.engine.Decide(ctx, *r)
}

// request reads a URL as the proxy does.
func (c *checker) request(address string) (policy.Request, error) {
	target, err := explain.ParseURL(http.MethodGet, address)
	if err == nil && len(target.String()) > c.maxURL {
		err = fmt.Errorf("the URL has more than %d bytes (limits.url)", c.maxURL)
	}
	if err == nil && target.Origin.Scheme == "ftp" {
		err = ftp.CheckPath(target.PathQuery)
	}
	return policy.Request{Method: http.MethodGet, Target: target, UserAgent: c.userAgent, From: c.from}, err
}

// addReading adds what the client was taken for, and what the file says besides the rule.
func (f *finding) addReading(d policy.Decision, x policy.Reading) {
	f.Dialect, f.Agents, f.AgentFrom = x.Dialect.Name, x.Tokens, fromHeader
	switch {
	case x.Source == policy.FromOptions:
		f.AgentFrom = fromConfig
	case len(x.Tokens) == 0:
		f.AgentFrom = fromNobody
	}
	s := x.Group.ContentSignals()
	f.Signals = signals{s.Search.String(), s.AIInput.String(), s.AITrain.String()}
	f.Sitemaps, f.Licenses = d.Ruling.File.Sitemaps(), d.Ruling.File.Licenses()
	if d.DelayLine > 0 {
		near, _ := robots.Excerpt(string(d.Ruling.Result.Body), x.Dialect, d.DelayLine, 0)
		f.CrawlText = near[0].Text
	}
	if x.PathQuery == "" {
		return
	}
	f.Usage = d.ContentUsage
	for _, v := range x.Group.RelatedRules(x.PathQuery, maxOthers) {
		f.Others = append(f.Others, otherRule{v.Rule, v.Allow, v.Line, v.Matches})
	}
}
