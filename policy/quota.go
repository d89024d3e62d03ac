package policy

import (
	"context"
	"errors"
	"fmt"
	"time"

	"robotsproxy/policy/explain/humanize"
)

// ErrQuota matches each [QuotaError] with errors.Is.
var ErrQuota = errors.New("daily quota of the client used up")

// A QuotaError reports that a client has used its quota for the day. It is [ErrQuota].
type QuotaError struct {
	Quota Quota
	Used  Use

	// Until is the next midnight, UTC.
	Until time.Time

	// host and per are the host and the period of a budget; zero: it is the quota of a client.
	host string
	per  time.Duration
}

func (e *QuotaError) Error() string { return ErrQuota.Error() + ": " + e.amount() }

// amount returns what is used up.
func (e *QuotaError) amount() string {
	if e.isOfRequests() {
		return fmt.Sprintf("%d requests", e.Quota.Requests)
	}
	return fmt.Sprintf("%d bytes", e.Quota.Bytes)
}

// isOfRequests reports whether the requests are used up, and not only the bytes.
func (e *QuotaError) isOfRequests() bool {
	return e.Quota.Requests > 0 && e.Used.Requests >= e.Quota.Requests
}

// held returns the error of a budget.
func (e *QuotaError) held() *HoldError {
	amount := humanize.Bytes(e.Quota.Bytes)
	if e.isOfRequests() {
		amount = humanize.Count(e.Quota.Requests, "request")
	}
	detail := "The budget of this host is used up: " + amount + " in " + humanize.Duration(e.per) + " (budget in hosts)"
	return &HoldError{ReasonBudget, e.Until, detail}
}

// refusal returns e, or the *HoldError of a budget; nil if e is nil.
func (e *QuotaError) refusal() error {
	switch {
	case e == nil:
		return nil
	case e.host != "":
		return e.held()
	}
	return e
}

// Is makes a QuotaError ErrQuota.
func (e *QuotaError) Is(target error) bool { return target == ErrQuota }

// A Quota is the maximum use in a period: of a client in a day, or at a host in the period of its [Budget]. A zero field limits nothing.
type Quota struct{ Requests, Bytes int64 }

// IsReached reports whether nothing is left after a use.
func (q Quota) IsReached(u Use) bool {
	return q.Requests > 0 && u.Requests >= q.Requests || q.Bytes > 0 && u.Bytes >= q.Bytes
}

// A Use is what was used: requests that took a slot, and bytes of their responses and of tunnels.
type Use struct {
	Requests int64 `json:"requests"`
	Bytes    int64 `json:"bytes"`
}

// Plus returns the sum of u and n times v.
func (u Use) Plus(v Use, n int64) Use { return Use{u.Requests + n*v.Requests, u.Bytes + n*v.Bytes} }

// quotaMeter returns the meter of a client's quota. Its buckets are the UTC days, of which only the present one counts.
func quotaMeter(client string) Meter { return Meter{Name: "quota:" + client, Width: 24 * time.Hour} }

// charges returns what a request is charged to: the quota of its client, and the budgets of its host.
func (e *Engine) charges(client *clientState, entry *appliedEntry, host string) (all []charge) {
	if client.Quota != (Quota{}) {
		all = append(all, charge{Charge: Charge{Meter: quotaMeter(client.Name), Limit: client.Quota}})
	}
	return append(all, entry.charges(host)...)
}

// Take counts a request that is about to be sent: in the quota of its client, and in the budgets of its host that apply. It
// returns a [*QuotaError] or a *HoldError if one of them is used up, and then has counted nothing, or the cause of ctx. The processes
// that share Options.Quotas count together.
func (e *Engine) Take(ctx context.Context, r *Request) (Ticket, error) {
	entry := e.hosts.budgetsOf(r)
	return e.meters.take(ctx, e.charges(e.clientState(r.Client), &entry, r.Origin.Host))
}

// CheckTake returns the error that Take would return because something is used up, and counts nothing.
func (e *Engine) CheckTake(ctx context.Context, r *Request) error {
	entry := e.hosts.budgetsOf(r)
	return e.meters.check(ctx, e.charges(e.clientState(r.Client), &entry, r.Origin.Host)).refusal()
}

// ChangedUses returns what the meters have counted that have changed since the last call, of this Engine or of one that it was
// renewed from or to. It is for Options.Used of a later process.
func (e *Engine) ChangedUses() []MeterUse { return e.meters.changes(time.Now()) }

// TellStore tells Options.Quotas what was counted without asking it: bytes, fetches, and requests that were given back, or taken
// while the store was unavailable. What it cannot tell is kept for the next call.
func (e *Engine) TellStore(ctx context.Context) { e.meters.tell(ctx) }
