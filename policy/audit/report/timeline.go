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

	// Buckets are in their order, without those that have no request.
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
	// width is in seconds.
	width int64

	// buckets are by their start, in seconds since 1970.
	buckets map[int64]*bucket

	// first and last are the first and the last start.
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

func (t *timelineBuilder) add(e *trail.Entry) {
	if e.Time.Unix() < 0 {
		// No trail is so old, so the time is missing or made up.
		return
	}
	at := t.bucketStart(e.Time.Unix())
	if len(t.buckets) == 0 {
		t.first, t.last = at, at
	}
	for t.first, t.last = min(t.first, at), max(t.last, at); (t.last-t.first)/t.width >= maxBuckets; {
		t.widen()
		at = t.bucketStart(at)
	}
	b := t.buckets[at]
	if b == nil {
		b = &bucket{Start: time.Unix(at, 0).UTC()}
		t.buckets[at] = b
	}
	b.add(e)
}

// bucketStart returns the start of the bucket that has a time.
func (t *timelineBuilder) bucketStart(at int64) int64 { return at - at%t.width }

func (t *timelineBuilder) widen() {
	t.width = nextWidth(t.width)
	t.first, t.last = t.bucketStart(t.first), t.bucketStart(t.last)
	narrow := t.buckets
	t.buckets = make(map[int64]*bucket, len(narrow))
	for at, b := range narrow {
		at = t.bucketStart(at)
		if wide := t.buckets[at]; wide != nil {
			wide.merge(&b.outcomes)
			continue
		}
		b.Start = time.Unix(at, 0).UTC()
		t.buckets[at] = b
	}
}

func (t *timelineBuilder) timeline() timeline {
	made := timeline{Width: seconds(time.Duration(t.width) * time.Second), Buckets: []bucket{}}
	for _, at := range slices.Sorted(maps.Keys(t.buckets)) {
		made.Buckets = append(made.Buckets, *t.buckets[at])
	}
	return made
}
