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
	// maxRefusalWait is how long the answer to a refusal waits at most. A client that does
	// not wait for its answers would get any number of records otherwise.
	maxRefusalWait = 10 * time.Second
	// maxRefusedClients is how many clients are told apart; later ones count as one. It
	// bounds memory, at about 200 bytes a client.
	maxRefusedClients = 4096
	// sweepInterval is how often at most clients are forgotten.
	sweepInterval = time.Second
)

var errRefusedOften = errors.New("too many requests of the client wait for an answer of the proxy's own")

// A refusalLimiter limits how fast the proxy answers by itself what has a record each: refusals, and
// requests for a robots.txt of which there is a copy.
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

// isRateLimited reports whether the answer to a refused request may have to wait. A refusal that
// the audit only counts need not, nor one that no client can cause.
func isRateLimited(rec *audit.Record) bool {
	switch rec.Decision.Reason {
	case policy.ReasonAudit, policy.ReasonShutdown, policy.ReasonInternal:
		return false
	}
	return rec.Refused() && !audit.IsCheap(rec.Decision.Reason)
}

// take gives how long the answer to a refusal has to wait, for the client with this
// ShareKey. It gives false if that would be longer than maxRefusalWait.
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

// pace returns when the proxy may answer a request of the client by itself, or gives the error
// that it may not.
func (r *refusalLimiter) pace(ctx context.Context, client string) error {
	wait, ok := r.take(client)
	if !ok {
		return errRefusedOften
	}
	r.wait(ctx, wait)
	return context.Cause(ctx)
}

// limiter gives a client's limiter, and forgets clients that have their whole burst again
// when there is a new one. The caller holds r.mu.
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

// close ends all waits, and those that come from now on.
func (r *refusalLimiter) close() { r.once.Do(func() { close(r.ended) }) }
