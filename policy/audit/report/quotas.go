package report

import (
	"maps"
	"slices"
	"time"

	"robotsproxy/policy"
	"robotsproxy/policy/audit/trail"
	"robotsproxy/policy/explain/humanize"
)

// A quotaUse is what a client with a quota has used on the day on which it used the most.
type quotaUse struct {
	Client string `json:"client"`

	// Of is requests or bytes; Quota is the quota, as it is configured now.
	Of    string `json:"of"`
	Quota int64  `json:"quota"`

	// Day is that day (UTC), and Used what was used on it. Reached is on how many days the quota was reached.
	Day     string `json:"day"`
	Used    int64  `json:"used"`
	Reached int    `json:"days_reached"`
}

// maxQuotaDays bounds the days that are counted for a client.
const maxQuotaDays = 4000

// A quotaBuilder counts what clients have used of their quotas, by day.
type quotaBuilder struct {
	quotas map[string]policy.Quota
	days   map[string]map[int64]policy.Use
}

func newQuotaBuilder(quotas map[string]policy.Quota) quotaBuilder {
	return quotaBuilder{quotas, map[string]map[int64]policy.Use{}}
}

// add counts a request that was sent.
func (b *quotaBuilder) add(e *trail.Entry) {
	// Lines of earlier versions do not say when a request was sent.
	isSent := !e.Sent.IsZero() || e.Version < 3 && e.Decision == policy.Allow.String()
	if b.quotas[e.Client] == (policy.Quota{}) || !isSent {
		return
	}
	days, day := b.days[e.Client], e.Time.Unix()/(24*60*60)
	if days == nil {
		days = map[int64]policy.Use{}
		b.days[e.Client] = days
	}
	if used, known := days[day]; known || len(days) < maxQuotaDays {
		days[day] = used.Plus(policy.Use{Requests: 1, Bytes: max(0, e.Bytes)}, 1)
	}
}

// uses returns what was used of each quota.
func (b *quotaBuilder) uses() list[quotaUse] {
	all := list[quotaUse]{Rows: []quotaUse{}, Most: 2 * len(b.quotas)}
	for _, client := range slices.Sorted(maps.Keys(b.days)) {
		q := b.quotas[client]
		for _, u := range []quotaUse{{Client: client, Of: "requests", Quota: q.Requests}, {Client: client, Of: "bytes", Quota: q.Bytes}} {
			if u.Quota == 0 {
				continue
			}
			for _, day := range slices.Sorted(maps.Keys(b.days[client])) {
				used := b.days[client][day].Requests
				if u.Of == "bytes" {
					used = b.days[client][day].Bytes
				}
				if used >= u.Quota {
					u.Reached++
				}
				if u.Day == "" || used > u.Used {
					u.Day, u.Used = time.Unix(day*24*60*60, 0).UTC().Format(time.DateOnly), used
				}
			}
			all.add(u)
		}
	}
	return all
}

func (b *tableBuilder) quotas() displayTable {
	s := b.table("quotas", "client", "quota of a day", "most used", "on", "days reached")
	for _, u := range firstRows(&s, &b.report.Quotas, b.maxRows, "further rows") {
		amount := func(n int64) string { return humanize.Count(n, "request") }
		if u.Of == "bytes" {
			amount = humanize.Bytes[int64]
		}
		s.Rows = append(s.Rows, []string{shown(u.Client), amount(u.Quota), amount(u.Used), u.Day, humanize.Number(u.Reached)})
	}
	return s
}
