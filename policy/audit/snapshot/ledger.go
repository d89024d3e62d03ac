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
	// blockSize is the unit in bytes that file systems give to files. A file counts as
	// whole blocks, and one at least.
	blockSize = 4 << 10

	// fileWeight and lineWeight divide the space between clients. What a client has
	// added today and the day before may be at most so many times what stays free. A
	// lone client so fills four fifths with files, two clients four ninths each, and
	// there is always some space left for the next client. Lines of the index may go
	// beyond, so that hosts that are known already go on for longer.
	fileWeight = 4
	lineWeight = 16

	// maxShares is how many clients have a share of their own on a day, at about
	// 100 bytes each. The others share one.
	maxShares = 4096
)

// onDisk is the space that a file of so many bytes takes.
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
	day           string           // that today is of
	today, before map[string]int64 // bytes that each client added, by its share key
}

// take takes n bytes for client, until they are written: see wrote. The error wraps
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
		return fmt.Errorf("%w: %d of %d bytes are in use", audit.ErrNoRoom, l.total, l.max)
	case (l.today[client]+l.before[client]+n)/weight > free:
		return fmt.Errorf("%w: the client has added more than its share", audit.ErrNoRoom)
	}
	l.total += n
	l.writing += n
	l.today[client] += n
	return nil
}

// wrote says how many bytes were written of those that were taken for client. The
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

// share is what client's bytes are counted under. l.mu is held.
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

// turn forgets what was added longer ago than the day before. l.mu is held.
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

// add counts bytes that are on the disk, or, where n is negative, no longer are.
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
