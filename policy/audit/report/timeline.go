package report

import (
	"maps"
	"slices"
	"time"

	"robotsproxy/policy/audit/trail"
)

// A timeline counts requests by the time when they arrived.
type timeline struct {
	Width seconds `json:"bucket_s"`

	// By time; those without a request are left out.
	Buckets []bucket `json:"buckets"`
}

// A bucket counts the requests from Start on, for the width of the timeline.
type bucket struct {
	Start time.Time `json:"start"`
	outcomes
}

// A timelineBuilder sorts records into buckets. It makes the buckets wider when there would be
// more than maxBuckets.
type timelineBuilder struct {
	// seconds.
	width int64

	// By start, in seconds since 1970.
	buckets map[int64]*bucket

	// first and last start.
	first, last int64
}

// widths are the widths of buckets, in seconds. Each is a multiple of the previous one. Whole
// days follow, which double.
var widths = []int64{1, 5, 15, 30, 60, 5 * 60, 15 * 60, 30 * 60, 3600, 3 * 3600, 6 * 3600, 12 * 3600, 24 * 3600}

// nextWidth returns the width after a width in seconds.
func nextWidth(width int64) int64 {
	for _, w := range widths {
		if w > width {
			return w
		}
	}
	return 2 * width
}

func newTimelineBuilder() timelineBuilder {
	return timelineBuilder{width: nextWidth(0), buckets: map[int64]*bucket{}}
}

func (c *timelineBuilder) add(e *trail.Entry) {
	if e.Time.Unix() < 0 {
		// No trail is so old: the time is missing, or made up.
		return
	}
	at := c.bucketStart(e.Time.Unix())
	if len(c.buckets) == 0 {
		c.first, c.last = at, at
	}
	for c.first, c.last = min(c.first, at), max(c.last, at); (c.last-c.first)/c.width >= maxBuckets; {
		c.widen()
		at = c.bucketStart(at)
	}
	b := c.buckets[at]
	if b == nil {
		b = &bucket{Start: time.Unix(at, 0).UTC()}
		c.buckets[at] = b
	}
	b.add(e)
}

// bucketStart returns the start of the bucket that has a time.
func (c *timelineBuilder) bucketStart(at int64) int64 { return at - at%c.width }

func (c *timelineBuilder) widen() {
	c.width = nextWidth(c.width)
	c.first, c.last = c.bucketStart(c.first), c.bucketStart(c.last)
	narrow := c.buckets
	c.buckets = make(map[int64]*bucket, len(narrow))
	for at, b := range narrow {
		at = c.bucketStart(at)
		if wide := c.buckets[at]; wide != nil {
			wide.merge(&b.outcomes)
			continue
		}
		b.Start = time.Unix(at, 0).UTC()
		c.buckets[at] = b
	}
}

func (c *timelineBuilder) timeline() timeline {
	t := timeline{Width: seconds(time.Duration(c.width) * time.Second), Buckets: []bucket{}}
	for _, at := range slices.Sorted(maps.Keys(c.buckets)) {
		t.Buckets = append(t.Buckets, *c.buckets[at])
	}
	return t
}
