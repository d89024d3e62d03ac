package report

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"robotsproxy/policy/explain/humanize"
)

// Positions in the chart over time, in units of its view box.
const (
	chartWidth  = 960
	chartHeight = 322
	plotLeft    = 88
	plotRight   = 956
	// The bars of requests stand on plotBase, and those of waits on waitBase.
	plotTop  = 26
	plotBase = 196
	waitTop  = 234
	waitBase = 292
	// Ticks have their labels so far below the lowest base.
	tickLine = 22

	chartTicks = 6
	// chartNumbers is the number of rows of the table beside the chart.
	chartNumbers = 48
)

// A drawing has the parts of a chart.
type drawing struct {
	Width, Height int

	// Lines are those of the scale.
	Lines []mark
	Areas []area
	Bases []mark
	Names []mark
	Ticks []mark
}

// A chart is a drawing of the timeline.
type chart struct {
	drawing

	// Step is the width of a bucket. From and To, and the buckets with the most requests and with the longest wait,
	// describe the drawing for readers who cannot see it.
	Step, From, To       string
	Busiest, Outcomes    string
	Slowest, LongestWait string

	Numbers displayTable
}

// A mark is a line or a label in a chart.
type mark struct {
	// From and To are the ends of a line, which is horizontal, or of a tick, which is vertical.
	From, To      int
	At, Y         int
	Label, Anchor string
}

// An area has the bars of one colour.
type area struct{ Class, Path string }

// A legend names a colour.
type legend struct{ Class, Name string }

func (r *Report) legend() (all []legend) {
	for _, k := range r.kinds() {
		all = append(all, legend{k.class, k.word})
	}
	return all
}

// chart draws the timeline, which must have a bucket.
func (r *Report) chart() *chart {
	all := r.Timeline.fill(1)
	width := r.Timeline.Width
	end := all[len(all)-1].Start.Add(time.Duration(width))
	busiest := slices.MaxFunc(all, func(a, b bucket) int { return cmp.Compare(a.sum(), b.sum()) })
	slowest := slices.MaxFunc(all, func(a, b bucket) int { return cmp.Compare(a.WaitMax, b.WaitMax) })
	most, longest := ceiling(float64(busiest.sum())), max(time.Duration(slowest.WaitMax).Seconds(), 1e-3)
	c := &chart{
		Step: humanize.Duration(width), From: stamp(all[0].Start), To: stamp(end),
		Busiest: stamp(busiest.Start), Outcomes: r.outcomesText(&busiest.outcomes),
		Slowest: stamp(slowest.Start), LongestWait: humanize.Duration(slowest.WaitMax),
	}
	c.drawing = drawing{
		Width: chartWidth, Height: chartHeight,
		Bases: []mark{{From: plotLeft, To: plotRight, Y: plotBase}, {From: plotLeft, To: plotRight, Y: waitBase}},
		Names: []mark{{At: plotLeft, Y: plotTop - 12, Label: "requests"}, {At: plotLeft, Y: waitTop - 12, Label: "longest wait"}},
		Ticks: ticks(all[0].Start, end, waitBase),
	}
	c.scale(most, plotBase)
	c.line(waitTop, c.LongestWait)
	c.line(waitBase, "0")
	up := (plotBase - plotTop) / most
	for i, k := range r.kinds() {
		below := r.kinds()[:i]
		c.Areas = append(c.Areas, draw(k.class, len(all), plotBase, up, func(bucket int) (from, to int64) {
			for _, k := range below {
				from += *k.of(&all[bucket].outcomes)
			}
			return from, from + *k.of(&all[bucket].outcomes)
		}))
	}
	up = (waitBase - waitTop) / longest / float64(time.Second)
	waited := func(bucket int) (from, to int64) { return 0, int64(all[bucket].WaitMax) }
	c.Areas = append(c.Areas, draw("waited", len(all), waitBase, up, waited))
	c.Areas = slices.DeleteFunc(c.Areas, func(a area) bool { return a.Path == "" })
	c.Numbers = r.numbers(r.Timeline.fill((len(all) + chartNumbers - 1) / chartNumbers))
	return c
}

