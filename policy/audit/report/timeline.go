package report

import (
	"maps"
	"slices"
	"time"

	"robotsproxy/policy/audit/trail"
)

// A timeline counts by the time when requests came.
type timeline struct {
	Width   seconds  `json:"bucket_s"`
	Buckets []bucket `json:"buckets"` // by time; those without a request are left out
}

// A bucket counts what came from Start on, for the timeline's width.
type bucket struct {
	Start time.Time `json:"start"`
	outcomes
}

// A clock sorts records into buckets, which it makes wider when they would become
// more than maxBuckets.
type clock struct {
	width       int64             // seconds
	buckets     map[int64]*bucket // by start: seconds since 1970
	first, last int64             // of these
}

// widths are those of buckets, in minutes; each is a multiple of the one before. Then
// come days, doubling.
var widths = []int64{1, 5, 15, 30, 60, 180, 360, 720, 1440}

// wider is the width after one of so many seconds.
func wider(width int64) int64 {
	for _, minutes := range widths {
		if minutes*60 > width {
			return minutes * 60
		}
	}
	return 2 * width
}

func newClock() clock { return clock{width: wider(0), buckets: map[int64]*bucket{}} }

func (c *clock) add(e *trail.Entry) {
	if e.Time.Unix() < 0 {
		return // no trail is so old: the time is missing, or made up
	}
	at := c.start(e.Time.Unix())
	if len(c.buckets) == 0 {
		c.first, c.last = at, at
	}
	for c.first, c.last = min(c.first, at), max(c.last, at); (c.last-c.first)/c.width >= maxBuckets; {
		c.widen()
		at = c.start(at)
	}
	b := c.buckets[at]
	if b == nil {
		b = &bucket{Start: time.Unix(at, 0).UTC()}
		c.buckets[at] = b
	}
	b.add(e)
}

// start is where the bucket begins that holds a time.
func (c *clock) start(at int64) int64 { return at - at%c.width }

func (c *clock) widen() {
	c.width = wider(c.width)
	c.first, c.last = c.start(c.first), c.start(c.last)
	narrow := c.buckets
	c.buckets = make(map[int64]*bucket, len(narrow))
	for at, b := range narrow {
		at = c.start(at)
		if wide := c.buckets[at]; wide != nil {
			wide.merge(&b.outcomes)
			continue
		}
		b.Start = time.Unix(at, 0).UTC()
		c.buckets[at] = b
	}
}

func (c *clock) timeline() timeline {
	t := timeline{Width: seconds(time.Duration(c.width) * time.Second), Buckets: []bucket{}}
	for _, at := range slices.Sorted(maps.Keys(c.buckets)) {
		t.Buckets = append(t.Buckets, *c.buckets[at])
	}
	return t
}
