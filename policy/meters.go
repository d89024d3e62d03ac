package policy

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"
)

// A Charge is a meter that counts a request, and its limit.
type Charge struct {
	Meter
	Limit Quota

	// Untold is what this process has used without telling the QuotaStore. Requests that were given back are negative.
	Untold []Bucket
}

// A Count is the reply of a QuotaStore.
type Count struct {
	// Taken says that the requests were counted: no meter had reached its limit.
	Taken bool

	// Now is the time by the store's clock.
	Now time.Time

	// Used has what counts at Now in each meter, including the requests if they were counted. It has the order of the Charges.
	Used [][]Bucket
}

// A QuotaStore counts the use of meters for all processes that share it. Any number of goroutines may use it.
type QuotaStore interface {
	// Take adds what is untold to at most [MaxCharges] meters. Then it counts requests in each of them, unless one has reached its
	// limit; 0: it counts none. It does not wait if the store is unavailable. After an error nothing was counted, or that is not known.
	// It need not return when ctx ends.
	Take(ctx context.Context, requests int64, all []Charge) (Count, error)

	// Replicas returns the number of processes that share the store, at most.
	Replicas() int64
}

// MaxCharges is how many meters a QuotaStore is asked about at once: those of one request.
const MaxCharges = 1 + maxBudgetsOfRequest

// A charge is a Charge for a request to a host; host is "" for the quota of a client.
type charge struct {
	Charge
	host string
}

// full returns the error for buckets b, which have reached the limit. now is by the clock of the buckets, and used is what the error
// says was used.
func (c *charge) full(b buckets, now time.Time, used Use) *QuotaError {
	left := time.UnixMilli(b.fullUntil(c.Limit)).Add(c.Span).Sub(now)
	return &QuotaError{host: c.host, Quota: c.Limit, Used: used, per: c.Span, Until: time.Now().Add(left)}
}

// later returns the error whose Until is later. Either may be nil.
func later(a, b *QuotaError) *QuotaError {
	if a == nil || b != nil && b.Until.After(a.Until) {
		return b
	}
	return a
}

// A Ticket is one request that was counted. The zero Ticket is that of a request that no meter counts.
type Ticket struct {
	meters  *meterTable
	entries []ticketEntry
}

// A ticketEntry is a meter that has counted a request, and the end of the bucket.
type ticketEntry struct {
	charge
	end int64
}

// GiveBack uncounts a request that was not sent. It is called at most once. It has no effect where the request does not count any
// more.
func (t Ticket) GiveBack() { t.add(Use{Requests: -1}) }

// Renew counts the request in the present buckets of budgets, before it is sent: it may have waited for long. It returns a *HoldError,
// and counts the request in none, if it did not count any more and a budget is used up meanwhile.
func (t Ticket) Renew() error {
	if t.meters == nil {
		return nil
	}
	t.meters.mu.Lock()
	defer t.meters.mu.Unlock()
	now := time.Now()
	for i := range t.entries {
		e := &t.entries[i]
		if !e.isOfBudget() || e.end > e.over(now) {
			continue
		}
		if full := t.meters.findFull([]charge{e.charge}, now, t.meters.shares()); full != nil {
			return full.refusal()
		}
	}
	for i := range t.entries {
		e := &t.entries[i]
		end := e.Meter.end(now)
		if !e.isOfBudget() || e.end == end {
			continue
		}
		m := t.meters.of(&e.Charge, now)
		t.meters.add(m, e.end, Use{Requests: -1}, now)
		t.meters.add(m, end, Use{Requests: 1}, now)
		e.end = end
	}
	return nil
}

// AddBytes counts bytes that the request has received, or sent in a tunnel. A quota counts them on the day of the request, a budget
// from now on.
func (t Ticket) AddBytes(n int64) { t.add(Use{Bytes: max(0, n)}) }

