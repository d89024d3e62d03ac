package audit

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"

	"robotsproxy/policy/osfile"
	"robotsproxy/robots/fetch"
)

// maxUnsaved is the maximum number of answers that are held in memory until they can be
// saved. Further ones are saved with the next record that is based on them.
const maxUnsaved = 1024

// unsavedSnapshots holds the answers that records are based on and that could not be
// saved.
type unsavedSnapshots struct {
	failure atomic.Pointer[error]
	disk    osfile.Watch

	// mu guards answers.
	mu sync.Mutex

	// answers has the client whose request is based on each answer.
	answers map[*fetch.Result]string
}

// add takes an answer that could not be saved because of err, and returns the error for the
// caller of the Log.
func (u *unsavedSnapshots) add(a *fetch.Result, client string, err error) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.answers == nil {
		u.answers = make(map[*fetch.Result]string)
	}
	if len(u.answers) < maxUnsaved {
		u.answers[a] = client
	}
	return u.setFailure(err)
}

func (u *unsavedSnapshots) setFailure(err error) error {
	err = unkept(err)
	u.failure.Store(&err)
	return err
}

func unkept(err error) error { return unwritable(fmt.Errorf("keep a robots.txt: %w", err)) }

// retry saves the answers again, and waits until the disk has all snapshots.
func (u *unsavedSnapshots) retry(s SnapshotStore) {
	u.mu.Lock()
	answers := maps.Clone(u.answers)
	u.mu.Unlock()
	failure := u.failure.Load()
	for a, client := range answers {
		// ErrNoSpace is not retried.
		if err := s.Save(a, client); err != nil && !errors.Is(err, ErrNoSpace) {
			u.setFailure(err)
			return
		}
		u.mu.Lock()
		delete(u.answers, a)
		u.mu.Unlock()
	}
	if u.flush(s) != nil {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	// Another answer may have been added, or a flush may have failed, meanwhile.
	if len(u.answers) == 0 {
		u.failure.CompareAndSwap(failure, nil)
	}
}

// flush waits until the disk has all snapshots.
func (u *unsavedSnapshots) flush(s SnapshotStore) error {
	if s == nil {
		return nil
	}
	defer u.disk.Begin(osfile.MaxSync).End()
	if err := s.Flush(); err != nil {
		return u.setFailure(err)
	}
	return nil
}

// err returns why an answer is not saved; nil: all are, and the disk does not hang.
func (u *unsavedSnapshots) err() error {
	if p := u.failure.Load(); p != nil {
		return *p
	}
	if err := u.disk.Err(); err != nil {
		return unkept(err)
	}
	return nil
}

// SaveSnapshot stores the robots.txt and the tdmrep.json that the decision of r rests on. The caller calls it
// before it acts on the decision, so that no request is sent whose evidence cannot be stored.
// [Log.Write] calls it for the other records. The error wraps ErrUnwritable, or ErrNoSpace,
// which does not hold up other requests.
//
// With Options.BlockedOnly, a request may be refused after its Decision was released, for
// example because its wait was too long. Write stores the file of such a request only if the
// robots.txt cache still has it.
func (l *Log) SaveSnapshot(r *Record) error {
	robotsTxt, tdmrep, o := r.Decision.Ruling.FullResult(), r.Decision.TDMRep.FullResult(), l.options.Load()
	if robotsTxt == nil && tdmrep == nil || r.snapshotSaved || l.opened.Snapshots == nil || o.BlockedOnly && !r.Blocked() {
		return nil
	}
	r.snapshotSaved = true
	err := cmp.Or(l.saveSnapshot(robotsTxt, r.Request.Client), l.saveSnapshot(tdmrep, r.Request.Client))
	if o.Continue {
		return nil
	}
	return err
}

// saveSnapshot stores a, which may be nil.
func (l *Log) saveSnapshot(a *fetch.Result, client string) error {
	if a == nil {
		return nil
	}
	err := l.opened.Snapshots.Save(a, client)
	if err != nil && !errors.Is(err, ErrNoSpace) {
		err = l.unsaved.add(a, client, err)
	}
	return err
}
