package redis

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"robotsproxy/robots"
)

const (
	// maxWaiting is how many octets of frames, and maxJobs how many jobs, wait for the
	// server; what comes then is lost.
	maxWaiting = 32 << 20
	maxJobs    = 1 << 15

	// maxParcel is how many octets, and maxCalls how many calls, are sent at once; the
	// last may exceed them by a job.
	maxParcel = 1 << 20
	maxCalls  = 256

	// retryEvery is how often purges that could not be sent are tried again.
	retryEvery = 250 * time.Millisecond

	// lastTime is how long what waits at the end of Run may take.
	lastTime = 2 * time.Second
)

// The kinds of jobs.
type kind uint8

const (
	saving kind = iota
	releasing
	purging
	replacing
)

// A job is what is to be told to the server.
type job struct {
	kind   kind
	origin robots.Origin
	frame  frame  // that is saved, or a purge's
	claim  string // that is released
	purge  string // the mark of the one that a save knows of
	number uint64 // in the order of their coming
}

// An outbox has the jobs that wait.
type outbox struct {
	wake chan struct{} // holds a token: there is something to send

	mu     sync.Mutex // guards what follows
	jobs   []job      // the oldest first
	octets int        // of their frames
	last   uint64     // number of the newest
	newest map[robots.Origin]job
}

// robotsCounts is what a Fleet counts of robots.txt files.
type robotsCounts struct {
	loads, saves, claims, waits, lost, failures, purges, heard atomic.Uint64
}

// RobotsStats are what a replica has done with the robots.txt files of all, since Open.
type RobotsStats struct {
	Loads    uint64 // from the server
	Saves    uint64 // there
	Claims   uint64 // rights to fetch that it was given
	Waits    uint64 // times that another had it
	Purges   uint64 // that it has told the others of
	Heard    uint64 // purges and files fetched anew that it was told of
	Lost     uint64 // saves and purges that the server never had
	Failures uint64 // calls
}

// RobotsStats gives them.
func (f *Fleet) RobotsStats() RobotsStats {
	c := &f.robots
	return RobotsStats{
		Loads: c.loads.Load(), Saves: c.saves.Load(), Claims: c.claims.Load(), Waits: c.waits.Load(),
		Purges: c.purges.Load(), Heard: c.heard.Load(), Lost: c.lost.Load(), Failures: c.failures.Load(),
	}
}

func newOutbox() outbox {
	return outbox{wake: make(chan struct{}, 1), newest: make(map[robots.Origin]job)}
}

// ahead gives the newest that is known of o and that the server may not have; not ok:
// the server has it. It is a save, or a purge after which saves may have been lost.
func (b *outbox) ahead(o robots.Origin) (j job, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	j, ok = b.newest[o]
	return j, ok
}

// post has a job done. Where the server is away it waits, if it is a purge, or is lost.
func (f *Fleet) post(j job) {
	if !f.outbox.add(j, f.away()) && j.frame != nil {
		f.robots.lost.Add(1)
	}
}

// add says whether the job waits now.
func (b *outbox) add(j job, away bool) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if away && j.kind != purging || len(b.jobs) >= maxJobs || b.octets+len(j.frame) > maxWaiting {
		return false
	}
	b.last++
	j.number = b.last
	b.jobs = append(b.jobs, j)
	b.octets += len(j.frame)
	if j.frame != nil {
		b.newest[j.origin] = j
	}
	select {
	case b.wake <- struct{}{}:
	default:
	}
	return true
}

// take gives the next jobs that are sent together.
func (b *outbox) take() []job {
	b.mu.Lock()
	defer b.mu.Unlock()
	n, octets := 0, 0
	for n < len(b.jobs) && n < maxCalls && octets < maxParcel {
		octets += len(b.jobs[n].frame)
		n++
	}
	some := b.jobs[:n:n]
	b.jobs = b.jobs[n:]
	return some
}

// done ends the jobs that take gave, which the server has now.
func (b *outbox) done(some []job) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, j := range some {
		b.end(j)
	}
	clear(some) // they are in the array of those that wait
}

// end has nothing of j left. b.mu is held.
func (b *outbox) end(j job) {
	b.octets -= len(j.frame)
	if b.newest[j.origin].number == j.number {
		delete(b.newest, j.origin)
	}
}

// forget has what waits to be saved of o count no more: it may rest on what was purged.
func (b *outbox) forget(o robots.Origin) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.newest[o].kind == saving {
		delete(b.newest, o)
	}
}

// shed ends all that waits but purges, those that take gave among it, and says how much
// was to be saved.
func (b *outbox) shed(taken []job) (lost int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var purges []job
	for _, j := range slices.Concat(taken, b.jobs) {
		if j.kind == purging {
			purges = append(purges, j)
			continue
		}
		b.end(j)
		if j.kind == saving {
			lost++
		}
	}
	for _, j := range purges {
		b.newest[j.origin] = j // what was saved after it is lost
	}
	b.jobs = purges
	return lost
}

// tell is the part of Run that does the jobs, in their order.
func (f *Fleet) tell(ctx context.Context, _ Hooks) error {
	retry := time.NewTicker(retryEvery)
	defer retry.Stop()
	for {
		select {
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastTime)
			defer cancel()
			f.tellAll(last)
			return nil
		case <-f.outbox.wake:
		case <-retry.C:
		}
		f.tellAll(context.WithoutCancel(ctx))
	}
}

// tellAll does what waits, or as much as the server takes.
func (f *Fleet) tellAll(ctx context.Context) {
	for {
		some := f.outbox.take()
		if len(some) == 0 {
			return
		}
		if f.away() || f.sendJobs(ctx, some) != nil {
			f.robots.lost.Add(uint64(f.outbox.shed(some)))
			return
		}
		f.outbox.done(some)
	}
}

// sendJobs does jobs in one round trip.
func (f *Fleet) sendJobs(ctx context.Context, some []job) error {
	send := func(ctx context.Context, c *redis.Client) error {
		_, err := c.Pipelined(ctx, func(p redis.Pipeliner) error {
			now := time.Now()
			for _, j := range some {
				f.queueJob(ctx, p, j, now)
			}
			return nil
		})
		return err
	}
	err := f.ask(ctx, send)
	if redis.HasErrorPrefix(err, "NOSCRIPT") { // somebody has had the server forget them
		if err = f.ask(ctx, loadScripts); err == nil {
			err = f.ask(ctx, send) // what was done already does no harm
		}
	}
	if err != nil {
		return err
	}
	for _, j := range some {
		switch j.kind {
		case saving:
			f.robots.saves.Add(1)
		case purging:
			f.robots.purges.Add(1)
		}
	}
	return nil
}

func (f *Fleet) queueJob(ctx context.Context, p redis.Pipeliner, j job, now time.Time) {
	key := robotsPrefix + j.origin.String()
	switch j.kind {
	case purging:
		p.Set(ctx, key, []byte(j.frame), purgeKept)
	case saving:
		left := max(j.frame.until().Sub(now).Milliseconds(), 1)
		saveScript.EvalSha(ctx, p, []string{key}, []byte(j.frame), left, frameOctets, frameMark, j.purge)
	case releasing:
		releaseScript.EvalSha(ctx, p, []string{fetchPrefix + j.origin.String()}, j.claim)
	}
	if j.kind == purging || j.kind == replacing {
		f.queueNews(ctx, p, j)
	}
}