func (t Ticket) add(u Use) {
	if t.meters == nil || u == (Use{}) {
		return
	}
	t.meters.mu.Lock()
	defer t.meters.mu.Unlock()
	now := time.Now()
	for i := range t.entries {
		e := &t.entries[i]
		// The options may have changed since the request.
		m := t.meters.all[e.Name]
		if m == nil {
			m = t.meters.of(&e.Charge, now)
		}
		end := e.end
		if u.Bytes > 0 && m.isOfBudget() {
			end = m.end(now)
		}
		t.meters.add(m, end, u, now)
	}
}

const (
	// maxFormer bounds the removed clients whose requests of the day are counted on, at about 300 bytes each.
	maxFormer = 100_000

	// maxBudgets is how many meters of budgets are in memory, at 300 to 900 bytes each. Strangers can make hosts, and so meters. If
	// there is one more, the one that has used the least of its budget, of a sample, is forgotten: whoever fills the table with small
	// uses does not make the proxy forget a large one.
	maxBudgets = 100_000

	// sampleSize is the size of the sample.
	sampleSize = 8
)

// A meterTable counts what was used of quotas and budgets. The Engines before and after a Renew share it, so that a reload may remove a
// client or an entry and add it again.
type meterTable struct {
	// store counts for several processes; nil: this one is alone.
	store QuotaStore

	// mu guards the fields below.
	mu  sync.Mutex
	all map[string]*meter

	// budgets is how many of all are those of budgets.
	budgets int
}

// A meter is what is known of the use of a Meter.
type meter struct {
	Meter

	// limit is that of the last Charge.
	limit Quota

	// known is what all processes had used when the store was asked last or, without a store, what this process has used.
	known buckets

	// heard is the store's time of known, and asked when the store was asked last.
	heard, asked time.Time

	// untold is what this process has used and the store was not told yet, and telling what it is being told. Requests that were given
	// back are negative.
	untold, telling buckets

	// changed says that it has changed since changes has returned it.
	changed bool
}

// at drops what does not count at a time.
func (m *meter) at(now time.Time) {
	m.known, m.untold, m.telling = m.known.at(m.Meter, now), m.untold.at(m.Meter, now), m.telling.at(m.Meter, now)
}

// maxLate is longer than a reply of the store can be overtaken by another one. If a reply is older than that, the store's clock was
// set back.
const maxLate = 10 * time.Second

// learn notes what all processes had used at a time of the store's clock, unless a later reply was faster.
func (m *meter) learn(used buckets, at time.Time) {
	late := m.heard.Sub(at)
	if late > 0 && late < maxLate || late == 0 && used.sum().Requests < m.known.sum().Requests {
		return
	}
	m.known, m.heard, m.changed = slices.Clone(used), at, true
}

// isEmpty reports whether nothing counts.
func (m *meter) isEmpty() bool { return len(m.known)+len(m.untold)+len(m.telling) == 0 }

// used returns what counts at a time if the Meter is as, which has the options of now. What the store does not know counts shares
// times.
func (m *meter) used(as Meter, now time.Time, shares int64) buckets {
	all := slices.Clone(m.known)
	for _, b := range slices.Concat(m.untold, m.telling) {
		if b.Requests >= 0 {
			b.Requests, b.Bytes = shares*b.Requests, shares*b.Bytes
		}
		all = all.plus(b.End, b.Use)
	}
	return all.at(as, now)
}

// fraction returns how much of the limit is used, from 0.
func (m *meter) fraction(now time.Time) (most float64) {
	used := m.used(m.Meter, now, 1).sum()
	if m.limit.Requests > 0 {
		most = float64(used.Requests) / float64(m.limit.Requests)
	}
	if m.limit.Bytes > 0 {
		most = max(most, float64(used.Bytes)/float64(m.limit.Bytes))
	}
	return most
}

// of returns the meter of a charge, and makes it if there is none. t.mu is held.
func (t *meterTable) of(c *Charge, now time.Time) *meter {
	m := t.all[c.Name]
	if m == nil {
		m = &meter{Meter: c.Meter}
		if m.isOfBudget() {
			t.makeRoom(now)
			t.budgets++
		}
		t.all[c.Name] = m
	}
	m.Meter, m.limit = c.Meter, c.Limit
	m.at(now)
	return m
}

