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
	// maxRefusedClients is how many clients are counted separately; further ones count as
	// one. It limits memory, at about 200 bytes per client.
	maxRefusedClients = 4096
	// sweepInterval is the minimum time between two removals of clients whose whole burst is available
	// again.
	sweepInterval = time.Second
)

var errRefusedOften = errors.New("too many requests of the client wait for a refusal")

// A refusalLimiter limits the rate of the proxy's own responses that have a record: refusals,
// and answers from the cached copy of a robots.txt.
type refusalLimiter struct {
	mu      sync.Mutex // guards the fields below
	clients map[string]*rate.Limiter
	swept   time.Time

	once  sync.Once
	ended chan struct{} // closed by close
}

func newRefusalLimiter() *refusalLimiter {
	return &refusalLimiter{clients: map[string]*rate.Limiter{}, ended: make(chan struct{})}
}

// isRateLimited reports whether the refusalLimiter applies to a refusal. It does not apply to
// one that the audit only counts, nor to one that a client cannot cause.
func isRateLimited(rec *audit.Record) bool {
	switch rec.Decision.Reason {
	case policy.ReasonAudit, policy.ReasonShutdown, policy.ReasonInternal:
		return false
	}
	return rec.Refused() && !audit.IsCheap(rec.Decision.Reason)
}

// take returns how long a refusal of the client with this ShareKey must wait. It returns
// false if that is longer than maxRefusalWait.
func (r *refusalLimiter) take(client string) (wait time.Duration, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	l := r.limiter(client, now)
	if l.TokensAt(now) < 1-refusalsPerSecond*maxRefusalWait.Seconds() {
		return 0, false
	}
	return l.ReserveN(now, 1).DelayFrom(now), true
}

// pace waits until the proxy may answer a request of the client itself. It returns an error if it
// may not.
func (r *refusalLimiter) pace(ctx context.Context, client string) error {
	wait, ok := r.take(client)
	if !ok {
		return errRefusedOften
	}
	r.wait(ctx, wait)
	return context.Cause(ctx)
}

// limiter returns a client's limiter. For a new client, it removes the clients whose
// whole burst is available again. The caller holds r.mu.
func (r *refusalLimiter) limiter(client string, now time.Time) *rate.Limiter {
	l := r.clients[client]
	if l != nil {
		return l
	}
	if now.Sub(r.swept) >= sweepInterval {
		r.swept = now
		maps.DeleteFunc(r.clients, func(_ string, l *rate.Limiter) bool { return l.TokensAt(now) >= refusalBurst })
	}
	if len(r.clients) >= maxRefusedClients {
		client = ""
		if l = r.clients[client]; l != nil {
			return l
		}
	}
	l = rate.NewLimiter(refusalsPerSecond, refusalBurst)
	r.clients[strings.Clone(client)] = l // otherwise it keeps the head of a request in memory
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
