package admin

import (
	"strings"
	"time"

	"robotsproxy/policy"
	"robotsproxy/policy/explain/humanize"
)

// A budgetState is a budget of a host in the API.
type budgetState struct {
	// Entry has the names of the entry, see policy.Host.Names, with spaces between them.
	Entry string `json:"entry"`

	// Requests and Bytes are the budget; zero: it does not limit them.
	Requests     int64 `json:"requests,omitempty"`
	RequestsUsed int64 `json:"requests_used"`
	Bytes        int64 `json:"bytes,omitempty"`
	BytesUsed    int64 `json:"bytes_used"`

	// PerS is the period in seconds.
	PerS float64 `json:"per_s"`

	// Next is when the next request fits; zero: now.
	Next time.Time `json:"next,omitzero"`
}

// budgetStates returns the budgets of a host.
func (s *Server) budgetStates(host string) (all []budgetState) {
	for _, b := range s.opts.Engine().Budgets(host) {
		all = append(all, budgetState{
			Entry: budgetEntry(&b), Requests: b.Budget.Requests, RequestsUsed: b.Used.Requests, Bytes: b.Budget.Bytes,
			BytesUsed: b.Used.Bytes, PerS: b.Budget.Per.Seconds(), Next: b.Next.UTC(),
		})
	}
	return all
}

// budgetEntry names the entry of a budget.
func budgetEntry(b *policy.BudgetUse) string { return strings.Join(b.Names(), " ") }

// A budgetRow is a budget on the page of its host.
type budgetRow struct {
	Entry, Period, Used, Left string

	// Full says that the budget is used up.
	Full bool
	Next string
}

// budgetRows returns the budgets of a host.
func (s *Server) budgetRows(host string, now time.Time) (rows []budgetRow) {
	for _, b := range s.opts.Engine().Budgets(host) {
		row := budgetRow{
			Entry: clipPrintable(budgetEntry(&b), maxCell), Period: humanize.Duration(b.Budget.Per),
			Used: quotaText(b.Budget.Quota, b.Used), Full: !b.Next.IsZero(), Next: "now",
		}
		if row.Full {
			row.Next = timeUntil(now, b.Next)
		}
		var left []string
		if most := b.Budget.Requests; most > 0 {
			left = append(left, humanize.Count(max(0, most-b.Used.Requests), "request"))
		}
		if most := b.Budget.Bytes; most > 0 {
			left = append(left, humanize.Bytes(max(0, most-b.Used.Bytes)))
		}
		row.Left = strings.Join(left, ", ")
		rows = append(rows, row)
	}
	return rows
}
