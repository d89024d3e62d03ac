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
	// blockSize is the unit in which file systems give space to files, in bytes. A file
	// counts as whole blocks, and as at least one.
	blockSize = 4 << 10

	// fileWeight and lineWeight divide the space between clients. What a client has
	// added today and the day before may be at most so many times what stays free. So a
	// lone client fills four fifths with files, two clients four ninths each, and there
	// is always some space left for the next client. The lines of the index may take
	// more, so that hosts whose file is kept go on for longer.
	fileWeight = 4
	lineWeight = 16

	// maxShares is how many clients have a share of their own on a day, at about
	// 100 bytes each. The other clients have one share together.
	maxShares = 4096
)

// onDisk gives the space on the disk that a file of size bytes takes.
func onDisk(size int64) int64 {
	return max(1, (size+blockSize-1)/blockSize) * blockSize
}

// A ledger counts the bytes of all files, and keeps them below a ceiling. Space is
// taken before anything is written.
type ledger struct {
	mu            sync.Mutex       // guards what follows
	max           int64            // bytes; zero: no ceiling
	total         int64            // bytes of all files, and writing
	writing       int64            // bytes that were taken and may not be on the disk yet
	day           string           // the day of today
	today, before map[string]int64 // bytes that each client added, by its share key
}

// take reserves n bytes for client before they are written; see wrote. The error wraps
// audit.ErrNoRoom.
func (l *ledger) take(client string, n, weight int64, now time.Time) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.turn(now)
	client = l.share(policy.ShareKey(client))
	free := l.max - l.total - n
	switch {
	case l.max <= 0:
	case free < 0:
		return fmt.Errorf("%w: %d of %d bytes are in use", audit.ErrNoSpace, l.total, l.max)
	case (l.today[client]+l.before[client]+n)/weight > free:
		return fmt.Errorf("%w: the client has added more than its share", audit.ErrNoSpace)
	}
	l.total += n
	l.writing += n
	l.today[client] += n
	return nil
}

// wrote ends a reservation of taken bytes for client, of which so many were written. The
// others are free again.
func (l *ledger) wrote(client string, written, taken int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	free := taken - written
	l.writing -= taken
	l.total -= free
	client = l.share(policy.ShareKey(client))
	for _, m := range []map[string]int64{l.today, l.before} { // the day may have ended meanwhile
		if some := min(free, m[client]); some > 0 {
			m[client] -= some
			free -= some
		}
	}
}

// share gives the key under which client's bytes are counted. The caller holds l.mu.
func (l *ledger) share(client string) string {
	_, today := l.today[client]
	_, before := l.before[client]
	switch {
	case today || before:
		return client
	case len(l.today) < maxShares:
		return strings.Clone(client) // a part of a request's head would keep all of it
	}
	return ""
}

// turn forgets what was added earlier than the day before. The caller holds l.mu.
func (l *ledger) turn(now time.Time) {
	today := dayOf(now)
	if today == l.day {
		return
	}
	l.before = nil
	if l.day == dayOf(now.Add(-day)) {
		l.before = l.today
	}
	l.day, l.today = today, make(map[string]int64)
}

// add counts n bytes that are on the disk; with a negative n, bytes that no longer are.
func (l *ledger) add(n int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.total += n
}

// used gives the bytes of all files, and the ceiling.
func (l *ledger) used() (total, most int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.total, l.max
}

// settled gives the bytes that are on the disk for certain.
func (l *ledger) settled() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.total - l.writing
}

// limit sets the ceiling.
func (l *ledger) limit(most int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.max = most
}
