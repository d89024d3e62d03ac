package admin

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"robotsproxy/policy/explain/humanize"
	"robotsproxy/robots/cache"
)

const (
	hostsEach = 50 // in a page of the list
	filesEach = 3  // origins of one host in the list
)

// A hostIndex is a page of the list of hosts.
type hostIndex struct {
	frame
	Count   string
	Query   string
	Sort    string
	Columns []column
	Hosts   []hostRow
	Unknown is
	Range   string
	Pages   []pageLink
}

type column struct{ Name, Class, Href, Order string }

type pageLink struct{ Name, Href, Rel string }

type hostRow struct {
	Host, Href       string
	Files            []is
	State            is
	Gap, Next, Last  string
	Queue, UnderWay  int
	Allowed, Blocked int64
}

func (s *server) showHosts(w http.ResponseWriter, r *http.Request) {
	at, asked := now(), r.URL.Query()
	v := hostIndex{frame: s.frame("Hosts", "/hosts"), Query: asked.Get("q"), Sort: asked.Get("sort")}
	order, ok := orders[v.Sort]
	if !ok {
		v.Sort, order = "last", orders["last"]
	}
	all := s.o.hosts()
	known := len(all)
	part := strings.ToLower(v.Query)
	all = slices.DeleteFunc(all, func(h *hostState) bool { return !strings.Contains(strings.ToLower(h.Host), part) })
	slices.SortStableFunc(all, order)
	v.Count = humanize.Count(len(all), "host") + " known"
	if len(all) < known {
		v.Count = fmt.Sprintf("%s of %s known", humanize.Number(len(all)), humanize.Count(known, "host"))
	}
	from, _ := strconv.Atoi(asked.Get("from"))
	from = max(0, min(from, len(all)-1)/hostsEach*hostsEach)
	v.turn(from, len(all))
	dialect := s.o.Dialect()
	for _, h := range all[from:min(from+hostsEach, len(all))] {
		h.read(dialect)
		v.Hosts = append(v.Hosts, newHostRow(h, at))
	}
	v.Columns = v.columns()
	v.Query = visible(v.Query) // last: addresses have it as it is
	v.Unknown = is{Kind: "plain", Icon: "none", Word: "Not asked"}
	s.show(w, http.StatusOK, "hosts", "frame", v)
}

// address is that of the list in an order, from a host on.
func (v *hostIndex) address(sort string, from int) string {
	q := url.Values{"sort": {sort}}
	if v.Query != "" {
		q.Set("q", v.Query)
	}
	if from > 0 {
		q.Set("from", strconv.Itoa(from))
	}
	return "/hosts?" + q.Encode()
}

func (v *hostIndex) columns() (all []column) {
	for _, c := range []struct{ name, sort, class string }{
		{"Host", "host", ""}, {"robots.txt", "", ""}, {"State", "paused", ""}, {"Delay", "", "n"}, {"Queue", "queue", "n"}, {"Under way", "", "n"},
		{"Next slot", "", "n"}, {"Allowed", "allowed", "n"}, {"Blocked", "blocked", "n"}, {"Last request", "last", "n"},
	} {
		col := column{Name: c.name, Class: c.class}
		if c.sort != "" {
			col.Href = v.address(c.sort, 0)
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

// turn says which part of the list a page is, and where the others are.
func (v *hostIndex) turn(from, of int) {
	if of <= hostsEach {
		return
	}
	v.Range = fmt.Sprintf("%s to %s of %s", humanize.Number(from+1), humanize.Number(min(from+hostsEach, of)), humanize.Number(of))
	if from > 0 {
		v.Pages = append(v.Pages, pageLink{"Previous", v.address(v.Sort, from-hostsEach), "prev"})
	}
	if from+hostsEach < of {
		v.Pages = append(v.Pages, pageLink{"Next", v.address(v.Sort, from+hostsEach), "next"})
	}
}

func newHostRow(h *hostState, now time.Time) hostRow {
	r := hostRow{
		Host: cut(h.Host, maxCell), Href: hostHref(h.Host), State: stateOf(h.Pace, now),
		Allowed: h.Allowed, Blocked: h.Blocked, Last: ago(now, h.Last),
	}
	if p := h.Pace; p != nil {
		r.Queue, r.UnderWay, r.Next = p.Queue, p.UnderWay, nextSlot(p, now)
		if p.GapS > 0 {
			r.Gap = humanize.Duration(secondsOf(p.GapS))
		}
	}
	for _, o := range h.Origins[:min(filesEach, len(h.Origins))] {
		file := fileSign(&o)
		file.Note = o.of.Scheme
		if port := strconv.Itoa(int(o.of.Port)); strings.HasSuffix(o.Origin, ":"+port) { // it is not the scheme's own
			file.Note += ", port " + port
		}
		if o.ruling.Outcome == cache.Rules {
			file.Note += ", " + humanize.Count(o.Rules, "rule")
		}
		if age := ago(now, o.Fetched); age != "" {
			file.Note += ", " + age
		}
		r.Files = append(r.Files, file)
	}
	if more := len(h.Origins) - filesEach; more > 0 {
		r.Files = append(r.Files, is{Kind: "plain", Icon: "info", Word: "And " + humanize.Count(more, "origin") + " more"})
	}
	return r
}

// nextSlot says when a request that comes now might go.
func nextSlot(p *paceState, now time.Time) string {
	if p.NextSlot.IsZero() {
		return "now"
	}
	return ahead(now, p.NextSlot)
}

func secondsOf(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// fileSign says what came of an origin's robots.txt.
func fileSign(o *originState) is {
	switch {
	case o.Stale:
		return is{Kind: "wait", Icon: "wait", Word: "Old copy"}
	case o.ruling.Outcome == cache.Rules:
		return is{Kind: "", Icon: "info", Word: "File"}
	case o.ruling.Outcome == cache.NoFile:
		return is{Kind: "", Icon: "none", Word: "No file"}
	case o.ruling.Outcome == cache.NoConnection:
		return is{Kind: "block", Icon: "block", Word: "No connection"}
	}
	return is{Kind: "block", Icon: "block", Word: "Unreachable"}
}

// stateOf says what the pace of a host is at.
func stateOf(p *paceState, now time.Time) is {
	switch {
	case p == nil:
		return is{Kind: "plain", Icon: "none", Word: "Idle"}
	case p.PausedUntil.After(now):
		return is{Kind: "wait", Icon: "pause", Word: "Paused", Note: "for " + humanize.Duration(p.PausedUntil.Sub(now))}
	case p.SlowedS > 0:
		return is{Kind: "wait", Icon: "wait", Word: "Slowed", Note: "to one in " + humanize.Duration(secondsOf(p.SlowedS))}
	case p.Queue > 0:
		return is{Kind: "wait", Icon: "wait", Word: "Queue"}
	case p.UnderWay > 0:
		return is{Icon: "play", Word: "At work"}
	}
	return is{Kind: "plain", Icon: "none", Word: "Idle"}
}
