package daemon

import (
	"context"

	"robotsproxy/policy"
	"robotsproxy/policy/audit/trail"
	"robotsproxy/robots"
	"robotsproxy/robots/cache"
)

// A tdmrepCache is the cache of tdmrep.json files from when usage.tdmrep is set to true until it is set to
// false.
type tdmrepCache struct {
	*cache.Cache

	// needed ends when the cache is not needed any more.
	needed context.Context

	// stop ends needed.
	stop context.CancelFunc

	// ended is closed when run has ended.
	ended chan struct{}
}

// run runs the cache until ctx ends or stop was called.
func (c *tdmrepCache) run(ctx context.Context) error {
	defer close(c.ended)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(c.needed, cancel)()
	return c.Run(ctx)
}

// setTDMRep sets f.tdmrep, and its options, if the configuration wants tdmrep.json files to be read. f.cache must have its size.
func (d *Daemon) setTDMRep(f, before *generation) (err error) {
	if !f.Cfg.Usage.TDMRep {
		return nil
	}
	if f.tdmrepOptions, err = d.cacheOptions(f, trail.KindTDMRep, cache.TDMRep()); err != nil {
		return err
	}
	f.tdmrepOptions.Store = d.tdmrepStore
	f.tdmrepOptions.MaxBytes = f.cache.MaxBytes / tdmrepPart
	if before != nil && before.tdmrep != nil {
		f.tdmrep = before.tdmrep
		return nil
	}
	o := f.tdmrepOptions
	o.MaxFetches = fetchesWithin(f.memory, tdmrepPart)
	c, err := cache.New(o)
	if err != nil {
		return err
	}
	needed, stop := context.WithCancel(context.Background())
	f.tdmrep = &tdmrepCache{c, needed, stop, make(chan struct{})}
	return nil
}

// activateTDMRep gives a cache that g has from before the options of g. The last fetch with the options of
// before has ended when all of last are closed.
func (g *generation) activateTDMRep(before *generation) (last []<-chan struct{}, err error) {
	switch before.tdmrep {
	case nil:
		return nil, nil
	case g.tdmrep:
		fetched, err := g.tdmrep.Reconfigure(g.tdmrepOptions)
		return []<-chan struct{}{fetched}, err
	}
	return []<-chan struct{}{before.tdmrep.ended}, nil
}

// policyCache returns the cache for the Engine of g; nil: tdmrep.json files are not read.
func (g *generation) policyCache() policy.Cache {
	if g.tdmrep == nil {
		// g.tdmrep would be a Cache that holds a nil pointer.
		return nil
	}
	return g.tdmrep
}

// tdmrepStats returns the Stats of the present cache; zero: there is none.
func (d *Daemon) tdmrepStats() cache.Stats {
	if c := d.Active.Load().tdmrep; c != nil {
		return c.Stats()
	}
	return cache.Stats{}
}

// An operatorCache is the cache of robots.txt as the admin listener has it: what an operator removes or
// fetches again is every file of an origin.
type operatorCache struct {
	*cache.Cache

	// tdmrep returns nil if tdmrep.json files are not read.
	tdmrep func() *tdmrepCache
}

// Purge removes the files of o. It reports whether memory had any.
func (c operatorCache) Purge(o robots.Origin) bool {
	had := c.Cache.Purge(o)
	if t := c.tdmrep(); t != nil && t.Purge(o) {
		had = true
	}
	return had
}

// Refetch fetches the files of q now, and returns the robots.txt. There is no tdmrep.json by FTP: the TDM
// Reservation Protocol is one of web servers.
func (c operatorCache) Refetch(ctx context.Context, q cache.Query) (*cache.Entry, error) {
	e, err := c.Cache.Refetch(ctx, q)
	if t := c.tdmrep(); err == nil && t != nil && q.Origin.Scheme != "ftp" {
		_, err = t.Refetch(ctx, q)
	}
	return e, err
}
