package proxy

import (
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"robotsproxy/policy/audit"
)

// TestSentRequests: a line is written for a request that has not ended in time, and for no other one. The end waits for a
// line that is being written, but not for ever.
func TestSentRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var lines []string
		takes := time.Duration(0)
		u := &sentRequests{write: func(all ...*audit.Begun) error {
			mu.Lock()
			for _, b := range all {
				lines = append(lines, b.ID)
			}
			mu.Unlock()
			time.Sleep(takes)
			return errors.New("away")
		}}
		send := func(id string, inTime bool) *sentRequest {
			s := new(sentRequest)
			u.add(s, &audit.Record{ID: id}, inTime)
			return s
		}
		quick, slow := send("quick", false), send("slow", true)
		time.Sleep(begunAfter - time.Millisecond)
		if noLine, err := u.end(quick); !noLine || err != nil {
			t.Errorf("an early end: %v, %v", noLine, err)
		}
		if err := slow.await(t.Context()); err != nil {
			t.Errorf("within the first second: %v", err)
		}
		time.Sleep(begunWithin - begunAfter + time.Millisecond)
		if err := slow.await(t.Context()); err == nil {
			t.Error("a line that could not be written is no error")
		}
		if noLine, err := u.end(slow); noLine || err == nil {
			t.Errorf("a late end: %v, %v", noLine, err)
		}
		takes = 10 * lastWait
		hangs := send("hangs", true)
		time.Sleep(begunWithin)
		began := time.Now()
		if err := hangs.await(t.Context()); !errors.Is(err, audit.ErrUnwritable) || time.Since(began) != lastWait {
			t.Errorf("while the line is being written: %v after %v", err, time.Since(began))
		}
		if err := u.writeNow(hangs); !errors.Is(err, audit.ErrUnwritable) {
			t.Errorf("at once: %v", err)
		}
		mu.Lock()
		defer mu.Unlock()
		if want := []string{"slow", "hangs"}; !slices.Equal(lines, want) {
			t.Errorf("lines %q, want %q", lines, want)
		}
		synctest.Wait()
		time.Sleep(takes)
	})
}
