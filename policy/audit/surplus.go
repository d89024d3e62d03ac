package audit

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"robotsproxy/policy"
	"robotsproxy/policy/audit/trail"
)

const (
	// maxCheap is how many refusals that cost their sender nothing are recorded in a
	// second for one client (policy.ShareKey). A client that does not attack causes few.
	maxCheap = 100
	// maxCheapClients is how many clients are told apart in a second; later ones count
	// as one. It bounds memory, at about 100 bytes a client.
	maxCheapClients = 4096
	// cheapSpan is how long refusals are counted together.
	cheapSpan = time.Second
)

// IsCheap reports whether a refusal for this reason costs its sender nothing: the request
// and the configuration alone decide it. A client can send any number of such requests, and
// each record would push an older one out of the files.
func IsCheap(r policy.Reason) bool {
	switch r {
	case policy.ReasonMalformed, policy.ReasonAuth, policy.ReasonLimit, policy.ReasonLoop,
		policy.ReasonPort, policy.ReasonAddress, policy.ReasonDenied, policy.ReasonIdentity:
		return true
	}
	return false
}

// A surplus counts the cheap refusals beyond maxCheap, which are not recorded. It is
// guarded by Log.mu.
type surplus struct {
	began   time.Time      // when the present span did
	came    map[string]int // refusals in the span, by ShareKey
	over    int            // clients with more than maxCheap in the span
	client  string         // the first of these clients
	reasons map[policy.Reason]int64
}

// add counts a refusal of the client with this ShareKey, and reports whether it is beyond
// maxCheap.
func (s *surplus) add(key string, reason policy.Reason) bool {
	if s.came == nil {
		s.came, s.reasons = map[string]int{}, map[policy.Reason]int64{}
	}
	n, known := s.came[key]
	switch {
	case !known && len(s.came) >= maxCheapClients:
		key = others
		n = s.came[key]
	case !known:
		key = strings.Clone(key) // else it keeps a whole request's head in memory
	}
	s.came[key] = n + 1
	if n < maxCheap {
		return false
	}
	if n == maxCheap {
		if s.over++; s.over == 1 {
			s.client = key
		}
	}
	s.reasons[reason]++
	return true
}

// take ends the span, and gives the event about the refusals that were counted in it.
func (s *surplus) take(now time.Time, o *Options) (e event, counted bool) {
	s.began = now
	if clear(s.came); s.over == 0 {
		return event{}, false
	}
	e = event{name: trail.EventCounted, reasons: map[string]int64{}}
	var each []string
	for _, reason := range slices.Sorted(maps.Keys(s.reasons)) {
		n := s.reasons[reason]
		e.count += n
		e.reasons[string(reason)] = n
		each = append(each, fmt.Sprintf("%d %s", n, reason))
	}
	whose := strconv.Itoa(s.over) + " clients"
	if e.clients = s.over; s.over == 1 {
		whose = "1 client"
		if e.client = s.client; o.Client != nil {
			e.client = o.Client(s.client)
		}
	}
	e.detail = fmt.Sprintf("refusals of %s beyond %d a second for each, which have no records: %s", whose, maxCheap, strings.Join(each, ", "))
	clear(s.reasons)
	s.over, s.client = 0, ""
	return e, true
}

// countOnly reports whether r is a refusal that is only counted, and counts it then.
func (l *Log) countOnly(r *Record) bool {
	if !r.Refused() || !IsCheap(r.Decision.Reason) {
		return false
	}
	key := policy.ShareKey(r.Request.Client)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tellSurplus(cheapSpan)
	over := l.surplus.add(key, r.Decision.Reason)
	if over {
		l.counts.counted.Add(1)
	}
	return over
}

// tellSurplus ends a span that has lasted for at least least, and adds the line about what
// was counted in it. While the file cannot be written and no more lines are kept, the span
// goes on. The caller holds l.mu.
func (l *Log) tellSurplus(least time.Duration) {
	now := time.Now()
	if now.Sub(l.surplus.began) < least || least > 0 && len(l.buf) > maxPending {
		return
	}
	if e, counted := l.surplus.take(now, l.terms.Load()); counted {
		l.chain(e)
	}
}
