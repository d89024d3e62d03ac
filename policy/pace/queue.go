package pace

import (
	"slices"
	"time"
)

// A waiter is one who asked for a slot and did not get it at once.
type waiter struct {
	slot     *Slot
	client   string
	queue    *turns // where it stands; nil: among the replays
	rated    bool   // wants a right to send
	placed   bool   // wants a place
	since    time.Time
	deadline time.Time

	ready chan struct{} // closed when done
	done  bool          // granted, or refused with err; guarded by host.mu
	err   error         // to be read after ready is closed
}

func (w *waiter) finish(err error) {
	w.done, w.err = true, err
	close(w.ready)
}

// turns is a queue in which clients take turns; each one's waiters go in order.
// The zero value is empty.
type turns struct {
	lines  []*line // the first is next
	client map[string]*line
	n      int
}

type line struct {
	client  string
	waiters []*waiter // never empty while in turns
}

func (t *turns) push(w *waiter) {
	ln := t.client[w.client]
	if ln == nil {
		if t.client == nil {
			t.client = make(map[string]*line)
		}
		ln = &line{client: w.client}
		t.client[w.client] = ln
		t.lines = append(t.lines, ln)
	}
	ln.waiters = append(ln.waiters, w)
	t.n++
}

// front is whose turn it is; nil: nobody waits.
func (t *turns) front() *waiter {
	if len(t.lines) == 0 {
		return nil
	}
	return t.lines[0].waiters[0]
}

// pop takes the front out and passes the turn to the next client.
func (t *turns) pop() {
	ln := t.lines[0]
	t.remove(ln.waiters[0])
	if len(t.lines) > 1 && t.lines[0] == ln {
		copy(t.lines, t.lines[1:])
		t.lines[len(t.lines)-1] = ln
	}
}

// remove takes w out, wherever it stands.
func (t *turns) remove(w *waiter) {
	ln := t.client[w.client]
	i := slices.Index(ln.waiters, w)
	ln.waiters = slices.Delete(ln.waiters, i, i+1)
	t.n--
	if len(ln.waiters) > 0 {
		return
	}
	delete(t.client, ln.client)
	i = slices.Index(t.lines, ln)
	t.lines = slices.Delete(t.lines, i, i+1)
	if t.n == 0 {
		*t = turns{} // a host at rest keeps no queue
	}
}

// ahead is how many go before one of client's who would come now.
func (t *turns) ahead(client string) int {
	own := t.client[client]
	round := 0 // rounds before the newcomer's own
	if own != nil {
		round = len(own.waiters)
	}
	n, last := 0, 1 // last: whether a line still comes before own in own's round
	for _, ln := range t.lines {
		if ln == own {
			n += round
			last = 0
			continue
		}
		n += min(len(ln.waiters), round+last)
	}
	return n
}

// inOrder gives all waiters, in the order in which they would go.
func (t *turns) inOrder() []*waiter {
	all := make([]*waiter, 0, t.n)
	lines := slices.Clone(t.lines)
	for round := 0; len(lines) > 0; round++ {
		lines = slices.DeleteFunc(lines, func(ln *line) bool { return round >= len(ln.waiters) })
		for _, ln := range lines {
			all = append(all, ln.waiters[round])
		}
	}
	return all
}
