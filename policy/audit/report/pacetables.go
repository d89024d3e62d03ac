package report

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"robotsproxy/policy/explain/humanize"
)

func (b *tableBuilder) pace() displayTable {
	keys := []string{"host"}
	several := len(b.report.Source.Trails) > 0
	if several {
		keys = append(keys, "replica")
	}
	s := b.table("pace", append(keys, "sent", "shortest", "median", "in 10 s", "in 60 s", "below delay", "records say")...)
	rows := firstRows(&s, &b.report.Pace.Hosts, b.maxRows, "further rows, or requests to further sites")
	for i := range rows {
		p := &rows[i]
		row := []string{shown(p.Host)}
		if several {
			row = append(row, cmp.Or(humanize.Printable(p.Replica), "all"))
		}
		below := ""
		if p.Compared > 0 {
			below = humanize.Number(p.Shorter.Sum())
		}
		s.Rows = append(s.Rows, append(row,
			humanize.Number(p.Sent), p.intervalText(p.Shortest), p.intervalText(p.Median),
			humanize.Number(p.In10s), humanize.Number(p.InMinute), below, p.Shorter.Text(),
		))
	}
	return s
}

// Kept returns the number of intervals that kept the delay in force.
func (p *pacing) Kept() int64 { return p.Compared - p.Shorter.Sum() }

// intervalText returns an interval of a row; "": there is none.
func (p *pacing) intervalText(interval seconds) string {
	if p.intervals == nil {
		return ""
	}
	return brief(interval)
}

// brief returns an interval; humanize.Duration rounds up to 1 ms.
func brief(interval seconds) string {
	if interval > 0 && time.Duration(interval) < time.Millisecond {
		return "under 1 ms"
	}
	return humanize.Duration(interval)
}

// Text lists the causes with their numbers.
func (s *shorter) Text() string {
	var parts []string
	for _, c := range shorterCauses {
		if n := *c.of(s); n > 0 {
			parts = append(parts, c.word+" "+humanize.Number(n))
		}
	}
	return strings.Join(parts, ", ")
}

func (b *tableBuilder) delays() displayTable {
	s := b.table("delays", "host", "delay", "source", "sent", "first request", "last request")
	rows := firstRows(&s, &b.report.Pace.Delays, b.maxRows, "further rows or requests")
	for i := range rows {
		d := &rows[i]
		text := humanize.Duration(d.Delay)
		if d.Longest > d.Delay {
			text += " to " + humanize.Duration(d.Longest)
		}
		s.Rows = append(s.Rows, []string{shown(d.Host), text, d.source(), humanize.Number(d.Requests), stamp(d.First), stamp(d.Last)})
	}
	return s
}

// source says where a delay is from.
func (d *effectiveDelay) source() string {
	var text string
	switch d.Source {
	case fromCrawlDelay:
		text = fmt.Sprintf("robots.txt, line %d", d.Line)
		if d.Asked > d.Delay {
			text += ", which asks for " + humanize.Duration(d.Asked)
		}
	case fromSlowHost:
		text = "slow responses"
	case fromShare:
		text = "a share of the rate: the store was unavailable"
	default:
		text = "configuration"
	}
	if d.Burst > 1 {
		text += fmt.Sprintf(", at most %d at once", d.Burst)
	}
	if d.Entry != "" {
		text += ", with the entry " + shown(d.Entry)
		if d.Ignored {
			text += ", which ignores robots.txt and its Crawl-delay"
		}
		if d.EntryReason != "" {
			text += " (" + shown(d.EntryReason) + ")"
		}
	}
	return text
}

func (b *tableBuilder) backOffs() displayTable {
	s := b.table("back-offs",
		"host", "began", "length", "response to", "client", "delayed", "sent during", "others' during", "next request")
	rows := firstRows(&s, &b.report.Pace.BackOffs, b.maxRows, "further rows or requests")
	for i := range rows {
		o := &rows[i]
		row := []string{
			shown(o.Host), stamp(o.Began), humanize.Duration(o.Length), shown(o.By), "", humanize.Number(o.Delayed), "", "", "",
		}
		if !o.Began.IsZero() {
			row[4], row[6] = shown(o.Client), humanize.Number(o.During)
			row[7] = humanize.Number(o.Others)
		}
		switch {
		case o.Unknown > 0:
			row[7] = fmt.Sprintf("%s, or the same client's", humanize.Number(o.Unknown))
		case b.report.Filters.Client != "":
			row[7] = ""
		}
		if !o.Next.IsZero() {
			row[8] = stamp(o.Next)
		}
		if !o.EndedByOperator.IsZero() {
			row[2] += ", ended by an operator at " + stamp(o.EndedByOperator)
		}
		s.Rows = append(s.Rows, row)
	}
	return s
}

func (b *tableBuilder) versions() displayTable {
	s := b.table("versions",
		"robots.txt of", "version", "fetches", "first fetch", "last fetch", "next version", "sent before", "sent after")
	rows := firstRows(&s, &b.report.Versions, b.maxRows, "further versions")
	for i := range rows {
		v := &rows[i]
		row := []string{
			shown(strings.TrimSuffix(v.URL, "/robots.txt")), "no file",
			humanize.Number(v.Fetches), stamp(v.First), stamp(v.Last), "", "", "",
		}
		if v.Agent != "" {
			row[0] += " for " + shown(v.Agent)
		}
		if v.SHA256 != "" {
			row[1] = digest(v.SHA256)
		}
		if !v.Until.IsZero() {
			row[5], row[6], row[7] = stamp(v.Until), humanize.Number(v.AfterLast), humanize.Number(v.AfterNext)
		}
		s.Rows = append(s.Rows, row)
	}
	return s
}
