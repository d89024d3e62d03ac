package policy

import (
	"cmp"
	"slices"
	"time"
)

// A Meter says what is counted together, and for how long: requests and bytes of the quota of a client, or of the budget of a host.
type Meter struct {
	// Name tells meters apart. It is ASCII, except for the name of a client.
	Name string `json:"name"`

	// Width is how long a bucket lasts, in whole milliseconds. Buckets end at multiples of it since 1970, so that all processes agree
	// on them. What is counted at the very end of a bucket belongs to the next one.
	Width time.Duration `json:"width"`

	// Span is how long a bucket counts after its end, in whole milliseconds.
	Span time.Duration `json:"span"`
}

// end returns the end of the bucket of a time, in milliseconds since 1970.
func (m Meter) end(now time.Time) int64 {
	width := m.Width.Milliseconds()
	return (now.UnixMilli()/width + 1) * width
}

// over returns the end of the last bucket that does not count at a time.
func (m Meter) over(now time.Time) int64 { return now.UnixMilli() - m.Span.Milliseconds() }

// isOfBudget reports whether the meter is that of a budget. A quota ends with its bucket.
func (m Meter) isOfBudget() bool { return m.Span > 0 }

// A Bucket is what was used in a part of time.
type Bucket struct {
	// End is when the bucket ends, in milliseconds since 1970.
	End int64 `json:"end"`
	Use
}

// MaxBuckets is the maximum number of buckets of a meter. There can be more only after its Width has changed; the oldest are then
// added together.
const MaxBuckets = 20

// maxUse is the maximum of each number in a Bucket: up to it, a script of Redis calculates exactly.
const maxUse = 1 << 53

// AreValid reports whether all are possible buckets of a meter: at most MaxBuckets, in the order of their ends, with numbers in range.
func AreValid(all []Bucket) bool {
	return len(all) <= MaxBuckets && slices.IsSortedFunc(all, func(a, b Bucket) int { return cmp.Compare(a.End, b.End) }) &&
		!slices.ContainsFunc(all, func(b Bucket) bool {
			return min(b.End, b.Requests, b.Bytes) < 0 || max(b.End, b.Requests, b.Bytes) > maxUse
		})
}

// buckets are the buckets of a meter, in the order of their ends.
type buckets []Bucket

// plus adds a use to the bucket that ends at end.
func (b buckets) plus(end int64, u Use) buckets {
	i, known := slices.BinarySearchFunc(b, end, func(b Bucket, end int64) int { return cmp.Compare(b.End, end) })
	if !known {
		b = slices.Insert(b, i, Bucket{End: end})
	}
	b[i].Use = b[i].Plus(u, 1)
	return b
}

// at returns the buckets that count at a time. A bucket that ends after the present one becomes part of it: it was begun by a clock
// that was ahead, or when buckets lasted longer.
func (b buckets) at(m Meter, now time.Time) buckets {
	over, end := m.over(now), m.end(now)
	for n := len(b); n > 0 && b[n-1].End > end; n = len(b) {
		b = b[:n-1].plus(end, b[n-1].Use)
	}
	b = slices.DeleteFunc(b, func(b Bucket) bool { return b.End <= over || b.Use == Use{} })
	for len(b) > MaxBuckets {
		b[1].Use = b[1].Plus(b[0].Use, 1)
		b = slices.Delete(b, 0, 1)
	}
	return b
}

// sum returns what all buckets have together.
func (b buckets) sum() (all Use) {
	for _, b := range b {
		// A request can be given back to a bucket that was forgotten meanwhile.
		all = all.Plus(Use{max(0, b.Requests), max(0, b.Bytes)}, 1)
	}
	return all
}

// fullUntil returns the end of the first bucket without which, and without those before it, a limit is not reached; 0: it is not.
func (b buckets) fullUntil(limit Quota) (end int64) {
	for i := 0; limit.IsReached(b[i:].sum()); i++ {
		end = b[i].End
	}
	return end
}

// A MeterUse is what a Meter has counted, as it is stored for a later process.
type MeterUse struct {
	Meter

	// Limit is the quota or the budget when the Meter last counted.
	Limit Quota `json:"limit"`

	// Buckets are in the order of their ends.
	Buckets []Bucket `json:"buckets"`
}

// Until returns when nothing of u counts any more; zero: nothing counts now.
func (u *MeterUse) Until() time.Time {
	if len(u.Buckets) == 0 {
		return time.Time{}
	}
	return time.UnixMilli(u.Buckets[len(u.Buckets)-1].End).Add(u.Span)
}

// maxMeterName is more than the longest Name has, of a host or of a client with 100 characters, in bytes.
const maxMeterName = 512

// isValid reports whether [Engine.ChangedUses] can have returned u.
func (u *MeterUse) isValid() bool {
	return u.Name != "" && len(u.Name) <= maxMeterName && u.Width >= time.Millisecond && u.Span >= 0 &&
		min(u.Limit.Requests, u.Limit.Bytes) >= 0 && AreValid(u.Buckets)
}
