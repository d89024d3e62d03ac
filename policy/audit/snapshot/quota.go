package snapshot

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"robotsproxy/policy"
	"robotsproxy/policy/audit"
)

const (
	// fileWeight and lineWeight divide the space between clients. The bytes that a client
	// has added today and yesterday may be at most so many times the bytes that stay free.
	// So a lone client fills four fifths with files, two clients four ninths each, and
	// there is always some space left for the next client. The lines of the index may take
	// more, so that hosts whose file is stored can be used for longer.
	fileWeight = 4
	lineWeight = 16

	// maxShares is how many clients have their own share on a day, at about 100 bytes each.
	// The other clients have one share together.
	maxShares = 4096
)

// A quota counts the bytes of all files, and keeps them below a maximum. Bytes are reserved before
// they are written.
type quota struct {
	// mu guards what follows.
	mu sync.Mutex

	// max is the maximum in bytes; zero: there is none.
	max int64

	// total is the size of all files in bytes, with reserved, which may not be on the disk yet.
	total, reserved int64

	// day is the current day. today and yesterday are the bytes that each client added then, by shareKey.
	day              string
	today, yesterday map[string]int64
}

// reserve reserves n bytes for client before they are written; see commit. The error wraps
// audit.ErrNoSpace.
func (q *quota) reserve(client string, n, weight int64, now time.Time) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.startDay(now)
	client = q.shareKey(policy.ShareKey(client))
	free := q.max - q.total - n
	switch {
	case q.max <= 0:
	case free < 0:
		return fmt.Errorf("%w: %d of %d bytes are in use", audit.ErrNoSpace, q.total, q.max)
	case (q.today[client]+q.yesterday[client]+n)/weight > free:
		return fmt.Errorf("%w: the client has added more than its share", audit.ErrNoSpace)
	}
	q.total += n
	q.reserved += n
	q.today[client] += n
	return nil
}

// commit ends a reservation of taken bytes for client, of which some were written. The others are
// free again.
func (q *quota) commit(client string, written, taken int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	free := taken - written
	q.reserved -= taken
	q.total -= free
	client = q.shareKey(policy.ShareKey(client))
	// The bytes may have been reserved yesterday.
	for _, m := range []map[string]int64{q.today, q.yesterday} {
		if some := min(free, m[client]); some > 0 {
			m[client] -= some
			free -= some
		}
	}
}

// shareKey returns the key under which the bytes of a client are counted. The caller holds q.mu.
func (q *quota) shareKey(client string) string {
	_, today := q.today[client]
	_, before := q.yesterday[client]
	switch {
	case today || before:
		return client
	case len(q.today) < maxShares:
		// The clone does not keep the whole request header in memory.
		return strings.Clone(client)
	}
	return ""
}

// startDay forgets what was added earlier than yesterday. The caller holds q.mu.
func (q *quota) startDay(now time.Time) {
	today := dayOf(now)
	// An operation that began before midnight may be of the day before.
	if today == q.day || q.day == dayOf(now.Add(day)) {
		return
	}
	q.yesterday = nil
	if q.day == dayOf(now.Add(-day)) {
		q.yesterday = q.today
	}
	q.day, q.today = today, make(map[string]int64)
}

// add counts n bytes that are on the disk; with a negative n, bytes that no longer are.
func (q *quota) add(n int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.total += n
}

// usage returns the bytes of all files, and the maximum.
func (q *quota) usage() (total, most int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.total, q.max
}

// written returns the bytes that are on the disk for certain.
func (q *quota) written() int64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.total - q.reserved
}

// setMax sets the maximum, in bytes.
func (q *quota) setMax(most int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.max = most
}

// nearlyFull reports whether more is in use than a lone client's share. Then files are removed,
// so that no client is refused while there are files to remove.
func (q *quota) nearlyFull() bool {
	total, most := q.usage()
	return most > 0 && total > most/(fileWeight+1)*fileWeight
}
