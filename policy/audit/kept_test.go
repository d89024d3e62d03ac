package audit

import (
	"errors"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"robotsproxy/robots/fetch"
)

// keeper is a Keeper that says what is in the file when it is asked to keep something.
type keeper struct {
	look     func()
	kept     []*fetch.Answer
	flushed  int
	err      error // of Keep
	unsynced error // of Flush
}

func (k *keeper) Keep(a *fetch.Answer) error {
	k.look()
	if k.err == nil {
		k.kept = append(k.kept, a)
	}
	return k.err
}

func (k *keeper) Flush() error {
	k.flushed++
	return k.unsynced
}

func TestRobotsIsKeptBeforeTheLine(t *testing.T) {
	k := new(keeper)
	l := open(t, Options{Snapshots: k})
	k.look = func() {
		if got := chained(t, l.o.File); got != nil {
			t.Errorf("the line was there first: %q", got)
		}
	}
	r := refused()
	l.Write(r)
	if !slices.Equal(k.kept, []*fetch.Answer{r.Decision.Ruling.Answer}) {
		t.Errorf("kept: %v", k.kept)
	}
}

func TestDiskIsWaitedForWhatIsKept(t *testing.T) {
	for _, s := range []Sync{SyncInterval, SyncNone, SyncAlways} {
		k := &keeper{look: func() {}}
		l := open(t, Options{Snapshots: k, Sync: s})
		want := 0
		if s == SyncAlways {
			want++
		}
		if l.Write(refused()); k.flushed != want {
			t.Errorf("Sync %d: the disk was waited for %d times before a refusal", s, k.flushed)
		}
		if l.probe(true); k.flushed != want+1 {
			t.Errorf("Sync %d: nobody has looked after what was kept", s)
		}
		k.unsynced = unix.EIO
		if err := l.Write(refused()); s == SyncAlways && !errors.Is(err, unix.EIO) {
			t.Errorf("a refusal whose robots.txt is not on the disk: %v", err)
		}
		l.probe(true)
		l.probe(false)
		if err := l.Err(); !errors.Is(err, unix.EIO) {
			t.Errorf("Sync %d: no word of a disk that does not take it: %v", s, err)
		}
		k.unsynced = nil
		l.probe(true)
		if err := l.Err(); err != nil {
			t.Errorf("Sync %d: %v", s, err)
		}
	}
}

func TestRobotsThatCannotBeKeptRefuses(t *testing.T) {
	k := &keeper{look: func() {}, err: unix.ENOSPC}
	l := open(t, Options{Snapshots: k})
	if err := l.Write(refused()); !errors.Is(err, ErrUnwritable) || !errors.Is(err, unix.ENOSPC) {
		t.Errorf("got %v", err)
	}
	if got := chained(t, l.o.File); !slices.Equal(got, []string{"block"}) {
		t.Errorf("the line is not written all the same: %q", got)
	}
	l.probe(true)
	if l.Err() == nil {
		t.Error("a probe says that all is well")
	}
	k.err = nil
	l.probe(true)
	if err := l.Err(); err != nil || len(k.kept) != 1 {
		t.Errorf("%v, kept %v", err, k.kept)
	}
}
