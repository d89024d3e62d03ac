package admin

import (
	"cmp"
	"net/http"
	"strings"
	"time"

	"robotsproxy/policy"
	"robotsproxy/policy/explain/humanize"
)

// maxNetworks bounds the networks of a client that are listed.
const maxNetworks = 8

// A clientsView is the page of the clients of the configuration.
type clientsView struct {
	frame
	Clients []clientRow
	Count   string

	// Others counts the requests of clients that are known by their address, in words.
	Others string

	// Open is set if such clients may use the proxy.
	Open bool

	// More is the number of clients that are left out.
	More    int
	Faults  []faultRow
	Connect string
}

// A clientRow is a client of the configuration.
type clientRow struct {
	Name, Href string

	// From has its networks, and whether it logs in.
	From    string
	Dialect string

	// Purposes are those for which it fetches content; "": none are configured.
	Purposes string
	Pace     string
	Quota    string

	// QuotaUsed is set if no request is left today.
	QuotaUsed bool
	Requests  string
	Last      string
}

func (s *Server) showClients(w http.ResponseWriter, r *http.Request) {
	clients, open := s.opts.Engine().ClientUses()
	now := nowUTC()
	v := clientsView{
		frame: s.newFrame("Clients", "/clients"), Count: humanize.Count(len(clients), "client"), Open: open,
		More: max(0, len(clients)-maxEntries), Faults: s.faultRows(now, time.Time{}, maxEntries), Connect: s.connectAddress(r),
	}
	for i := range clients[:len(clients)-v.More] {
		v.Clients = append(v.Clients, s.newClientRow(&clients[i], now))
	}
	others := s.opts.Live.Client("")
	if v.Others = talliedText(&others); !others.Last.IsZero() {
		v.Others += ", last seen " + timeAgo(now, others.Last)
	}
	s.render(w, http.StatusOK, "clients", "frame", v)
}

func (s *Server) newClientRow(c *policy.ClientUse, now time.Time) clientRow {
	n := s.opts.Live.Client(c.Name)
	r := clientRow{
		Name: clipPrintable(c.Name, maxCell), Href: decisionsHref("client", c.Name), From: clientOrigin(c),
		Dialect: c.Dialect.Name, Purposes: c.Purposes.String(),
		Pace:  cmp.Or(strings.Join(limitTexts(c.Pace.PerSecond, c.Pace.Burst), ", "), "pace of the host"),
		Quota: "no quota", Requests: talliedText(&n), Last: timeAgo(now, n.Last),
	}
	if c.AssetBurst > 0 {
		r.Pace += ", " + humanize.Number(c.AssetBurst) + " page assets at once"
	}
	if c.Quota != (policy.Quota{}) {
		r.Quota, r.QuotaUsed = quotaText(c.Quota, c.Used), c.Quota.IsReached(c.Used)
	}
	return r
}

// quotaText says what was used of a quota.
func quotaText(q policy.Quota, used policy.Use) string {
	var parts []string
	if q.Requests > 0 {
		parts = append(parts, humanize.Number(used.Requests)+" of "+humanize.Number(q.Requests))
	}
	if q.Bytes > 0 {
		parts = append(parts, humanize.Bytes(used.Bytes)+" of "+humanize.Bytes(q.Bytes))
	}
	return strings.Join(parts, ", ")
}

// clientOrigin says by what a client is known.
func clientOrigin(c *policy.ClientUse) string {
	var all []string
	for i, n := range c.Networks {
		if i == maxNetworks {
			all = append(all, humanize.Number(len(c.Networks)-i)+" more")
			break
		}
		all = append(all, n.String())
	}
	from := strings.Join(all, ", ")
	switch {
	case from == "":
		return "any address, with a password"
	case c.Login:
		return from + ", with a password"
	}
	return from
}
