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

// A timelineBuilder sorts records into the buckets of a timeline.
type timelineBuilder struct{ spans[outcomes] }

func newTimelineBuilder() timelineBuilder {
	return timelineBuilder{newSpans(maxBuckets, (*outcomes).merge)}
}

func (t *timelineBuilder) add(e *trail.Entry) {
	// No trail is older than 1970, so such a time is missing or made up.
	if at := e.Time.Unix(); at >= 0 {
		t.at(at).add(e)
	}
}

func (t *timelineBuilder) timeline() timeline {
	made := timeline{Width: seconds(time.Duration(t.width) * time.Second), Buckets: []bucket{}}
	for _, at := range slices.Sorted(maps.Keys(t.buckets)) {
		made.Buckets = append(made.Buckets, bucket{time.Unix(at, 0).UTC(), *t.buckets[at]})
	}
	return made
}
