package policy

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
)

const (
	// maxChecksOfShare bounds the checks of passwords that wait for addresses with one share (Engine.AddressShare).
	maxChecksOfShare = 64
	// maxChecks bounds those of all addresses, at the memory of a request each.
	maxChecks = 1024
)

// A checkQueue gives the right to run a check to a few at once. The addresses that have checks waiting take turns, so that
// the many wrong passwords of one delay only its own. Any number of goroutines may share a checkQueue.
type checkQueue struct {
	// mu guards the fields below.
	mu sync.Mutex

	// free is how many checks may run beside those that do; 0 while any wait.
	free int

	// n is how many checks wait.
	n int

	// of has the checks that wait, by share, in the order of arrival.
	of map[string][]waiting

	// turns are the keys of of; the first has the next turn.
	turns []string
}

// A waiting check receives true when it may run, or false if it must give way to one of an address with fewer.
type waiting chan bool

// newCheckQueue returns a checkQueue that runs at most most checks at once.
func newCheckQueue(most int) *checkQueue {
	return &checkQueue{free: most, of: map[string][]waiting{}}
}

// take waits for the right to run a check for an address with this share. The caller returns it with release. The error is
// ErrTooManyLogins, or that of waitError.
func (q *checkQueue) take(ctx context.Context, share string) error {
	q.mu.Lock()
	if q.free > 0 {
		q.free--
		q.mu.Unlock()
		return nil
	}
	c, err := q.add(share)
	q.mu.Unlock()
	if err != nil {
		return err
	}
	select {
	case run := <-c:
		if !run {
			return ErrTooManyLogins
		}
		return nil
	case <-ctx.Done():
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.remove(share, c) && <-c {
		q.next()
	}
	return waitError(ctx)
}

// release returns the right to run a check.
func (q *checkQueue) release() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.next()
}

// next gives the right to the next check. The caller holds q.mu.
func (q *checkQueue) next() {
	if q.n == 0 {
		q.free++
		return
	}
	share := q.turns[0]
	q.turns = append(q.turns[1:], share)
	c := q.of[share][0]
	q.remove(share, c)
	c <- true
}

// add adds a check. If maxChecks wait, the last one of the address with the most gives way, unless the new one's
// would then have as many. The caller holds q.mu.
func (q *checkQueue) add(share string) (waiting, error) {
	own := len(q.of[share])
	if own >= maxChecksOfShare {
		return nil, ErrTooManyLogins
	}
	if q.n >= maxChecks {
		most := slices.MaxFunc(q.turns, func(a, b string) int { return len(q.of[a]) - len(q.of[b]) })
		if len(q.of[most]) <= own+1 {
			return nil, ErrTooManyLogins
		}
		last := q.of[most][len(q.of[most])-1]
		q.remove(most, last)
		last <- false
	}
	c := make(waiting, 1)
	if own == 0 {
		share = strings.Clone(share)
		q.turns = append(q.turns, share)
	}
	q.of[share] = append(q.of[share], c)
	q.n++
	return c, nil
}

// remove removes a check and reports whether it still waited. The caller holds q.mu.
func (q *checkQueue) remove(share string, c waiting) bool {
	i := slices.Index(q.of[share], c)
	if i < 0 {
		return false
	}
	q.n--
	if q.of[share] = slices.Delete(q.of[share], i, i+1); len(q.of[share]) > 0 {
		return true
	}
	delete(q.of, share)
	q.turns = slices.DeleteFunc(q.turns, func(s string) bool { return s == share })
	return true
}

func waitError(ctx context.Context) error {
	return fmt.Errorf("wait for the check of a password: %w", context.Cause(ctx))
}