// makeRoom drops the meter of a budget if there are too many. t.mu is held.
func (t *meterTable) makeRoom(now time.Time) {
	if t.budgets < maxBudgets {
		return
	}
	var least *meter
	seen := 0
	for _, m := range t.all {
		if !m.isOfBudget() {
			continue
		}
		if least == nil || m.fraction(now) < least.fraction(now) {
			least = m
		}
		if seen++; seen == sampleSize {
			break
		}
	}
	t.drop(least)
}

// drop removes a meter. t.mu is held.
func (t *meterTable) drop(m *meter) {
	delete(t.all, m.Name)
	if m.isOfBudget() {
		t.budgets--
	}
}

// add adds a use to the bucket of a meter that ends at end, if that counts. t.mu is held.
func (t *meterTable) add(m *meter, end int64, u Use, now time.Time) {
	if end <= m.over(now) {
		return
	}
	b := &m.known
	if t.store != nil {
		b = &m.untold
	}
	*b = b.plus(end, u).at(m.Meter, now)
	m.changed = true
}

// shares returns the number of shares of what is left while the store is unavailable: what this process uses then counts as often as
// there are processes.
func (t *meterTable) shares() int64 {
	if t.store == nil {
		return 1
	}
	return t.store.Replicas()
}

// take counts a request in all meters, or in none if one has reached its limit.
func (t *meterTable) take(ctx context.Context, all []charge) (Ticket, error) {
	if len(all) == 0 {
		return Ticket{}, nil
	}
	if t.store != nil {
		count, err := t.ask(ctx, 1, all)
		ticket, full := Ticket{}, (*QuotaError)(nil)
		switch {
		case count.Taken:
			ticket = t.ticket(all, count.Now)
		case err == nil:
			for i := range all {
				if b := buckets(count.Used[i]); all[i].Limit.IsReached(b.sum()) {
					full = later(full, all[i].full(b, count.Now, b.sum()))
				}
			}
		}
		switch {
		case ctx.Err() != nil:
			ticket.GiveBack()
			return Ticket{}, context.Cause(ctx)
		case full != nil:
			return Ticket{}, full.refusal()
		case count.Taken:
			return ticket, nil
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	if full := t.findFull(all, now, t.shares()); full != nil {
		return Ticket{}, full.refusal()
	}
	return t.count(all, now), nil
}

// countAlways counts a request in all meters, also where the limit is reached.
func (t *meterTable) countAlways(all []charge) Ticket {
	if len(all) == 0 {
		return Ticket{}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.count(all, time.Now())
}

// count counts a request in all meters. t.mu is held.
func (t *meterTable) count(all []charge, now time.Time) Ticket {
	ticket := t.ticket(all, now)
	for i := range ticket.entries {
		e := &ticket.entries[i]
		t.add(t.of(&e.Charge, now), e.end, Use{Requests: 1}, now)
	}
	return ticket
}

// ticket returns the Ticket of a request that all meters have counted at a time.
func (t *meterTable) ticket(all []charge, now time.Time) Ticket {
	ticket := Ticket{t, make([]ticketEntry, len(all))}
	for i := range all {
		ticket.entries[i] = ticketEntry{all[i], all[i].end(now)}
	}
	return ticket
}

// ask tells the store what it does not know yet, has it count requests, and notes what it knows.
func (t *meterTable) ask(ctx context.Context, requests int64, all []charge) (Count, error) {
	asked := make([]Charge, len(all))
	t.mu.Lock()
	now := time.Now()
	for i := range all {
		m := t.of(&all[i].Charge, now)
		m.asked = now
		asked[i] = all[i].Charge
		if len(m.telling) == 0 {
			// No other call tells it too.
			m.telling, m.untold = m.untold, nil
			asked[i].Untold = slices.Clone(m.telling)
		}
	}
	t.mu.Unlock()
	count, err := t.store.Take(ctx, requests, asked)
	t.mu.Lock()
	defer t.mu.Unlock()
	now = time.Now()
	for i := range asked {
		m := t.of(&asked[i], now)
		if len(asked[i].Untold) > 0 {
			m.telling = nil
		}
		if err == nil {
			m.learn(count.Used[i], count.Now)
			continue
		}
		for _, b := range asked[i].Untold {
			m.untold = m.untold.plus(b.End, b.Use)
		}
	}
	return count, err
}

// tell tells the store what it does not know yet, until it is unavailable.
func (t *meterTable) tell(ctx context.Context) {
	if t.store == nil {
		return
	}
	var all []charge
	t.mu.Lock()
	for _, m := range t.all {
		if len(m.untold) > 0 {
			all = append(all, charge{Charge: Charge{Meter: m.Meter, Limit: m.limit}})
		}
	}
	t.mu.Unlock()
	for some := range slices.Chunk(all, MaxCharges) {
		if _, err := t.ask(ctx, 0, some); err != nil {
			return
		}
	}
}

// findFull returns the error that one more request would get; nil: it fits. What the store does not know counts shares times. t.mu
// is held.
func (t *meterTable) findFull(all []charge, now time.Time, shares int64) (full *QuotaError) {
	for i := range all {
		c := &all[i]
		m := t.all[c.Name]
		if m == nil {
			continue
		}
		if b := m.used(c.Meter, now, shares); c.Limit.IsReached(b.sum()) {
			full = later(full, c.full(b, now, m.used(c.Meter, now, 1).sum()))
		}
	}
	return full
}

// check returns the error that one more request would get, and counts none; nil: it fits. It asks the store, if there is one.
func (t *meterTable) check(ctx context.Context, all []charge) *QuotaError {
	if len(all) == 0 {
		return nil
	}
	shares := int64(1)
	if t.store != nil {
		if _, err := t.ask(ctx, 0, all); err != nil {
			shares = t.shares()
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.findFull(all, time.Now(), shares)
}

// askAgain is how long checkKnown refuses requests because of one reply of the store.
const askAgain = time.Second

// checkKnown is check by what this process knows. It asks the store only if it would refuse a request because of a reply that is
// older than askAgain.
func (t *meterTable) checkKnown(ctx context.Context, all []charge) *QuotaError {
	if len(all) == 0 {
		return nil
	}
	t.mu.Lock()
	now := time.Now()
	full := t.findFull(all, now, 1)
	isOld := false
	for i := range all {
		m := t.all[all[i].Name]
		isOld = isOld || m != nil && now.Sub(m.asked) >= askAgain
	}
	t.mu.Unlock()
	if full != nil && t.store != nil && isOld {
		return t.check(ctx, all)
	}
	return full
}

// used returns what counts in a meter at a time, as far as this process knows.
func (t *meterTable) used(as Meter, now time.Time) buckets {
	t.mu.Lock()
	defer t.mu.Unlock()
	if m := t.all[as.Name]; m != nil {
		return m.used(as, now, 1)
	}
	return nil
}

// changes returns the meters that have changed since the last call, and drops those in which nothing counts.
func (t *meterTable) changes(now time.Time) (all []MeterUse) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, m := range t.all {
		m.at(now)
		if m.changed {
			m.changed = false
			all = append(all, MeterUse{m.Meter, m.limit, m.used(m.Meter, now, 1)})
		}
		if m.isEmpty() {
			t.drop(m)
		}
	}
	return all
}

// restore takes over what an earlier process has counted.
func (t *meterTable) restore(before []MeterUse) {
	now := time.Now()
	for i := range before {
		if u := &before[i]; u.isValid() {
			t.of(&Charge{Meter: u.Meter, Limit: u.Limit}, now).known = buckets(slices.Clone(u.Buckets)).at(u.Meter, now)
		}
	}
}

// forget drops quotas that were counted before the day of now, and those of removed clients if there are too many.
func (t *meterTable) forget(now time.Time, clients map[string]*clientState) {
	kept := make(map[string]bool, len(clients))
	for name := range clients {
		kept[quotaMeter(name).Name] = true
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	tooMany := len(t.all)-t.budgets > len(clients)+maxFormer
	maps.DeleteFunc(t.all, func(name string, m *meter) bool {
		m.at(now)
		return !m.isOfBudget() && (m.isEmpty() || tooMany && !kept[name])
	})
}