// scale adds the lines of a scale from 0 to most, which stands on base.
func (d *drawing) scale(most float64, base int) {
	for _, part := range []float64{0, 0.5, 1} {
		d.line(int(float64(base)-part*float64(base-plotTop)), humanize.Number(part*most))
	}
}

// line adds a line of a scale.
func (d *drawing) line(y int, label string) {
	d.Lines = append(d.Lines, mark{From: plotLeft, To: plotRight, At: plotLeft - 8, Y: y, Label: label})
}

// sum returns the number of requests.
func (b *bucket) sum() int64 { return b.Allowed + b.NotEnforced + b.Blocked }

// fill returns a bucket for every so many widths from the first to the last, also for those
// without requests. It calculates in seconds, since a Duration ends at 292 years.
func (t *timeline) fill(widths int) []bucket {
	first, last := t.Buckets[0].Start.Unix(), t.Buckets[len(t.Buckets)-1].Start.Unix()
	step := int64(time.Duration(t.Width).Seconds()) * int64(widths)
	all := make([]bucket, (last-first)/step+1)
	for i := range all {
		all[i].Start = time.Unix(first+int64(i)*step, 0).UTC()
	}
	for i := range t.Buckets {
		all[(t.Buckets[i].Start.Unix()-first)/step].merge(&t.Buckets[i].outcomes)
	}
	return all
}

// draw makes the bars of one colour for so many buckets. Wide bars have a gap between them.
func draw(class string, buckets, base int, up float64, of func(bucket int) (from, to int64)) area {
	wide := float64(plotRight-plotLeft) / float64(buckets)
	bar := min(wide, 64)
	if wide > 4 {
		bar = min(wide*0.82, 64)
	}
	var path []byte
	for i := range buckets {
		from, to := of(i)
		if to <= from {
			continue
		}
		x := plotLeft + float64(i)*wide + (wide-bar)/2
		// A single request has to be seen too.
		height := max(float64(to-from)*up, 0.5)
		y := float64(base) - float64(from)*up
		path = fmt.Appendf(path, "M%v %vv%vh%vv%vz", point(x), point(y), point(-height), point(bar), point(height))
	}
	return area{class, string(path)}
}

// point rounds a coordinate to one decimal.
func point(v float64) float64 { return math.Round(v*10) / 10 }

// ceiling returns the least 2, 4, 6, 8 or 10 times a power of ten that is not below v, so that its
// half is a whole number.
func ceiling(v float64) float64 {
	v = max(v, 1)
	power := math.Pow(10, math.Floor(math.Log10(v)))
	return 2 * power * math.Ceil(v/power/2)
}

// ticks returns the times along the lower edge at base: whole seconds, none twice.
func ticks(first, end time.Time, base int) []mark {
	span := end.Unix() - first.Unix()
	layout := "2 Jan"
	switch {
	case span < 60*60:
		layout = time.TimeOnly
	case span < (chartTicks+1)*24*60*60:
		layout = "2 Jan 15:04"
	case first.UTC().Year() != end.UTC().Year():
		layout = "2 Jan 2006"
	}
	var marks []mark
	most := min(chartTicks, max(span, 1))
	for i := range most + 1 {
		at := span * i / most
		m := mark{At: plotLeft + (plotRight-plotLeft)*int(i)/int(most), Y: base + tickLine, From: base, To: base + 5, Anchor: "middle"}
		m.Label = time.Unix(first.Unix()+at, 0).UTC().Format(layout)
		switch i {
		case 0:
			m.Anchor = "start"
		case most:
			m.Anchor = "end"
		}
		marks = append(marks, m)
	}
	return marks
}

// numbers returns a chart's numbers as a table.
func (r *Report) numbers(all []bucket) displayTable {
	v := tableBuilder{report: r}
	s := displayTable{ID: "numbers", Title: "Requests over time"}
	s.Columns = slices.Concat(columns("from (UTC)"), v.countColumns(false), columns("waited", "longest wait"))
	s.Keys, s.Counts = 1, len(s.Columns)-1
	for i := range all {
		b := &all[i]
		cells := v.countCells(&counts{Requests: b.sum(), outcomes: b.outcomes}, false)
		waits := []string{humanize.Number(b.Waited), humanize.Duration(b.WaitMax)}
		s.Rows = append(s.Rows, slices.Concat([]string{stamp(b.Start)}, cells, waits))
	}
	return s
}
