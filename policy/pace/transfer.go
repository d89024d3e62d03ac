package pace

import "time"

// sampleEvery is the interval at which the transfers of a host are sampled while other
// clients wait for a concurrency slot there. Otherwise nothing is sampled.
const sampleEvery = 250 * time.Millisecond

// A Transfer is the view of a request in flight that the holder of its slot provides. The
// Pacer calls its methods from any goroutine, and only while other clients wait for a
// concurrency slot of the host.
type Transfer interface {
	// Progress returns how many bytes of both bodies were transferred so far, and for
	// whom the transfer waits now. It is called under a lock and must not wait.
	Progress() (bytes int64, waits Party)

	// End breaks off the transfer, because it is too slow and others wait. After the slot
	// was released, it may still be called and does nothing.
	End()
}

// A Party is the side for which a Transfer waits.
type Party uint8

const (
	Origin   Party = iota // the origin, or nobody
	Reader                // the client, which does not read the response
	Uploader              // the client, which does not send its body
)

// An observation is the result of sampling a transfer while others waited.
type observation struct {
	// since is the time of the first sample, and last that of the last one.
	since, last time.Time

	// from is how many bytes were transferred by since, and bytes how many by last.
	from, bytes int64

	// samples is the number of samples. In slow of these, the transfer waited for the client, and in uploads of these for the
	// client's body.
	samples, slow, uploads int

	// ended is when the transfer was chosen to be ended; zero if it was not.
	ended time.Time
}

// sample returns the observation after one more sample of t. Samples from before a time in
// which nobody waited do not count. Samples older than twice half count half.
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

// perSecond returns the average number of bytes per second.
func (o *observation) perSecond() float64 {
	return float64(o.bytes-o.from) / max(sampleEvery, o.last.Sub(o.since)).Seconds()
}

// covers reports whether the observation has lasted for at least d.
func (o *observation) covers(d time.Duration, now time.Time) bool {
	return o != nil && o.last.Equal(now) && now.Sub(o.since) >= d
}
