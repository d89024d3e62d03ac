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
	// refusalsPerSecond is how many refusals of one client are answered in a second, once
	// it has used up refusalBurst. Answers from the cached copy of a robots.txt count too.
	// Each has a record, so that this bounds how fast one client can fill the audit.
	refusalsPerSecond = 100
	refusalBurst      = 1000
	// maxRefusalWait is how long a refusal waits at most. Without it a client that does not
	// wait for its answers could cause any number of records.
	maxRefusalWait = 10 * time.Second
	// maxRefusedClients is how many clients are told apart; later ones count as one. It
	// bounds memory, at about 200 bytes a client.
	maxRefusedClients = 4096
	// sweepInterval is the shortest time between two removals of clients that have their whole burst again.
	sweepInterval = time.Second
)

var errRefusedOften = errors.New("too many requests of the client wait for a refusal")

// A refusalLimiter limits the rate of the answers of the proxy that have a record: refusals, and
// answers from the cached copy of a robots.txt.
type refusalLimiter struct {
	mu      sync.Mutex // guards what follows
	clients map[string]*rate.Limiter
	swept   time.Time

	once  sync.Once
	ended chan struct{} // closed by close
}

func newRefusalLimiter() *refusalLimiter {
	return &refusalLimiter{clients: map[string]*rate.Limiter{}, ended: make(chan struct{})}
}

// isRateLimited reports whether the refusalLimiter counts a refusal. It does not count one that
// the audit only counts, nor one that no client can cause.
func isRateLimited(rec *audit.Record) bool {
	switch rec.Decision.Reason {
	case policy.ReasonAudit, policy.ReasonShutdown, policy.ReasonInternal:
		return false
	}
	return rec.Refused() && !audit.IsCheap(rec.Decision.Reason)
}

// take returns how long a refusal of the client with this ShareKey has to wait, or false if
// that would be longer than maxRefusalWait.
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

// pace waits until the proxy may answer a request of the client by itself, or returns an error if
// it may not.
func (r *refusalLimiter) pace(ctx context.Context, client string) error {
	wait, ok := r.take(client)
	if !ok {
		return errRefusedOften
	}
	r.wait(ctx, wait)
	return context.Cause(ctx)
}

// limiter returns a client's limiter. For a new client, it removes clients that have
// their whole burst again. The caller holds r.mu.
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
	r.clients[strings.Clone(client)] = l // else it keeps a whole request's head in memory
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

// close ends all waits, those that begin later included.
func (r *refusalLimiter) close() { r.once.Do(func() { close(r.ended) }) }
