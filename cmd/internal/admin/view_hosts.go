package admin

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"robotsproxy/policy"
	"robotsproxy/policy/audit/live"
	"robotsproxy/policy/explain"
	"robotsproxy/policy/explain/humanize"
	"robotsproxy/robots/cache"
)

const (
	hostsPerPage = 50
	// filesPerHost bounds the origins of a host that the list shows.
	filesPerHost = 3
)

// A hostListView is one page of the list of hosts.
type hostListView struct {
	frame
	Count   string
	Query   string
	Sort    string
	Columns []column
	Hosts   []hostRow
	Unknown badge
	Range   string
	Pages   []pageLink
}

type column struct{ Name, Class, Href, Order string }

type pageLink struct{ Name, Href, Rel string }

// A classCount is the number of requests of one class.
type classCount struct {
	Name  string
	Count int64
}

type hostRow struct {
	Host, Href      string
	Files           []badge
	State           badge
	Gap, Next, Last string
	Queue, UnderWay int
	Counts          []classCount
}

func (s *Server) showHosts(w http.ResponseWriter, r *http.Request) {
	now, query := nowUTC(), r.URL.Query()
	v := hostListView{frame: s.newFrame("Hosts", "/hosts"), Query: query.Get("q"), Sort: query.Get("sort")}
	v.Flash = doneFlashes[query.Get("done")]
	order, ok := hostOrders[v.Sort]
	if !ok {
		v.Sort, order = "last", hostOrders["last"]
	}
	all := s.opts.sortedHosts()
	known := len(all)
	substring := strings.ToLower(v.Query)
	all = slices.DeleteFunc(all, func(h *hostState) bool { return !strings.Contains(strings.ToLower(h.Host), substring) })
	slices.SortStableFunc(all, order)
	v.Count = humanize.Count(len(all), "host") + " known"
	if len(all) < known {
		v.Count = fmt.Sprintf("%s of %s known", humanize.Number(len(all)), humanize.Count(known, "host"))
	}
	from, _ := strconv.Atoi(query.Get("from"))
	from = max(0, min(from, len(all)-1)/hostsPerPage*hostsPerPage)
	v.paginate(from, len(all))
	ruling := s.opts.rulings()
	var total live.Counts
	for _, h := range all {
		total.Add(&h.counts)
	}
	classes := shownClasses(&total, s.opts.Monitor())
	for _, h := range all[from:min(from+hostsPerPage, len(all))] {
		h.loadOrigins(ruling)
		v.Hosts = append(v.Hosts, newHostRow(h, classes, now))
	}
	v.Columns = v.columns(classes)
	// This comes last, because the URLs above need the query unescaped.
	v.Query = printable(v.Query)
	v.Unknown = badge{Kind: "plain", Icon: "none", Word: "Not fetched"}
	s.render(w, http.StatusOK, "hosts", "frame", v)
}

// href returns the URL of the list in an order, beginning at the given host.
func (v *hostListView) href(sort string, from int) string {
	q := url.Values{"sort": {sort}}
	if v.Query != "" {
		q.Set("q", v.Query)
	}
	if from > 0 {
		q.Set("from", strconv.Itoa(from))
	}
	return "/hosts?" + q.Encode()
}

func (v *hostListView) columns(classes []live.Class) (all []column) {
	type sortable struct{ name, sort, class string }
	columns := []sortable{
		{"Host", "host", ""}, {"robots.txt", "", ""}, {"State", "paused", ""}, {"Delay", "delay", "n"}, {"Queue", "queue", "n"},
		{"In flight", "under_way", "n"}, {"Next slot", "next", "n"},
	}
	for _, c := range classes {
		columns = append(columns, sortable{classBadges[c].Word, c.String(), "n"})
	}
	for _, c := range append(columns, sortable{"Last request", "last", "n"}) {
		col := column{Name: c.name, Class: c.class}
		if c.sort != "" {
			col.Href = v.href(c.sort, 0)
		}
		if c.sort == v.Sort {
			col.Order = "descending"
			if c.sort == "host" {
				col.Order = "ascending"
			}
		}
		all = append(all, col)
	}
	return all
}

// paginate sets the range that the page shows, and the links to the pages before and after it.
func (v *hostListView) paginate(from, total int) {
	if total <= hostsPerPage {
		return
	}
	end := min(from+hostsPerPage, total)
	v.Range = fmt.Sprintf("%s to %s of %s", humanize.Number(from+1), humanize.Number(end), humanize.Number(total))
	if from > 0 {
		v.Pages = append(v.Pages, pageLink{"Previous", v.href(v.Sort, from-hostsPerPage), "prev"})
	}
	if from+hostsPerPage < total {
		v.Pages = append(v.Pages, pageLink{"Next", v.href(v.Sort, from+hostsPerPage), "next"})
	}
}

