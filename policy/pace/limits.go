package pace

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"time"

	"robotsproxy/policy/pace/limiter"
)

// ErrTooBusy matches every [BusyError] in errors.Is.
var ErrTooBusy = errors.New("pace: too busy")

// ErrLimits is the error for Limits that permit no request, such as the zero Limits.
var ErrLimits = errors.New("pace: unusable limits")

// ErrClosed is the error for a request that waits, or would have to wait, when the Pacer
// is closed.
var ErrClosed = errors.New("pace: closed")

const (
	// minRetry is the least BusyError.RetryAfter.
	minRetry = time.Second

	// unknownRetry is the BusyError.RetryAfter if nothing tells when the host is free.
	unknownRetry = time.Minute
)

// A Reason says which limit a [BusyError] is about. The set is closed.
type Reason uint8

const (
	WaitTooLong     Reason = iota // the wait is longer than Limits.MaxWait, or became longer
	QueueFull                     // Limits.MaxQueue requests are waiting
	StreamsFull                   // the client has at least as many streams as are free of Options.MaxStreams
	HostsFull                     // the table of hosts has Options.MaxHosts hosts, and all are in use
	BackedOff                     // the back-off, see Slot.BackOff, lasts longer than Limits.MaxWait or Limits.MaxBackOff
	ConcurrencyFull               // Limits.MaxConcurrent requests were in flight all the time
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

// A BusyError refuses a request temporarily. It matches [ErrTooBusy].
type BusyError struct {
	// RetryAfter is the estimated time until a new request could be sent, at least one second.
	RetryAfter time.Duration
	Reason     Reason

	// StoreAway means that the Store was unavailable, and that this process had used its share of the rate.
	StoreAway bool

	// BackOff is what is left of the host's back-off, see Slot.BackOff; zero if there is none.
	BackOff time.Duration

	// BackOffBy is the cause of the back-off, see BackOff.By.
	BackOffBy string

	// Slowed is the least time between two requests because the host responds slowly; zero if it does not.
	Slowed time.Duration
}

func (e *BusyError) Error() string {
	return fmt.Sprintf("pace: %s, retry after %.0f s", e.Reason, math.Ceil(e.RetryAfter.Seconds()))
}

// Is makes a BusyError match ErrTooBusy.
func (e *BusyError) Is(target error) bool { return target == ErrTooBusy }

func busy(r Reason, after time.Duration) error {
	return &BusyError{RetryAfter: max(after, minRetry), Reason: r}
}

// Limits are the limits for one request. The zero value permits no request.
type Limits struct {
	// Key is the host that the limits protect; required.
	Key string

	// BackOffKey is the host whose back-off applies, if several hosts share Key; empty means Key.
	BackOffKey string

	// PerSecond is the number of requests per second; must be positive.
	PerSecond float64

	// Burst is the number of requests at once after a quiet time; must be positive. A CrawlDelay leaves no burst.
	Burst int

	// CrawlDelay is the least time between two requests; zero means none. The slower of CrawlDelay and PerSecond applies.
	CrawlDelay time.Duration

	// MaxConcurrent is the number of requests in flight at once; must be positive. As many transfers may continue without a
	// concurrency slot, see Transfer.
	MaxConcurrent int

	// MaxWait is the longest wait. A longer one is refused. Zero means that the request is sent at once or refused.
	MaxWait time.Duration

	// MaxBackOff is the longest back-off of the host that the request waits for. Zero means that only MaxWait limits the
	// wait for a back-off.
	MaxBackOff time.Duration

	// NotBefore is when the request may be sent at the earliest; zero: at once. Requests without one do not wait behind it.
	NotBefore time.Time

	// MaxQueue is how many requests may wait for the host; zero means none. A full queue drops the last request of the
	// client with the most for a client with fewer.
	MaxQueue int

	// Client is what this client may send to the host, in addition to the other limits. Zero means no limit of its own.
	Client Rate

	// AssetBurst is positive for a request for an asset of a page. Without a CrawlDelay, such a request uses the limiter of
	// the host's assets, with PerSecond and this burst.
	AssetBurst int

	// Adapt means that slow responses lower the rate.
	Adapt bool

	// First marks the fetch of the host's own robots.txt. The fetch goes before the other
	// requests of its client, does not count in MaxQueue, and uses the CrawlDelay of the
	// last request if that is longer. With Shared, the next request may follow the fetch
	// without a gap, and both share one slot; with a Store only if the fetch had a slot of the Store.
	// A request with Unshared keeps its gap to a fetch, because it requests the same file
	// again.
	First, Shared, Unshared bool

	// Redirected marks the fetch of another host's robots.txt that was redirected to this
	// host. The fetch uses the CrawlDelay of the last request if that is longer.
	Redirected bool
}

// Interval returns the time between two requests of one client in a long queue, rounded up to a nanosecond, as
// far as the limits tell. It is zero without a rate.
func (l *Limits) Interval() time.Duration {
	if l.PerSecond <= 0 {
		return 0
	}
	rate := l.PerSecond
	if l.Client.PerSecond > 0 {
		rate = min(rate, l.Client.PerSecond)
	}
	return max(limiter.Nanoseconds(1e9/rate), l.CrawlDelay)
}

// A Rate is a number of requests per second, with a burst after a quiet time. The zero
// Rate is no limit.
type Rate struct {
	PerSecond float64
	Burst     int
}

// backOffKey returns the key of the host whose back-off applies.
func (l *Limits) backOffKey() string { return cmp.Or(l.BackOffKey, l.Key) }

// followsFetch reports whether the request may share the slot of the fetch before it.
func (l *Limits) followsFetch() bool { return !l.First && !l.Unshared }

// fetch reports whether the request is the fetch of a robots.txt. A back-off of one client does
// not apply to it, because the file is for all clients.
func (l *Limits) fetch() bool { return l.First || l.Redirected }

// asset reports whether the request uses the limiter of the host's assets. A Crawl-delay
// leaves no burst for assets.
func (l *Limits) asset() bool { return l.AssetBurst > 0 && l.CrawlDelay <= 0 }

func (l *Limits) check() error {
	switch {
	case l.Key == "":
		return fmt.Errorf("%w: no key", ErrLimits)
	// NaN is not greater than 0 either.
	case !(l.PerSecond > 0):
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

// Held says what delayed a request.
type Held struct {
	// Waited is how long the request waited, including the waits in Ready.
	Waited time.Duration

	// BackOff is the longest back-off that the request met; zero if it met none.
	BackOff time.Duration

	// By is the cause of that back-off, see BackOff.By.
	By string

	// Slowed is the least time between two requests because the host responded slowly; zero if it did not.
	Slowed time.Duration

	// Interval is the least time between two requests in a long queue, by the limits under which the last permit was given;
	// zero: none was given.
	Interval time.Duration

	// Burst is the number of requests that may go at once after a quiet time, by the same limits; 1: each keeps the interval.
	Burst int

	// Sent is when the request was sent last, by the wall clock; zero: it was not.
	Sent time.Time

	// StoreAway means that the request got the permit while the Store was unavailable.
	StoreAway bool
}
