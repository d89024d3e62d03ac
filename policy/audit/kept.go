package audit

import (
	"errors"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"

	"robotsproxy/robots/fetch"
)

// maxUnkept bounds the answers that are held while they cannot be kept, for the
// next try. Further ones are tried again with the next record that rests on them.
const maxUnkept = 1024

// unkept are answers that records rest on and that could not be kept.
type unkept struct {
	failure atomic.Pointer[error]

	mu      sync.Mutex               // guards answers
	answers map[*fetch.Result]string // with the client whose request rests on each
}

// Keep keeps the robots.txt that the decision of r rests on. The caller calls it before it
// acts on the decision, so that nothing goes out whose evidence cannot be kept.
// [Log.Write] calls it for the other records. The error wraps ErrUnwritable, or ErrNoRoom,
// which does not hold up other requests.
//
// With Options.BlockedOnly, Write keeps the file of a request that was refused after its Decision was
// released, such as one whose wait was too long, only if the robots.txt cache still has the file.
func (l *Log) SaveSnapshot(r *Record) error {
	a, terms := r.Decision.Ruling.FullResult(), l.terms.Load()
	if a == nil || r.kept || l.o.Snapshots == nil || terms.BlockedOnly && !r.Blocked() {
		return nil
	}
	r.kept = true
	err := l.o.Snapshots.Save(a, r.Request.Client)
	if err != nil && !errors.Is(err, ErrNoSpace) {
		err = l.unkept.add(a, r.Request.Client, err)
	}
	if terms.Continue {
		return nil
	}
	return err
}

func (u *unkept) add(a *fetch.Result, client string, err error) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.answers == nil {
		u.answers = make(map[*fetch.Result]string)
	}
	if len(u.answers) < maxUnkept {
		u.answers[a] = client
	}
	return u.fail(err)
}

func (u *unkept) fail(err error) error {
	err = fmt.Errorf("%w: a robots.txt cannot be kept: %w", ErrUnwritable, err)
	u.failure.Store(&err)
	return err
}

// settle tries again what could not be kept, and waits for the disk to have what was.
func (u *unkept) settle(k SnapshotStore) {
	if k == nil {
		return
	}
	u.mu.Lock()
	answers := maps.Clone(u.answers)
	u.mu.Unlock()
	for a, client := range answers {
		if err := k.Save(a, client); err != nil && !errors.Is(err, ErrNoSpace) { // ErrNoRoom would not be tried again
			u.fail(err)
			return
		}
		u.mu.Lock()
		delete(u.answers, a)
		u.mu.Unlock()
	}
	if u.flush(k) != nil {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(u.answers) == 0 { // none has come meanwhile
		u.failure.Store(nil)
	}
}

// flush waits for the disk to have what was kept.
func (u *unkept) flush(k SnapshotStore) error {
	if k == nil {
		return nil
	}
	if err := k.Flush(); err != nil {
		return u.fail(err)
	}
	return nil
}

// err says why something is not kept; nil: all is.
func (u *unkept) err() error {
	if p := u.failure.Load(); p != nil {
		return *p
	}
	return nil
}
