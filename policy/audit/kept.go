package audit

import (
	"fmt"
	"maps"
	"slices"
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

	mu      sync.Mutex // guards answers
	answers map[*fetch.Answer]struct{}
}

// keep has what a record rests on kept, before its line is written.
func (l *Log) keep(r *Record) error {
	a := r.Decision.Ruling.Answer
	if a == nil || l.o.Snapshots == nil {
		return nil
	}
	if err := l.o.Snapshots.Keep(a); err != nil {
		return l.unkept.add(a, err)
	}
	return nil
}

func (u *unkept) add(a *fetch.Answer, err error) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.answers == nil {
		u.answers = make(map[*fetch.Answer]struct{})
	}
	if len(u.answers) < maxUnkept {
		u.answers[a] = struct{}{}
	}
	return u.fail(err)
}

func (u *unkept) fail(err error) error {
	err = fmt.Errorf("%w: a robots.txt cannot be kept: %w", ErrUnwritable, err)
	u.failure.Store(&err)
	return err
}

// settle tries again what could not be kept, and waits for the disk to have what was.
func (u *unkept) settle(k Keeper) {
	if k == nil {
		return
	}
	u.mu.Lock()
	answers := slices.Collect(maps.Keys(u.answers))
	u.mu.Unlock()
	for _, a := range answers {
		if err := k.Keep(a); err != nil {
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
func (u *unkept) flush(k Keeper) error {
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
