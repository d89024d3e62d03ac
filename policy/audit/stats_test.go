package audit

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"robotsproxy/policy/audit/trail"
)

func TestStatsOfWhatIsWritten(t *testing.T) {
	l := open(t, Options{MaxSize: 2000})
	for range 5 {
		l.Write(refused())
		l.Write(allowed())
	}
	s := l.Stats()
	if s.Lines != 9 || s.Waiting != 1 || s.Unsynced == 0 || s.Err != nil || s.Failures != 0 || s.Lost != 0 {
		t.Errorf("%+v", s)
	}
	l.probe(true)
	s = l.Stats()
	var length uint64
	if err := eachFile(l.opened.File, func(size int64) { length += uint64(size) }); err != nil {
		t.Fatal(err)
	}
	if s.Lines != 10 || s.Waiting != 0 || s.Lag != 0 || s.Unsynced != 0 || s.Bytes != length || s.Rotations == 0 {
		t.Errorf("%+v, and %d bytes in the files", s, length)
	}
}

// eachFile returns the sizes of an audit's files before any is compressed.
func eachFile(path string, size func(int64)) error {
	files, err := trail.Segments(path)
	if err != nil {
		return err
	}
	for _, f := range files {
		info, err := os.Stat(f.Path)
		if err != nil {
			return err
		}
		size(info.Size())
	}
	return nil
}

func TestStatsOfASyncThatNeverIs(t *testing.T) {
	l := open(t, Options{Sync: SyncNone})
	l.Write(refused())
	if s := l.Stats(); s.Lines != 1 || s.Unsynced != 0 {
		t.Errorf("%+v", s)
	}
}

// The lag is that of the oldest line, by whatever hand it waits to be written, and is
// over when that is.
func TestLag(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := open(t, Options{Continue: true})
		lag := func(want time.Duration, waiting int) {
			t.Helper()
			if s := l.Stats(); s.Lag != want || s.Waiting != waiting {
				t.Errorf("%d lines wait, the oldest for %v; want %d and %v", s.Waiting, s.Lag, waiting, want)
			}
		}
		lag(0, 0)
		l.Write(allowed())
		lag(0, 1)
		<-time.After(3 * time.Second)
		lag(3*time.Second, 1)
		undo := stop(t, l)
		l.probe(false)
		l.Write(allowed()) // behind what cannot be written
		<-time.After(2 * time.Second)
		lag(5*time.Second, 2)
		undo()
		l.probe(false)
		lag(0, 0)
		l.Write(allowed())
		<-time.After(time.Second)
		lag(time.Second, 1)
	})
}

func TestStatsOfFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := open(t, Options{Continue: true})
		ctx, cancel := context.WithCancel(t.Context())
		go l.Run(ctx)
		undo := stop(t, l)
		l.Write(refused())
		<-time.After(3*probeDelay + batchDelay)
		s := l.Stats()
		if !errors.Is(s.Err, ErrUnwritable) || s.Failures < 3 || s.Failures > 6 || s.Lag < 3*time.Second {
			t.Errorf("%+v", s)
		}
		r := refused()
		r.Request.PathQuery = strings.Repeat("x", 8<<10)
		for range 2 * maxPending / len(r.Request.PathQuery) {
			l.Write(r)
		}
		if s = l.Stats(); s.Lost == 0 {
			t.Error("no record is lost where there is no room")
		}
		undo()
		<-time.After(2 * probeDelay)
		if after := l.Stats(); after.Err != nil || after.Lost != s.Lost || after.Waiting != 0 || after.Lag != 0 || after.Lines == 0 {
			t.Errorf("%+v", after)
		}
		cancel()
		synctest.Wait()
	})
}

// A disk that hangs holds up no scrape.
func TestStatsWaitForNoDisk(t *testing.T) {
	l := open(t, Options{})
	l.io.TryLock() // as a goroutine that waits for the disk does
	defer l.io.Unlock()
	l.Write(allowed())
	if s := l.Stats(); s.Waiting != 1 {
		t.Errorf("%+v", s)
	}
}
