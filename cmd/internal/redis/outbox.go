package redis

import (
	"crypto/rand"
	"encoding/binary"
	"slices"
	"sync"
	"time"

	"robotsproxy/policy/wake"
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

	// frame is the entry to save, or a purge; nil for other jobs.
	frame frame

	// lease is the name of the fetch lease to release.
	lease string

	// purge is the mark of the last purge that a save takes into account.
	purge string
}

// An outbox contains the jobs that wait to be sent.
type outbox struct {
	// wake contains a value if there is a job to send.
	wake wake.Signal

	// mu guards the fields below.
	mu sync.Mutex

	// jobs begin with the oldest one.
	jobs []*job

	// size is the number of bytes in the frames of the jobs that the server has not executed yet.
	size int

	// newest has what newestOf returns.
	newest map[cache.StoreKey]*job
}

func newOutbox() outbox {
	return outbox{wake: wake.New(), newest: make(map[cache.StoreKey]*job)}
}

// newestOf returns the newest save or purge of k that may not have reached the server; nil if all
// have. Saves after a purge may have been lost.
func (o *outbox) newestOf(k cache.StoreKey) *job {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.newest[k]
}

// add adds a job, and reports whether there was space. While the server is unavailable, only
// purges wait.
func (o *outbox) add(j *job, alone bool) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if alone && j.kind != purging || len(o.jobs) >= maxJobs || o.size+len(j.frame) > maxWaiting {
		return false
	}
	o.jobs = append(o.jobs, j)
	o.size += len(j.frame)
	if j.frame != nil {
		o.newest[j.key] = j
	}
	o.wake.Set()
	return true
}

// take removes and returns the next jobs that are sent together.
func (o *outbox) take() []*job {
	o.mu.Lock()
	defer o.mu.Unlock()
	n, size := 0, 0
	for n < len(o.jobs) && n < maxBatchCalls && size < maxBatchBytes {
		size += len(o.jobs[n].frame)
		n++
	}
	some := o.jobs[:n:n]
	o.jobs = o.jobs[n:]
	return some
}

// done ends the jobs that take has returned and the server has executed.
func (o *outbox) done(some []*job) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, j := range some {
		o.end(j)
	}
	// The array that they share with the waiting jobs must not keep them.
	clear(some)
}

// end removes j from newest. The caller holds o.mu.
func (o *outbox) end(j *job) {
	o.size -= len(j.frame)
	if o.newest[j.key] == j {
		delete(o.newest, j.key)
	}
}

// dropSave makes newestOf ignore a waiting save of k, because it may be based on what was
// purged.
func (o *outbox) dropSave(k cache.StoreKey) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if j := o.newest[k]; j != nil && j.kind == saving {
		delete(o.newest, k)
	}
}

// dropAllButPurges drops all jobs but purges, including those that take returned, and returns how
// many saves it dropped.
func (o *outbox) dropAllButPurges(taken []*job) (lost int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	var purges []*job
	for _, j := range slices.Concat(taken, o.jobs) {
		if j.kind == purging {
			purges = append(purges, j)
			continue
		}
		o.end(j)
		if j.kind == saving {
			lost++
		}
	}
	// The saves that were newer than these purges are lost.
	for _, j := range purges {
		o.newest[j.key] = j
	}
	o.jobs = purges
	return lost
}

// A frame is the value of a file in the server: a format, 8 random bytes, the expiry in ms since
// 1970, and the entry. A frame without an entry is a purge, which hides the entries of local
// stores.
type frame []byte

const (
	frameFormat = 1

	// frameMark is the length of the mark in bytes: the format and the random bytes, which are different for each frame.
	frameMark = 1 + 8

	// frameSize is the length in bytes of a frame without an entry.
	frameSize = frameMark + 8

	// maxEntry is the greatest length of an entry in bytes.
	maxEntry = cache.MaxSaved
)

func newFrame(entry []byte, until time.Time) frame {
	v := make(frame, frameSize, frameSize+len(entry))
	v[0] = frameFormat
	// It never fails.
	rand.Read(v[1:frameMark])
	binary.BigEndian.PutUint64(v[frameMark:], uint64(until.UnixMilli()))
	return append(v, entry...)
}

func (f frame) valid() bool {
	return len(f) >= frameSize && len(f) <= frameSize+maxEntry && f[0] == frameFormat
}

func (f frame) until() time.Time {
	return time.UnixMilli(int64(binary.BigEndian.Uint64(f[frameMark:])))
}

func (f frame) mark() string { return string(f[:frameMark]) }

func (f frame) purge() bool { return len(f) == frameSize }

// entry returns the entry, or nil if it has expired or there is none.
func (f frame) entry(now time.Time) []byte {
	if f.purge() || !now.Before(f.until()) {
		return nil
	}
	return f[frameSize:]
}
