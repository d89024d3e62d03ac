package pace

import "time"

// sampleEvery is how often the transfers of a host are sampled while other clients wait
// for a concurrency slot there. While nobody waits, nothing is sampled.
const sampleEvery = 250 * time.Millisecond

// A Transfer is a request under way, as the holder of its slot sees it. The Pacer calls its
// methods from any goroutine, and only while other clients wait for a concurrency slot at
// the host.
type Transfer interface {
	// Progress returns how many bytes of both bodies have moved so far, and for whom the
	// transfer waits at the moment. It is called under a lock, and must not wait.
	Progress() (bytes int64, waits Party)

	// End breaks the transfer off, because it is too slow and others wait. It may be
	// called after the slot was released, and does nothing then.
	End()
}

// A Party is the side for which a Transfer waits.
type Party uint8

const (
	Origin   Party = iota // the origin, or nobody
	Reader                // the client, which does not read the response
	Uploader              // the client, which does not send its body
)

// An observation is what was sampled of a transfer while others waited.
type observation struct {
	since, last time.Time // the first and last of the samples
	from, bytes int64     // bytes that had moved by since and by last
	samples     int
	slow        int       // samples in which the transfer waited for the client
	uploads     int       // samples in which it waited for the client's body
	ended       time.Time // when the transfer was chosen to be ended; zero: it was not
}

// sample returns the observation after one more sample of t. Samples from before a time in
// which nobody waited do not count; samples older than twice half count half.
func (o *observation) sample(t Transfer, now time.Time, half time.Duration) *observation {
	bytes, waits := t.Progress()
	if o == nil || now.Sub(o.last) > 2*sampleEvery {
		o = &observation{since: now, from: bytes}
	}
	o.last, o.bytes = now, bytes
	o.samples++
	if waits != Origin {
		o.slow++
	}
	if waits == Uploader {
		o.uploads++
	}
	if age := now.Sub(o.since); age > 2*half {
		o.since, o.from = o.since.Add(age/2), o.bytes-(o.bytes-o.from)/2
		o.samples, o.slow, o.uploads = o.samples/2, o.slow/2, o.uploads/2
	}
	return o
}

// perSecond returns how many bytes moved in a second, on average.
func (o *observation) perSecond() float64 {
	return float64(o.bytes-o.from) / max(sampleEvery, o.last.Sub(o.since)).Seconds()
}

// covers reports whether the observation has gone on for at least d, up to now.
func (o *observation) covers(d time.Duration, now time.Time) bool {
	return o != nil && o.last.Equal(now) && now.Sub(o.since) >= d
}
