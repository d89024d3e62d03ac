package pace

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"time"
)

// ErrTooBusy matches every [BusyError] in errors.Is.
var ErrTooBusy = errors.New("pace: too busy")

// ErrLimits is the error for Limits that permit nothing, as their zero value.
var ErrLimits = errors.New("pace: unusable limits")

// ErrClosed is the error for a request that waits, or would have to, when the Pacer is
// closed.
var ErrClosed = errors.New("pace: closed")

const (
	minRetry     = time.Second // the least BusyError.RetryAfter
	unknownRetry = time.Minute // BusyError.RetryAfter where nothing tells when the host is free
)

// A Reason says which bound a [BusyError] met. The set is closed.
type Reason uint8

const (
	WaitTooLong     Reason = iota // the wait is, or turned out, longer than Limits.MaxWait
	QueueFull                     // Limits.MaxQueue requests are waiting
	StreamsFull                   // the client has as many streams as are free of Options.MaxStreams, or more
	HostsFull                     // Options.MaxHosts are known, and all of them are in use
	BackedOff                     // the rest of the host's back-off is longer than Limits.MaxWait or Limits.MaxBackOff; see Slot.BackOff
	ConcurrencyFull               // Limits.MaxConcurrent requests were under way all the time
)

var reasons = [...]string{
	WaitTooLong:     "the wait is too long",
	QueueFull:       "the queue is full",
	StreamsFull:     "too many streams to the host are open",
	HostsFull:       "too many hosts at once",
	BackedOff:       "the host is in back-off",
	ConcurrencyFull: "all concurrency slots stay in use",
}

func (r Reason) String() string {
	if int(r) < len(reasons) {
		return reasons[r]
	}
	return "busy"
}

// A BusyError refuses a request for now. It matches [ErrTooBusy].
type BusyError struct {
	RetryAfter time.Duration // estimated time until a new request could go; at least one second
	Reason     Reason
	Alone      bool          // the Store was away, and this process's share of the rate was used up
	BackOff    time.Duration // rest of the host's back-off, see Slot.BackOff; zero: none
	Slowed     time.Duration // least time between two requests, because the host answers slowly; zero: it does not
}

func (e *BusyError) Error() string {
	return fmt.Sprintf("pace: %s, retry after %.0f s", e.Reason, math.Ceil(e.RetryAfter.Seconds()))
}

// Is makes a BusyError match ErrTooBusy.
func (e *BusyError) Is(target error) bool { return target == ErrTooBusy }

func busy(r Reason, after time.Duration) error {
	return &BusyError{RetryAfter: max(after, minRetry), Reason: r}
}

// Limits bound one request. The zero value lets nothing through.
type Limits struct {
	Key           string        // the host that the limits protect; required
	BackOffKey    string        // the host whose back-off counts, if several hosts share Key; "": Key
	PerSecond     float64       // requests a second; must be positive
	Burst         int           // requests at once after a quiet time; must be positive; not used where CrawlDelay rules
	CrawlDelay    time.Duration // least time between two requests; zero: none; the slower of CrawlDelay and PerSecond counts
	MaxConcurrent int           // requests under way at once; must be positive; as many transfers more may go on without a concurrency slot, see Transfer
	MaxWait       time.Duration // a longer wait is refused; zero: the request goes at once or not at all
	MaxBackOff    time.Duration // a request is refused if its host's back-off goes on for longer; zero: MaxWait alone bounds that wait
	MaxQueue      int           // requests that may wait for the host; in a full queue the client with the most loses its last to a client with fewer; zero: none

	Client     Rate // what this client alone may send to the host, besides the other limits; zero: no limit of its own
	AssetBurst int  // the request is for a page's asset and goes by the limiter of the host's assets, of PerSecond with this burst, where no CrawlDelay rules; zero: by the host's limiter
	Adapt      bool // slow answers lower the rate

	// First is for the fetch of the host's own robots.txt. The fetch goes ahead of the other
	// requests of its client, does not count for MaxQueue, and keeps the CrawlDelay of the
	// last request if that is longer. With Shared the next request may follow the fetch
	// without a gap, unless the Pacer has a Store: both share one slot. A request with
	// Unshared keeps its gap to a fetch, because it asks for the same file once more.
	First, Shared, Unshared bool
}

// A Rate is a number of requests a second, with a burst after a quiet time. The zero Rate
// is no limit.
type Rate struct {
	PerSecond float64
	Burst     int
}

// backOffKey returns the key of the host whose back-off counts.
func (l *Limits) backOffKey() string { return cmp.Or(l.BackOffKey, l.Key) }

// followsFetch reports whether the request may share the slot of a fetch before it.
func (l *Limits) followsFetch() bool { return !l.First && !l.Unshared }

// asset reports whether the request goes by the limiter of the host's assets. A
// Crawl-delay leaves no burst to assets.
func (l *Limits) asset() bool { return l.AssetBurst > 0 && l.CrawlDelay <= 0 }

func (l *Limits) check() error {
	switch {
	case l.Key == "":
		return fmt.Errorf("%w: no key", ErrLimits)
	case !(l.PerSecond > 0): // NaN too
		return fmt.Errorf("%w: %q: %v requests per second", ErrLimits, l.Key, l.PerSecond)
	case l.Burst <= 0:
		return fmt.Errorf("%w: %q: burst %d", ErrLimits, l.Key, l.Burst)
	case l.MaxConcurrent <= 0:
		return fmt.Errorf("%w: %q: concurrency limit %d", ErrLimits, l.Key, l.MaxConcurrent)
	case l.CrawlDelay < 0:
		return fmt.Errorf("%w: %q: crawl delay %s", ErrLimits, l.Key, l.CrawlDelay)
	case l.Client != (Rate{}) && (!(l.Client.PerSecond > 0) || l.Client.Burst <= 0):
		return fmt.Errorf("%w: %q: %v requests per second, burst %d for the client", ErrLimits, l.Key, l.Client.PerSecond, l.Client.Burst)
	case l.AssetBurst < 0:
		return fmt.Errorf("%w: %q: asset burst %d", ErrLimits, l.Key, l.AssetBurst)
	}
	return nil
}
