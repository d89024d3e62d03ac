package report

import (
	"maps"
	"math"
	"slices"
	"time"
)

// An overTime has the requests to a host over time, against what its delay permitted.
type overTime struct {
	Width seconds `json:"bucket_s"`

	// Buckets are in their order, without those that have no request.
	Buckets []pacedBucket `json:"buckets"`
}

// A pacedBucket has the requests that were sent from Start on, for the width of the buckets.
type pacedBucket struct {
	Start time.Time `json:"start"`
	paced
}

// paced are requests that were sent within a time.
type paced struct {
	Sent int64 `json:"sent"`

	// Delay is the shortest delay that was in force; zero: the records have none.
	Delay seconds `json:"delay_s"`
}

// maxPacedBuckets bounds the buckets of a host, without the empty ones.
const maxPacedBuckets = 60

func (p *paced) merge(o *paced) {
	p.Sent += o.Sent
	p.within(o.Delay)
}

// within notes a delay that was in force.
func (p *paced) within(delay seconds) {
	if delay > 0 && (p.Delay == 0 || delay < p.Delay) {
		p.Delay = delay
	}
}

// permitted returns how many requests the delay permits within a time, without a burst; 0: there is no delay.
func (p *paced) permitted(within time.Duration) int64 {
	if p.Delay == 0 {
		return 0
	}
	return int64(math.Ceil(within.Seconds() / time.Duration(p.Delay).Seconds()))
}

func (p *pacing) addOverTime(s *sending) {
	if at := s.at.Unix(); at >= 0 {
		b := p.spans.at(at)
		b.Sent++
		b.within(seconds(s.delay))
	}
}

// finished returns a row with what is computed from all requests.
func (p *pacing) finished() pacing {
	row := *p
	// It is one of a few lengths.
	row.Median = max(row.Shortest, row.intervals.median(seconds(row.longest)))
	row.last, row.recent = nil, nil
	if p.Replica != "" || len(p.spans.buckets) == 0 {
		return row
	}
	row.OverTime = &overTime{Width: seconds(time.Duration(p.spans.width) * time.Second)}
	for _, at := range slices.Sorted(maps.Keys(p.spans.buckets)) {
		row.OverTime.Buckets = append(row.OverTime.Buckets, pacedBucket{time.Unix(at, 0).UTC(), *p.spans.buckets[at]})
	}
	return row
}
