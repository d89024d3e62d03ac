package audit

import (
	"errors"
	"fmt"
	"slices"
	"syscall"
	"testing"
	"testing/synctest"

	"robotsproxy/robots/fetch"
)

// keeper is a Keeper that records the contents of the file at each call.
type keeper struct {
	look     func()
	kept     []*fetch.Result
	flushed  int
	err      error // of Keep
	unsynced error // of Flush
	asked    int   // times, to keep something
	client   string
}

func (k *keeper) Save(a *fetch.Result, client string) error {
	k.asked++
	k.client = client
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

func TestSnapshotIsSavedBeforeTheLine(t *testing.T) {
	k := new(keeper)
	l := open(t, Options{Snapshots: k})
	k.look = func() {
		if got := chained(t, l.opened.File); got != nil {
			t.Errorf("the line was there first: %q", got)
		}
	}
	r := refused()
	r.Decision.TDMRep.Result = &fetch.Result{URL: "https://site.test/.well-known/tdmrep.json"}
	l.Write(r)
	if !slices.Equal(k.kept, []*fetch.Result{r.Decision.Ruling.Result, r.Decision.TDMRep.Result}) {
		t.Errorf("kept: %v", k.kept)
	}
}

func TestDiskIsWaitedForSnapshots(t *testing.T) {
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
		k.unsynced = syscall.EIO
		if err := l.Write(refused()); s == SyncAlways && !errors.Is(err, syscall.EIO) {
			t.Errorf("a refusal whose robots.txt is not on the disk: %v", err)
		}
		l.probe(true)
		l.probe(false)
		if err := l.Err(); !errors.Is(err, syscall.EIO) {
			t.Errorf("Sync %d: no word of a disk that does not take it: %v", s, err)
		}
		k.unsynced = nil
		l.probe(true)
		if err := l.Err(); err != nil {
			t.Errorf("Sync %d: %v", s, err)
		}
	}
}

func TestUnsavedSnapshotRefuses(t *testing.T) {
	k := &keeper{look: func() {}, err: syscall.ENOSPC}
	l := open(t, Options{Snapshots: k})
	if err := l.Write(refused()); !errors.Is(err, ErrUnwritable) || !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("got %v", err)
	}
	if got := chained(t, l.opened.File); !slices.Equal(got, []string{"block"}) {
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

// TestNoRoomRefusesOneRequest: where there is no space for one host's robots.txt, others
// go on, and the refusal is recorded.
func TestNoRoomRefusesOneRequest(t *testing.T) {
	k := &keeper{look: func() {}, err: fmt.Errorf("full: %w", ErrNoSpace)}
	l := open(t, Options{Snapshots: k})
	r := refused()
	if err := l.SaveSnapshot(r); !errors.Is(err, ErrNoSpace) || errors.Is(err, ErrUnwritable) {
		t.Errorf("got %v", err)
	}
	if err := l.Write(r); err != nil || k.asked != 1 {
		t.Errorf("its record: %v, asked %d times", err, k.asked)
	}
	if err := l.Write(refused()); !errors.Is(err, ErrNoSpace) || k.asked != 2 {
		t.Errorf("a record that Keep was not called for: %v, asked %d times", err, k.asked)
	}
	if got := chained(t, l.opened.File); !slices.Equal(got, []string{"block", "block"}) {
		t.Errorf("got %q", got)
	}
	if l.probe(true); l.Err() != nil || l.Refusal() != nil || k.asked != 2 {
		t.Errorf("others are held up: %v, asked %d times", l.Err(), k.asked)
	}
}

// TestNoRoomAfterAFailure: what could not be kept, and now has no space, holds up nothing.
func TestNoRoomAfterAFailure(t *testing.T) {
	k := &keeper{look: func() {}, err: syscall.EIO}
	l := open(t, Options{Snapshots: k})
	if err := l.SaveSnapshot(refused()); !errors.Is(err, ErrUnwritable) || l.Refusal() == nil {
		t.Errorf("got %v", err)
	}
	k.err = ErrNoSpace
	if l.probe(true); l.Refusal() != nil {
		t.Errorf("got %v", l.Refusal())
	}
}

func TestUnsavedSnapshotWithContinue(t *testing.T) {
	for name, c := range map[string]struct {
		o     Options
		asked int
	}{
		"on_error: continue": {Options{Continue: true}, 1},
		"include: blocked":   {Options{BlockedOnly: true}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			k := &keeper{look: func() {}, err: ErrNoSpace}
			c.o.Snapshots = k
			l := open(t, c.o)
			if err := l.SaveSnapshot(allowed()); err != nil || k.asked != c.asked {
				t.Errorf("%v, asked %d times", err, k.asked)
			}
		})
	}
}

// TestSaveSnapshotNamesTheClient: whose share it counts against, when it is tried again too.
func TestSaveSnapshotNamesTheClient(t *testing.T) {
	k := &keeper{look: func() {}, err: syscall.EIO}
	l := open(t, Options{Snapshots: k})
	r := refused()
	l.SaveSnapshot(r)
	if k.client != r.Request.Client || k.client == "" {
		t.Errorf("%q", k.client)
	}
	k.client, k.err = "", nil
	if l.probe(true); k.client != r.Request.Client {
		t.Errorf("again: %q", k.client)
	}
}

// slowDisk is a SnapshotStore. The first wait for its disk succeeds, but ends late: after the second one has failed.
type slowDisk struct{ first, second chan struct{} }

func (d *slowDisk) Save(*fetch.Result, string) error { return nil }

func (d *slowDisk) Flush() error {
	select {
	case d.first <- struct{}{}:
		<-d.second
		return nil
	default:
		return syscall.EIO
	}
}

// TestRetryThatEndsLate: a retry that waits for the disk does not hide a failure that comes meanwhile.
func TestRetryThatEndsLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &slowDisk{make(chan struct{}, 1), make(chan struct{}, 1)}
		var u unsavedSnapshots
		go u.retry(d)
		synctest.Wait()
		if err := u.flush(d); !errors.Is(err, syscall.EIO) {
			t.Fatalf("got %v", err)
		}
		d.second <- struct{}{}
		synctest.Wait()
		if err := u.err(); !errors.Is(err, syscall.EIO) {
			t.Errorf("the failure is hidden: %v", err)
		}
		<-d.first
		d.second <- struct{}{}
		if u.retry(d); u.err() != nil {
			t.Errorf("the next retry does not end it: %v", u.err())
		}
	})
}
