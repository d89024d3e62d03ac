package report

import (
	"fmt"
	"time"

	"robotsproxy/policy/explain/humanize"
)

const (
	// pacedSites is the number of sites with a chart.
	pacedSites = 6

	// paceBase is where the bars stand, and paceHeight the height of the drawing.
	paceBase   = 116
	paceHeight = 142
)

// A paceChart is a drawing of the requests to a site over time, against what its delay permitted.
type paceChart struct {
	drawing
	Host, Step, From, To string

	// Most is the most requests in a step, and MostPermitted the most that the delay permitted in one.
	Most, MostPermitted string
	Numbers             displayTable
}

// paceCharts returns the charts of the sites with the most requests of whose delay something is known.
func (r *Report) paceCharts() (all []paceChart) {
	for i := range r.Pace.Hosts.Rows {
		if p := &r.Pace.Hosts.Rows[i]; len(all) < pacedSites && p.OverTime != nil && p.Compared > 0 {
			all = append(all, p.chart(len(all)))
		}
	}
	return all
}

// chart draws a row that has its requests over time. n tells the charts of a page apart.
func (p *pacing) chart(n int) paceChart {
	all := p.OverTime.fill()
	width := time.Duration(p.OverTime.Width)
	end := all[len(all)-1].Start.Add(width)
	var most, permitted int64
	for i := range all {
		most, permitted = max(most, all[i].Sent), max(permitted, all[i].permitted(width))
	}
	highest := ceiling(float64(max(most, permitted)))
	up := (paceBase - plotTop) / highest
	c := paceChart{
		Host: shown(p.Host), Step: humanize.Duration(width), From: stamp(all[0].Start), To: stamp(end),
		Most: humanize.Number(most), MostPermitted: humanize.Number(permitted),
		drawing: drawing{
			Width: chartWidth, Height: paceHeight,
			Bases: []mark{{From: plotLeft, To: plotRight, Y: paceBase}},
			Names: []mark{{At: plotLeft, Y: plotTop - 12, Label: "requests"}},
			Ticks: ticks(all[0].Start, end, paceBase),
			Areas: []area{
				draw("allowed", len(all), paceBase, up, func(bucket int) (from, to int64) { return 0, all[bucket].Sent }),
				{"permitted", permittedLine(all, width, up)},
			},
		},
		Numbers: displayTable{
			ID: fmt.Sprintf("pace-%d", n), Title: "Requests to " + shown(p.Host) + " over time",
			Columns: columns("from (UTC)", "sent", "permitted", "delay"),
		},
	}
	c.scale(highest, paceBase)
	for i := range all {
		b := &all[i]
		row := []string{stamp(b.Start), humanize.Number(b.Sent), "", ""}
		if b.Delay > 0 {
			row[2], row[3] = humanize.Number(b.permitted(width)), humanize.Duration(b.Delay)
		}
		c.Numbers.Rows = append(c.Numbers.Rows, row)
	}
	return c
}

// permittedLine returns the path of the line of what was permitted.
func permittedLine(all []pacedBucket, width time.Duration, up float64) string {
	wide := float64(plotRight-plotLeft) / float64(len(all))
	var path []byte
	for i := range all {
		n := all[i].permitted(width)
		if n == 0 {
			continue
		}
		y := point(paceBase - float64(n)*up)
		if len(path) == 0 {
			path = fmt.Appendf(path, "M%v %v", point(plotLeft+float64(i)*wide), y)
		}
		path = fmt.Appendf(path, "V%vH%v", y, point(plotLeft+float64(i+1)*wide))
	}
	return string(path)
}

// fill returns a bucket for every width from the first to the last. Those without requests have the delay of the one before.
func (o *overTime) fill() []pacedBucket {
	first, last := o.Buckets[0].Start.Unix(), o.Buckets[len(o.Buckets)-1].Start.Unix()
	step := int64(time.Duration(o.Width).Seconds())
	all := make([]pacedBucket, (last-first)/step+1)
	for i := range o.Buckets {
		all[(o.Buckets[i].Start.Unix()-first)/step] = o.Buckets[i]
	}
	for i := range all {
		all[i].Start = time.Unix(first+int64(i)*step, 0).UTC()
		if i > 0 && all[i].Delay == 0 {
			all[i].Delay = all[i-1].Delay
		}
	}
	return all
}
