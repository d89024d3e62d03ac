package admin

import (
	"errors"
	"net/url"
	"strings"
	"time"

	"robotsproxy/cmd/internal/redis"
	"robotsproxy/policy/explain/humanize"
)

// A replicasView is the table of the replicas that share the store.
type replicasView struct {
	// Classes are the names of the columns of counts.
	Classes []string
	Rows    []replicaRow

	// Totals are the sums of the columns.
	Totals []int64
	Guard  string
}

// A replicaRow is one replica. All its text comes from the store.
type replicaRow struct {
	// Href is the URL of its dashboard; "": unknown, or it is this one.
	Href                  string
	Name, Version, Config string
	Self                  bool
	Healthy               badge
	Started               string
	Counts                []int64
}

func newReplicasView(s *Store) *replicasView {
	now := nowUTC()
	v := &replicasView{Totals: make([]int64, len(classOrder)), Guard: humanize.Duration(s.Guard)}
	for _, c := range classOrder {
		v.Classes = append(v.Classes, classBadges[c].Word)
	}
	for i := range s.Replicas {
		row := newReplicaRow(&s.Replicas[i], now)
		for i, n := range row.Counts {
			v.Totals[i] += n
		}
		v.Rows = append(v.Rows, row)
	}
	return v
}

func newReplicaRow(m *redis.Member, now time.Time) replicaRow {
	row := replicaRow{
		Name: clipPrintable(m.Name, maxCell), Version: clipPrintable(m.Version, maxCell), Config: clipPrintable(m.Config, maxCell),
		Self: m.Self, Started: timeAgo(now, m.Started), Healthy: healthBadge(nil),
	}
	if u, err := url.Parse(m.Dashboard); err == nil && !m.Self && (u.Scheme == "http" || u.Scheme == "https") {
		row.Href = u.String()
	}
	if len(m.Problems) > 0 {
		row.Healthy = healthBadge(errors.New(clipPrintable(strings.Join(m.Problems, "; "), maxCell)))
	}
	for _, c := range classOrder {
		row.Counts = append(row.Counts, m.LastHour[c.String()])
	}
	return row
}