// rulesText says how many rules a robots.txt has.
func rulesText(o *originState) string {
	if explain.IsHTML(&o.ruling) {
		return "no rule: an HTML page"
	}
	return humanize.Count(o.Rules, "rule")
}

func newHostRow(h *hostState, classes []live.Class, now time.Time) hostRow {
	r := hostRow{
		Host: clipPrintable(h.Host, maxCell), Href: hostHref(h.Host), State: stateBadge(h, now),
		Last: timeAgo(now, h.Last),
	}
	for _, c := range classes {
		r.Counts = append(r.Counts, classCount{classBadges[c].Word, h.counts[c]})
	}
	if p := h.Pace; p != nil {
		r.Queue, r.UnderWay, r.Next = p.Queue, p.UnderWay, h.nextSlotText(now)
		r.Gap = positiveDuration(secondsDuration(p.GapS))
	}
	for _, o := range h.Origins[:min(filesPerHost, len(h.Origins))] {
		file := fileBadge(&o)
		file.Note = o.origin.Scheme
		// An origin at the default port of its scheme does not name the port.
		if port := strconv.Itoa(int(o.origin.Port)); strings.HasSuffix(o.Origin, ":"+port) {
			file.Note += ", port " + port
		}
		if o.ruling.Meaning == cache.Rules {
			file.Note += ", " + rulesText(&o)
		}
		if age := timeAgo(now, o.Fetched); age != "" {
			file.Note += ", " + age
		}
		r.Files = append(r.Files, file)
	}
	if more := len(h.Origins) - filesPerHost; more > 0 {
		r.Files = append(r.Files, badge{Kind: "plain", Icon: "info", Word: "And " + humanize.Count(more, "origin") + " more"})
	}
	return r
}

// nextSlotText says when a request that comes now could be sent. h has a Pace.
func (h *hostState) nextSlotText(now time.Time) string {
	next, held := h.Pace.NextSlot, false
	if h.Pause != nil {
		next, held = h.Pause.Until, true
	} else if h.Held != nil {
		next, held = h.Held.Until, true
	}
	switch {
	case !next.IsZero():
		return timeUntil(now, next)
	case held:
		return "not known"
	}
	return "now"
}

func secondsDuration(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// fileBadge returns the state of an origin's robots.txt.
func fileBadge(o *originState) badge {
	switch {
	case o.Stale:
		return badge{Kind: "wait", Icon: "wait", Word: "Old copy"}
	case o.ruling.Meaning == cache.Rules:
		return badge{Kind: "", Icon: "info", Word: "File"}
	case o.ruling.Meaning == cache.NoFile:
		return badge{Kind: "", Icon: "none", Word: "No file"}
	case o.ruling.Meaning == cache.NoConnection:
		return badge{Kind: "block", Icon: "block", Word: "No connection"}
	}
	return badge{Kind: "block", Icon: "block", Word: "Unreachable"}
}

// heldLeft says how long a host is held back.
func heldLeft(h *heldState, now time.Time) string {
	if h.Until.IsZero() {
		return ""
	}
	return "for " + humanize.Duration(h.Until.Sub(now))
}

// stateBadge returns the state of a host.
func stateBadge(h *hostState, now time.Time) badge {
	switch p := h.Pace; {
	case h.Pause != nil:
		return badge{Kind: "wait", Icon: "stop", Word: "Paused", Note: pauseLeft(h.Pause, now)}
	case h.Held != nil:
		words := map[policy.Reason]string{policy.ReasonHours: "Outside hours", policy.ReasonCoolDown: "Cool-down"}
		return badge{Kind: "wait", Icon: "pause", Word: words[h.Held.Reason], Note: heldLeft(h.Held, now)}
	case p == nil:
		return badge{Kind: "plain", Icon: "none", Word: "Idle"}
	case p.PausedUntil.After(now):
		return badge{Kind: "wait", Icon: "pause", Word: "Back-off", Note: "for " + humanize.Duration(p.PausedUntil.Sub(now))}
	case p.SlowedS > 0:
		return badge{Kind: "wait", Icon: "wait", Word: "Slowed", Note: "to one in " + humanize.Duration(secondsDuration(p.SlowedS))}
	case p.Queue > 0:
		return badge{Kind: "wait", Icon: "wait", Word: "Queue"}
	case p.UnderWay > 0:
		return badge{Icon: "play", Word: "In flight"}
	}
	return badge{Kind: "plain", Icon: "none", Word: "Idle"}
}
