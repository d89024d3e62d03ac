package report

import (
	"math"
	"slices"
	"strconv"
	"time"

	"robotsproxy/policy/audit/trail"
)

const (
	minWait       = time.Millisecond     // a shorter time is what the pacer itself needs
	maxWait       = 365 * 24 * time.Hour // the longest plausible wait of one record
	waitsPerPower = 16                   // buckets of waits for each power of two: a median is within 4 %
)

// seconds is a duration that JSON has in seconds.
type seconds time.Duration

func (s seconds) MarshalJSON() ([]byte, error) {
	return strconv.AppendFloat(nil, time.Duration(s).Seconds(), 'f', -1, 64), nil
}

// waitOf returns how long a request waited before the proxy sent it; 0 if it was not sent, or not
// made to wait. A request that was refused at once has not waited.
func waitOf(e *trail.Entry) time.Duration {
	if e.Blocked() && e.Enforced && !e.Withheld || !(e.WaitMS/1000 >= minWait.Seconds()) {
		return 0
	}
	return time.Duration(min(e.WaitMS/1000, maxWait.Seconds()) * float64(time.Second)).Round(time.Microsecond)
}

// waits count requests by how long they waited: a bucket for each step of the length. It is as long
// as the longest wait needs, and has at most 560 buckets.
type waits []uint32

// add counts a wait, which is at least minWait.
func (w *waits) add(wait time.Duration) {
	// fraction is from 1/2 on, power is from 1 on.
	fraction, power := math.Frexp(float64(wait) / float64(minWait))
	i := (power-1)*waitsPerPower + int((fraction-0.5)*2*waitsPerPower)
	if more := i + 1 - len(*w); more > 0 {
		*w = append(*w, make(waits, more)...)
	}
	(*w)[i] = addCapped32((*w)[i], 1)
}

// merged returns the sum of two. It leaves both as they are, since a Report does not change.
func (w waits) merged(o waits) waits {
	if len(w) < len(o) {
		w, o = o, w
	}
	sum := slices.Clone(w)
	for i, n := range o {
		sum[i] = addCapped32(sum[i], n)
	}
	return sum
}

func addCapped32(a, b uint32) uint32 {
	return a + min(b, math.MaxUint32-a)
}

// median returns the middle of the bucket that has the median, but no more than the longest wait.
func (w waits) median(longest seconds) seconds {
	var all uint64
	for _, n := range w {
		all += uint64(n)
	}
	left := (all + 1) / 2
	for i, n := range w {
		if left <= uint64(n) {
			fraction := 0.5 + (float64(i%waitsPerPower)+0.5)/(2*waitsPerPower)
			middle := math.Ldexp(fraction, i/waitsPerPower+1) * float64(minWait)
			return min(seconds(time.Duration(middle).Round(time.Microsecond)), longest)
		}
		left -= uint64(n)
	}
	return 0
}
