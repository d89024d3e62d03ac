package admin

import (
	"fmt"
	"strings"
	"time"

	"robotsproxy/policy/audit/live"
	"robotsproxy/policy/explain/humanize"
)

// A chartView is the chart of a span as the page shows it without scripts: two static pictures
// and a table. A bar of the chart covers one bucket; a row of the table covers several bars.
type chartView struct {
	Span     string // "hour" or "day"
	Sentence string
	Step     string // length of a table row, in words
	Rows     []chartRow
	Width    int
	Allowed  string // SVG path, in a box of Width by 100
	Blocked  string
	Waiting  string

	totalAllowed, totalBlocked int64 // over the whole span
}

// A bucket has the counts of one part of a [live.Series].
type bucket struct {
	at                        time.Time
	allowed, blocked, waiting int64
}

type chartRow struct {
	Clock                     string
	Allowed, Blocked, Waiting int64
}

// A chartSpan is a time span that the user can choose.
type chartSpan struct {
	span             live.Span
	length           time.Duration
	barStep, rowStep time.Duration
	phrase           string // such as "the last hour"
	rowStepText      string
}

var chartSpans = map[string]chartSpan{
	"hour": {live.Hour, time.Hour, time.Minute, 5 * time.Minute, "the last hour", "five minutes"},
	"day":  {live.Day, 24 * time.Hour, 20 * time.Minute, 2 * time.Hour, "the last day", "two hours"},
}

// newChartView makes the chart of the named span, or of "hour" if there is no such span.
func newChartView(feed *live.Feed, name string, now time.Time) chartView {
	if _, ok := chartSpans[name]; !ok {
		name = "hour"
	}
	span := chartSpans[name]
	s := feed.Series(span.span)
	v := chartView{Span: name, Step: span.rowStepText, Width: int(span.length/span.barStep) * 10}
	for _, b := range buckets(s, span.rowStep) {
		v.Rows = append([]chartRow{{b.at.Format("15:04"), b.allowed, b.blocked, b.waiting}}, v.Rows...) // latest first
		v.totalAllowed += b.allowed
		v.totalBlocked += b.blocked
	}
	v.drawPaths(buckets(s, span.barStep), now.Add(-span.length), span.barStep)
	peak := int64(0)
	for _, n := range s.Waiting {
		peak = max(peak, n)
	}
	v.Sentence = fmt.Sprintf("In %s: %s allowed, %s blocked, at most %s waiting at once.", span.phrase, humanize.Number(v.totalAllowed), humanize.Number(v.totalBlocked), humanize.Number(peak))
	return v
}

// buckets adds up a Series in steps that are aligned to the clock.
func buckets(s live.Series, step time.Duration) (all []bucket) {
	for i := range s.Allowed {
		at := s.Start.Add(time.Duration(i) * s.Step).UTC().Truncate(step)
		if len(all) == 0 || !all[len(all)-1].at.Equal(at) {
			all = append(all, bucket{at: at})
		}
		b := &all[len(all)-1]
		b.allowed += s.Allowed[i]
		b.blocked += s.Blocked[i]
		b.waiting = max(b.waiting, s.Waiting[i])
	}
	return all
}

// drawPaths makes the SVG paths: allowed and blocked requests as stacked bars, waiting
// requests as a second row of bars.
func (v *chartView) drawPaths(all []bucket, from time.Time, step time.Duration) {
	peak, waiting := int64(1), int64(1)
	for _, b := range all {
		peak, waiting = max(peak, b.allowed+b.blocked), max(waiting, b.waiting)
	}
	var allowed, blocked, waits strings.Builder
	for _, b := range all {
		x := 10 * float64(b.at.Sub(from)) / float64(step)
		if x < 0 {
			continue
		}
		y := 100 - 100*float64(b.allowed)/float64(peak)
		top := y - 100*float64(b.blocked)/float64(peak)
		appendBar(&allowed, x, y, 100)
		appendBar(&blocked, x, top, y)
		appendBar(&waits, x, 100-100*float64(b.waiting)/float64(waiting), 100)
	}
	v.Allowed, v.Blocked, v.Waiting = allowed.String(), blocked.String(), waits.String()
}

// appendBar appends one bar to an SVG path, unless its height is almost zero.
func appendBar(b *strings.Builder, x, top, bottom float64) {
	if bottom-top >= .05 {
		fmt.Fprintf(b, "M%.1f %.1fV%.1fh8V%.1fz", x, bottom, top, bottom)
	}
}
