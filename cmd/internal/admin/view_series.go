package admin

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"robotsproxy/policy/audit/live"
	"robotsproxy/policy/explain/humanize"
)

// A chartView is the chart of a span as the page shows it without scripts: two static pictures
// and a table. A bar of the chart covers one bucket; a row of the table covers several bars.
type chartView struct {
	// Span is a key of chartSpans.
	Span     string
	Sentence string

	// Step is the length of a table row, in words.
	Step  string
	Bars  []chartBar
	Rows  []chartRow
	Width int

	// Waiting is an SVG path, in a box of Width by 100.
	Waiting string

	// counts are those of the whole span.
	counts live.Counts
}

// A chartBar is one class in the chart.
type chartBar struct {
	Badge badge

	// Path is an SVG path, in a box of Width by 100.
	Path string

	// Hidden is set if there is no such request.
	Hidden bool
}

// A bucket has the counts of one part of a [live.Series].
type bucket struct {
	at      time.Time
	counts  live.Counts
	waiting int64
}

type chartRow struct {
	Clock string

	// Counts are in the order of the Bars that are not hidden.
	Counts  []int64
	Waiting int64
}

// A chartSpan is a time span that the user can choose.
type chartSpan struct {
	span             live.Span
	length           time.Duration
	barStep, rowStep time.Duration

	// phrase is a text such as "the last hour".
	phrase      string
	rowStepText string
}

var chartSpans = map[string]chartSpan{
	"15min": {live.QuarterHour, 15 * time.Minute, 15 * time.Second, time.Minute, "the last 15 minutes", "one minute"},
	"hour":  {live.Hour, time.Hour, time.Minute, 5 * time.Minute, "the last hour", "five minutes"},
	"day":   {live.Day, 24 * time.Hour, 20 * time.Minute, 2 * time.Hour, "the last day", "two hours"},
}

// newChartView makes the chart of the named span, or of "hour" if there is no such span. With monitor,
// it shows requests that would be disallowed even if there are none.
func newChartView(feed *live.Feed, name string, monitor bool, now time.Time) chartView {
	if _, ok := chartSpans[name]; !ok {
		name = "hour"
	}
	span := chartSpans[name]
	s := feed.Series(span.span)
	v := chartView{Span: name, Step: span.rowStepText, Width: int(span.length/span.barStep) * 10}
	peak := int64(0)
	for i := range s.Counts {
		v.counts.Add(&s.Counts[i])
		peak = max(peak, s.Waiting[i])
	}
	shown := shownClasses(&v.counts, monitor)
	for _, b := range buckets(s, span.rowStep) {
		row := chartRow{Clock: b.at.Format("15:04"), Waiting: b.waiting}
		for _, c := range shown {
			row.Counts = append(row.Counts, b.counts[c])
		}
		// The latest row comes first.
		v.Rows = append([]chartRow{row}, v.Rows...)
	}
	v.drawPaths(buckets(s, span.barStep), now.Add(-span.length), span.barStep)
	for i, c := range classOrder {
		v.Bars[i].Hidden = !slices.Contains(shown, c)
	}
	v.Sentence = fmt.Sprintf("In %s: %s; at most %s waiting at once.", span.phrase, countsText(&v.counts, shown), humanize.Number(peak))
	return v
}

// buckets adds up a Series in steps that are aligned to the clock.
func buckets(s live.Series, step time.Duration) (all []bucket) {
	for i := range s.Counts {
		at := s.Start.Add(time.Duration(i) * s.Step).UTC().Truncate(step)
		if len(all) == 0 || !all[len(all)-1].at.Equal(at) {
			all = append(all, bucket{at: at})
		}
		b := &all[len(all)-1]
		b.counts.Add(&s.Counts[i])
		b.waiting = max(b.waiting, s.Waiting[i])
	}
	return all
}

// drawPaths makes the SVG paths: requests as bars with the classes stacked, waiting requests as a
// second row of bars.
func (v *chartView) drawPaths(all []bucket, from time.Time, step time.Duration) {
	peak, waiting := int64(1), int64(1)
	for _, b := range all {
		peak, waiting = max(peak, b.counts.Total()), max(waiting, b.waiting)
	}
	paths, waits := make([]strings.Builder, len(classOrder)), strings.Builder{}
	for _, b := range all {
		x := 10 * float64(b.at.Sub(from)) / float64(step)
		if x < 0 {
			continue
		}
		bottom := 100.
		for i, c := range classOrder {
			top := bottom - 100*float64(b.counts[c])/float64(peak)
			appendBar(&paths[i], x, top, bottom)
			bottom = top
		}
		appendBar(&waits, x, 100-100*float64(b.waiting)/float64(waiting), 100)
	}
	for i, c := range classOrder {
		v.Bars = append(v.Bars, chartBar{Badge: classBadges[c], Path: paths[i].String()})
	}
	v.Waiting = waits.String()
}

// appendBar appends one bar to an SVG path, unless its height is almost zero.
func appendBar(b *strings.Builder, x, top, bottom float64) {
	if bottom-top >= .05 {
		fmt.Fprintf(b, "M%.1f %.1fV%.1fh8V%.1fz", x, bottom, top, bottom)
	}
}
