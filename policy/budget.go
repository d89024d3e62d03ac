package policy

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"

	"robotsproxy/robots"
)

// A Budget is what may be sent to a host in any period of the length Per, by all clients together. The zero Budget limits nothing.
//
// What is used is counted in buckets of a twelfth of Per. A request counts from [Engine.Take] until its whole bucket is older than Per,
// which is Per to thirteen twelfths of Per, so that no more than the budget is taken in any period of this length. If Per changes, the
// buckets stay and count for the new Per. A longer Per does not bring back what was forgotten.
type Budget struct {
	Quota

	// Per is from a minute to 31 days, in milliseconds.
	Per time.Duration
}

const (
	// budgetBuckets is how many buckets make up the period of a budget.
	budgetBuckets = 12

	minBudgetPer = time.Minute
	maxBudgetPer = 31 * 24 * time.Hour

	// maxBudgetsOfRequest is how many budgets can apply to one request, because servers may read its path in several ways. A
	// request with more is refused as too complex.
	maxBudgetsOfRequest = 8
)

// Bucket returns the length of the buckets.
func (b Budget) Bucket() time.Duration {
	return roundUp(roundUp(b.Per, time.Millisecond)/budgetBuckets, time.Millisecond)
}

// IsSet reports whether b limits anything.
func (b Budget) IsSet() bool { return b.Quota != Quota{} }

func (b Budget) check() error {
	switch {
	case min(b.Requests, b.Bytes) < 0:
		return errors.New("negative budget")
	case b.IsSet() && (b.Per < minBudgetPer || b.Per > maxBudgetPer):
		return fmt.Errorf("budget per %v: not between %v and %v", b.Per, minBudgetPer, maxBudgetPer)
	}
	return nil
}

// charge returns the charge for the budget of an entry at one of its hosts. Entries with other Paths have meters of their own.
func (h *Host) charge(host string) charge {
	name := "budget:" + host
	if len(h.Paths) > 0 {
		sum := sha256.Sum256([]byte(strings.Join(h.Paths, "\n")))
		name += " " + hex.EncodeToString(sum[:8])
	}
	m := Meter{Name: name, Width: h.Budget.Bucket(), Span: roundUp(h.Budget.Per, time.Millisecond)}
	return charge{Charge{Meter: m, Limit: h.Budget.Quota}, host}
}

// roundUp returns the least multiple of unit that is not less than d.
func roundUp(d, unit time.Duration) time.Duration { return (d + unit - 1) / unit * unit }

// charges returns the charges for the budgets that apply to a request to a host.
func (e *appliedEntry) charges(host string) (all []charge) {
	if e.Budget.IsSet() {
		all = append(all, e.charge(host))
	}
	for _, h := range e.budgets {
		all = append(all, h.charge(host))
	}
	return all
}

// hasBudget reports whether a budget may apply to requests to a host.
func (h *hosts) hasBudget(host string) bool {
	for i := h.next(host, 0); i >= 0; i = h.next(host, i+1) {
		if h.entries[i].Budget.IsSet() {
			return true
		}
		if h.paths[i] == nil {
			break
		}
	}
	return false
}

// budgetsOf is of for callers that need only the budgets. It does not look at the path if no budget can apply.
func (h *hosts) budgetsOf(r *Request) appliedEntry {
	if !h.hasBudget(r.Origin.Host) {
		return appliedEntry{Host: &noEntry}
	}
	return h.of(r)
}

// spent returns the error of a budget that applies to a request and is used up, and counts nothing; nil: as far as this process
// knows, the request fits. For a host without a budget it costs nothing.
func (e *Engine) spent(ctx context.Context, r *Request, entry *appliedEntry) *HoldError {
	if full := e.meters.checkKnown(ctx, entry.charges(r.Origin.Host)); full != nil {
		return full.held()
	}
	return nil
}

// Spent returns a *HoldError if a budget that applies to a request is used up, as far as this process knows. It counts nothing.
func (e *Engine) Spent(ctx context.Context, r *Request) error {
	entry := e.hosts.budgetsOf(r)
	if held := e.spent(ctx, r, &entry); held != nil {
		return held
	}
	return nil
}

// CountFetch counts a fetch of the proxy itself that was sent. It counts also if the budget of the host is used up. The Ticket is for
// the bytes.
func (e *Engine) CountFetch(t robots.Target) Ticket {
	entry := e.hosts.budgetsOf(&Request{Target: t})
	return e.meters.countAlways(entry.charges(t.Origin.Host))
}

// A BudgetUse is a budget of a host, and what was used of it.
type BudgetUse struct {
	// Host is the entry with the budget.
	Host

	// Used is what counts now. With Options.Quotas, it includes what other processes had used when this one last asked.
	Used Use

	// Next is when the next request fits; zero: now.
	Next time.Time
}

// Budgets returns the budgets that may apply to requests to a host now, in the order of Options.Hosts. The host is in the form of
// [robots.Origin].
func (e *Engine) Budgets(host string) (all []BudgetUse) {
	now := time.Now()
	for _, h := range e.EntriesFor(host) {
		if h.Budget.IsSet() {
			c := h.charge(host)
			used := e.meters.used(c.Meter, now)
			b := BudgetUse{Host: h, Used: used.sum()}
			if c.Limit.IsReached(b.Used) {
				b.Next = c.full(used, now, b.Used).Until
			}
			all = append(all, b)
		}
	}
	return all
}
