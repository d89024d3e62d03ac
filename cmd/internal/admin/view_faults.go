package admin

import (
	"cmp"
	"time"
)

const (
	// faultsRecent is how long after its last connection a client that fails to connect is on the overview.
	faultsRecent = time.Hour
	// maxFaultsShown is how many of them are there.
	maxFaultsShown = 3
)

// A faultRow is a client whose settings do not fit the proxy.
type faultRow struct {
	Client string

	// What is a predicate, as in "does not trust the proxy's CA".
	What string

	// Count is the number of connections.
	Count uint64

	// Host is that of the last tunnel; "": the client opened none.
	Host   string
	Last   string
	Advice string
}

// faultRows returns a row for each fault since a time, the latest first, and at most so many.
func (s *Server) faultRows(now, since time.Time, most int) (rows []faultRow) {
	for _, f := range s.opts.Faults() {
		if len(rows) == most || f.Last.Before(since) {
			break
		}
		rows = append(rows, faultRow{
			Client: cmp.Or(clipPrintable(f.Client, maxCell), "another client"), What: f.Kind.String(),
			Count: f.Count, Host: clipPrintable(f.Host, maxCell), Last: timeAgo(now, f.Last), Advice: f.Kind.Advice(),
		})
	}
	return rows
}
