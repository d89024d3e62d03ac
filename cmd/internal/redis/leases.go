package redis

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"robotsproxy/policy/pace"
	"robotsproxy/policy/wake"
)

const (
	// leaseTime is how long a concurrency slot stays taken if its lease is not renewed.
	leaseTime = 10 * time.Second

	// longest is the longest duration in arguments of a script.
	longest = 365 * 24 * time.Hour

	// maxName is the maximum length, in bytes, of the name of a host or limiter that
	// becomes part of a Redis key unchanged. A longer name is truncated and its hash is
	// added.
	maxName = 300

	// maxReports is how many reports may wait. Further ones are dropped and counted.
	maxReports = 1 << 14

	// batch is the maximum number of calls in one pipeline, and of keys of one script.
	batch = 256

	// maxLimiters is the maximum number of limiters of a request.
	maxLimiters = 2
)

// A lease is the Lease of a pace.Reservation. It never changes.
type lease struct {
	key string

	// name is the name in the sorted set of leases.
	name string

	// names are the names of the limiters.
	names [maxLimiters]string

	// before has each limiter before the slot, and after has it after the slot. In after, the empty string means that there is
	// no such limiter.
	before, after [maxLimiters]string
}

// The keys of hosts begin with these.
const (
	pacePrefix   = keyPrefix + "pace:"
	leasesPrefix = keyPrefix + "places:"
)

func paceKey(key string) string { return pacePrefix + short(key) }

func leasesKey(key string) string { return leasesPrefix + short(key) }

func limiterKey(key, name string) string {
	key = short(key)
	return keyPrefix + "clock:" + strconv.Itoa(len(key)) + ":" + key + ":" + short(name)
}

func short(name string) string {
	if len(name) <= maxName {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	return name[:maxName] + ":" + hex.EncodeToString(sum[:])
}

// keys returns the keys of reserve.lua.
func (l *lease) keys(a *pace.SlotRequest) []string {
	keys := []string{paceKey(l.key), leasesKey(l.key), epochKey, paceKey(cmp.Or(a.BackOffKey, a.Key))}
	if len(a.Limiters) > 1 {
		keys = append(keys, limiterKey(l.key, a.Limiters[1].Name))
	}
	return keys
}

// args returns the arguments of reserve.lua, and names the limiters in l.
func (l *lease) args(a *pace.SlotRequest, epoch string, window time.Duration, held *lease, now time.Time) []any {
	args := make([]any, 0, 8+7*maxLimiters)
	args = append(args, epoch, l.name, micros(leaseTime), a.MaxConcurrent, int64(a.MaxWait/time.Microsecond), micros(window))
	args = appendBackOff(args, a.BackOff, now)
	for i, c := range a.Limiters {
		l.names[i] = short(c.Name)
		each := min(1e6/c.PerSecond, float64(longest/time.Microsecond))
		var before, after string
		if fetch := l.fetchOf(a); i == 0 && fetch != nil {
			before, after = fetch.before[0], fetch.after[0]
		}
		if held != nil && a.Unused && held.names[i] == l.names[i] {
			if shared := after != "" && held.before[i] == after; !shared {
				before = held.before[i]
			}
			after = held.after[i]
		}
		args = append(args, l.names[i], each, c.Burst, micros(c.Gap), ago(c.Sent, now), before, after)
	}
	return args
}

// fetchOf returns the lease of the fetch whose slot a shares; nil: a shares none.
func (l *lease) fetchOf(a *pace.SlotRequest) *lease {
	if fetch, ok := a.Follows.(*lease); ok && fetch.names[0] == l.names[0] {
		return fetch
	}
	return nil
}

// appendBackOff appends a back-off to the arguments of a script.
func appendBackOff(args []any, b pace.BackOff, now time.Time) []any {
	if b.Until.IsZero() {
		return append(args, "", 0)
	}
	return append(args, int64(clamp(b.Until.Sub(now))/time.Microsecond), micros(b.Length))
}

// ago returns how long before now t was, in microseconds. It returns -1 for the zero
// time.
func ago(t, now time.Time) int64 {
	if t.IsZero() {
		return -1
	}
	return int64(clamp(max(0, now.Sub(t))) / time.Microsecond)
}

// micros converts a duration to microseconds and rounds up.
func micros(d time.Duration) int64 {
	return int64((clamp(d) + time.Microsecond - 1) / time.Microsecond)
}

func clamp(d time.Duration) time.Duration { return min(max(d, -longest), longest) }

// A reportQueue contains the reports that were not sent yet.
type reportQueue struct {
	// wake contains a value if there is something to do.
	wake wake.Signal

	// mu guards the fields below.
	mu      sync.Mutex
	waiting []pace.Report

	// due means that all leases must be renewed at once.
	due bool
}

func (q *reportQueue) add(r pace.Report) bool {
	q.mu.Lock()
	full := len(q.waiting) >= maxReports
	if !full {
		q.waiting = append(q.waiting, r)
	}
	q.mu.Unlock()
	q.wake.Set()
	return !full
}

// renew requests that all leases are renewed soon.
func (q *reportQueue) renew() {
	q.mu.Lock()
	q.due = true
	q.mu.Unlock()
	q.wake.Set()
}

// take returns the waiting reports, and whether the leases must be renewed. The queue
// uses empty for the next reports.
func (q *reportQueue) take(empty []pace.Report) ([]pace.Report, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	all, due := q.waiting, q.due
	q.waiting, q.due = empty, false
	return all, due
}

// leases are the concurrency slots that this replica holds. Any goroutine may use it.
type leases struct {
	// last is the number of the last lease.
	last atomic.Uint64

	// all has the keys of hosts, strings, by the name of the lease.
	all sync.Map
}

func (l *leases) newName(id string) string {
	return id + "." + strconv.FormatUint(l.last.Add(1), 36)
}

// list returns the names of all leases, and the Redis keys that contain them.
func (l *leases) list() (keys []string, names []any) {
	for name, key := range l.all.Range {
		keys = append(keys, leasesKey(key.(string)))
		names = append(names, name)
	}
	return keys, names
}

// undoKeys returns the keys of undo.lua.
func (l *lease) undoKeys() []string {
	keys := []string{paceKey(l.key)}
	if l.after[1] != "" {
		keys = append(keys, limiterKey(l.key, l.names[1]))
	}
	return keys
}

// undoArgs returns the arguments of undo.lua.
func (l *lease) undoArgs() []any {
	return []any{l.names[0], l.before[0], l.after[0], l.before[1], l.after[1]}
}
