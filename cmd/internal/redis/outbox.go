package redis

import (
	"crypto/rand"
	"encoding/binary"
	"slices"
	"sync"
	"time"

	"robotsproxy/robots/cache"
)

const (
	// maxWaiting is the maximum number of bytes of frames that wait for the server, and maxJobs that of
	// jobs. Further ones are lost.
	maxWaiting = 32 << 20
	maxJobs    = 1 << 15

	// maxBatchBytes and maxBatchCalls are the maximum bytes and calls that are sent at once. The last job
	// may exceed them.
	maxBatchBytes = 1 << 20
	maxBatchCalls = 256

	// retryEvery is how often purges that could not be sent are tried again.
	retryEvery = 250 * time.Millisecond

	// finalTimeout limits the sending of jobs at the end of Run.
	finalTimeout = 2 * time.Second
)

// A kind is what a job does.
type kind uint8

const (
	saving kind = iota
	releasing
	purging
	replacing
)

// A job is a change that must be sent to the server.
type job struct {
	kind kind
	key  cache.StoreKey

	// The entry to save, or of a purge.
	frame frame

	// The claim to release.
	claim string

	// mark of the last purge that a save takes into account.
	purge string

	// Ascending number.
	number uint64
}

// An outbox contains the jobs that wait to be sent.
type outbox struct {
	// Contains a value if there is a job to send.
	wake chan struct{}

	// Guards the fields below.
	mu sync.Mutex

	// The oldest first.
	jobs []job

	// size of their frames.
	size int

	// number of the newest job.
	last   uint64
	newest map[cache.StoreKey]job
}

func newOutbox() outbox {
	return outbox{wake: make(chan struct{}, 1), newest: make(map[cache.StoreKey]job)}
}

// newestOf returns the newest save or purge of k that may not have reached the server. ok is
// false if all have. Saves after a purge may have been lost.
func (b *outbox) newestOf(k cache.StoreKey) (j job, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	j, ok = b.newest[k]
	return j, ok
}

// add adds a job, and reports whether there was space. While the server is unavailable, only
// purges wait.
func (b *outbox) add(j job, away bool) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if away && j.kind != purging || len(b.jobs) >= maxJobs || b.size+len(j.frame) > maxWaiting {
		return false
	}
	b.last++
	j.number = b.last
	b.jobs = append(b.jobs, j)
	b.size += len(j.frame)
	if j.frame != nil {
		b.newest[j.key] = j
	}
	select {
	case b.wake <- struct{}{}:
	default:
	}
	return true
}

// take removes and returns the next jobs that are sent together.
func (b *outbox) take() []job {
	b.mu.Lock()
	defer b.mu.Unlock()
	n, size := 0, 0
	for n < len(b.jobs) && n < maxBatchCalls && size < maxBatchBytes {
		size += len(b.jobs[n].frame)
		n++
	}
	some := b.jobs[:n:n]
	b.jobs = b.jobs[n:]
	return some
}

// done ends the jobs that take has returned and the server has executed.
func (b *outbox) done(some []job) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, j := range some {
		b.end(j)
	}
	// They share their array with the waiting jobs.
	clear(some)
}

// end removes j from newest. The caller holds b.mu.
func (b *outbox) end(j job) {
	b.size -= len(j.frame)
	if b.newest[j.key].number == j.number {
		delete(b.newest, j.key)
	}
}

// dropSave makes newestOf ignore a waiting save of k, because it may be based on what was
// purged.
func (b *outbox) dropSave(k cache.StoreKey) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.newest[k].kind == saving {
		delete(b.newest, k)
	}
}

// dropAllButPurges drops all jobs but purges, including those that take returned, and returns how
// many saves it dropped.
func (b *outbox) dropAllButPurges(taken []job) (lost int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var purges []job
	for _, j := range slices.Concat(taken, b.jobs) {
		if j.kind == purging {
			purges = append(purges, j)
			continue
		}
		b.end(j)
		if j.kind == saving {
			lost++
		}
	}
	for _, j := range purges {
		// Later saves are lost.
		b.newest[j.key] = j
	}
	b.jobs = purges
	return lost
}

// A frame is the value of a file in the server: a format, 8 random bytes, the expiry in ms since
// 1970, and the entry. A frame without an entry is a purge, which hides the entries of local
// stores.
type frame []byte

const (
	frameFormat = 1
	// Bytes; different for each frame.
	frameMark = 1 + 8
	frameSize = frameMark + 8

	// Length of an entry in bytes.
	maxEntry = cache.MaxSaved
)

func newFrame(entry []byte, until time.Time) frame {
	v := make(frame, frameSize, frameSize+len(entry))
	v[0] = frameFormat
	// Never fails (crypto/rand since Go 1.24).
	rand.Read(v[1:frameMark])
	binary.BigEndian.PutUint64(v[frameMark:], uint64(until.UnixMilli()))
	return append(v, entry...)
}

func (v frame) valid() bool {
	return len(v) >= frameSize && len(v) <= frameSize+maxEntry && v[0] == frameFormat
}

func (v frame) until() time.Time {
	return time.UnixMilli(int64(binary.BigEndian.Uint64(v[frameMark:])))
}

func (v frame) mark() string { return string(v[:frameMark]) }

func (v frame) purge() bool { return len(v) == frameSize }

// entry returns the entry, or nil if it has expired or there is none.
func (v frame) entry(now time.Time) []byte {
	if v.purge() || !now.Before(v.until()) {
		return nil
	}
	return v[frameSize:]
}
