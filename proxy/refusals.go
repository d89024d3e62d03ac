package proxy

import (
	"context"
	"errors"
	"maps"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"robotsproxy/policy"
	"robotsproxy/policy/audit"
)

const (
	// refusalsPerSecond is how many refusals of one client are sent in a second after it
	// has used up refusalBurst. Answers from the cached copy of a robots.txt count too.
	// Each of them has a record, so this limits how fast one client can fill the audit.
	refusalsPerSecond = 100
	refusalBurst      = 1000
	// maxRefusalWait is how long a refusal waits at most. Without this limit, a client that
	// does not wait for its responses could cause any number of records.
	maxRefusalWait = 10 * time.Second
	// refusalsOfAll and refusalBurstOfAll are limits for the records of these answers to all strangers together
	// (policy.IsStranger), and to all other clients together, in audit.Weight.
	refusalsOfAll     = 1000
	refusalBurstOfAll = 20_000
	// maxRefusedClients is how many clients are counted separately; further strangers count as
	// one. It limits memory, at about 200 bytes per client.
	maxRefusedClients = 4096
	// sweepInterval is the minimum time between two removals of clients whose whole burst is available
	// again.
	sweepInterval = time.Second
)

var errRefusedOften = errors.New("too many refusals of the client")

// A refusalLimiter limits the rate of the proxy's own responses that have a record: refusals,
// and answers from the cached copy of a robots.txt.
type refusalLimiter struct {
	// mu guards the fields below.
	mu      sync.Mutex
	clients map[string]*rate.Limiter
	ofAll   audit.FairLimit
	swept   time.Time

	once sync.Once

	// ended is closed by close.
	ended chan struct{}
}

func newRefusalLimiter() *refusalLimiter {
	return &refusalLimiter{
		clients: map[string]*rate.Limiter{},
		ofAll:   audit.FairLimit{PerSecond: refusalsOfAll, Burst: refusalBurstOfAll},
		ended:   make(chan struct{}),
	}
}

// isRateLimited reports whether the refusalLimiter applies to a refusal. It does not apply to
// one that the audit only counts, nor to one that a client cannot cause.
func isRateLimited(rec *audit.Record) bool {
	reason := rec.Decision.Reason.Info()
	return rec.Refused() && !reason.Cheap && !reason.ByProxy
}

// take returns how long the proxy must wait before it answers a request with this record. It returns false if that is
// longer than maxRefusalWait, or if the client has its share of what all clients may cause.
func (r *refusalLimiter) take(rec *audit.Record) (wait time.Duration, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now, client := time.Now(), rec.Request.Client
	l := r.limiter(client, now)
	if l.TokensAt(now) < 1-refusalsPerSecond*maxRefusalWait.Seconds() || !r.ofAll.Take(client, audit.Weight(rec), now) {
		return 0, false
	}
	return l.ReserveN(now, 1).DelayFrom(now), true
}

// pace waits until the proxy may answer the request of rec itself. It returns an error if it may not.
func (r *refusalLimiter) pace(ctx context.Context, rec *audit.Record) error {
	wait, ok := r.take(rec)
	if !ok {
		return errRefusedOften
	}
	r.wait(ctx, wait)
	return context.Cause(ctx)
}

// limiter returns a client's limiter. For a new client, it removes the clients whose
// whole burst is available again. The caller holds r.mu.
func (r *refusalLimiter) limiter(client string, now time.Time) *rate.Limiter {
	share := policy.ShareKey(client)
	l := r.clients[share]
	if l != nil {
		return l
	}
	if now.Sub(r.swept) >= sweepInterval {
		r.swept = now
		maps.DeleteFunc(r.clients, func(_ string, l *rate.Limiter) bool { return l.TokensAt(now) >= refusalBurst })
	}
	if len(r.clients) >= maxRefusedClients && policy.IsStranger(client) {
		share = ""
		if l = r.clients[share]; l != nil {
			return l
		}
	}
	l = rate.NewLimiter(refusalsPerSecond, refusalBurst)
	// The name of the share would keep the head of a request in memory.
	r.clients[strings.Clone(share)] = l
	return l
}

// wait returns after d, or when ctx ends or the handler shuts down.
func (r *refusalLimiter) wait(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	case <-r.ended:
	}
}

// close ends all waits, including later ones.
func (r *refusalLimiter) close() { r.once.Do(func() { close(r.ended) }) }
