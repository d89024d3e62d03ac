package runner

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"robotsproxy/cmd/internal/e2e"
	"robotsproxy/policy/pace"
	"robotsproxy/robots"
)

// TestStatusNotesALongWait: a wait of more than 10 s that no line shows is reported, once.
func TestStatusNotesALongWait(t *testing.T) {
	const ends = "; --status always shows every wait\n"
	const slotNote, robotsNote = "robotsproxy: waiting for a.test 20 s (1 in queue)" + ends, "robotsproxy: waiting for http://a.test/robots.txt" + ends
	// slot makes a request wait from one second to another.
	slot := func(from, to, second int) []pace.HostState {
		if second < from || second >= to {
			return []pace.HostState{{Key: "a.test"}}
		}
		began := time.Now().Truncate(time.Second).Add(time.Duration(from-second) * time.Second)
		return []pace.HostState{{Key: "b.test", UnderWay: 1}, {Key: "a.test", Waiting: 1, Since: began, Sent: began, Gap: time.Duration(to-from) * time.Second}}
	}
	for _, c := range []struct {
		name   string
		screen screen
		hosts  func(second int) []pace.HostState
		robots [2]int         // the seconds from which and until which a robots.txt is awaited
		want   map[int]string // what is written, by the second until which it was
	}{
		{"a slot", nil, func(s int) []pace.HostState { return slot(2, 32, s) }, [2]int{}, map[int]string{11: "", 13: slotNote, 60: slotNote}},
		{"a slot, twice", nil, func(s int) []pace.HostState { return append(slot(2, 32, s), slot(40, 70, s)...) }, [2]int{}, map[int]string{60: slotNote}},
		{"short waits", nil, func(s int) []pace.HostState { return slot(s/9*9, s/9*9+9, s) }, [2]int{}, map[int]string{60: ""}},
		{"a robots.txt", nil, func(s int) []pace.HostState { return slot(60, 60, s) }, [2]int{0, 15}, map[int]string{9: "", 11: robotsNote, 60: robotsNote}},
		{"a robots.txt that comes", nil, func(s int) []pace.HostState { return slot(60, 60, s) }, [2]int{0, 9}, map[int]string{60: ""}},
		{"both", nil, func(s int) []pace.HostState { return slot(20, 50, s) }, [2]int{0, 20}, map[int]string{60: robotsNote + slotNote}},
		{"output may come", &frame{free: true, width: 60}, func(s int) []pace.HostState { return slot(2, 32, s) }, [2]int{}, map[int]string{60: slotNote}},
		{"keys are read", &frame{width: 60}, func(s int) []pace.HostState { return slot(2, 32, s) }, [2]int{0, 60}, map[int]string{60: ""}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var b e2e.SyncBuffer
				began := time.Now()
				second := func() int { return int(time.Since(began) / time.Second) }
				s := status{w: &b, screen: c.screen, counts: countOf(1, 0), hosts: func() []pace.HostState { return c.hosts(second()) },
					robots: func() (o robots.Origin, since time.Time) {
						if n := second(); n < c.robots[0] || n >= c.robots[1] {
							return o, since
						}
						return robots.Origin{Scheme: "http", Host: "a.test", Port: 80}, began.Add(time.Duration(c.robots[0]) * time.Second)
					}}
				ctx, cancel := context.WithCancel(t.Context())
				go s.run(ctx)
				for at := range 61 {
					if want, checked := c.want[at]; checked {
						synctest.Wait()
						if got := b.String(); got != want {
							t.Errorf("after %d s: %q, want %q", at, got, want)
						}
					}
					time.Sleep(time.Second)
				}
				cancel()
				synctest.Wait()
			})
		})
	}
}

// A sharedScreen is a fakeScreen that several goroutines use.
type sharedScreen struct {
	mu     sync.Mutex // guards screen
	screen fakeScreen
}

// Write implements io.Writer.
func (s *sharedScreen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.screen.Write(p)
}

// String returns what the screen shows.
func (s *sharedScreen) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.screen.String()
}

// TestStatusNotesNoWaitThatItShows: a wait that the line has shown is not reported when the line is removed.
func TestStatusNotesNoWaitThatItShows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &sharedScreen{screen: fakeScreen{t: t, height: 5}}
		began := time.Now()
		s := status{w: g, screen: &frame{free: true, width: 80}, counts: countOf(1, 0), robots: func() (o robots.Origin, at time.Time) { return o, at },
			hosts: func() []pace.HostState {
				return []pace.HostState{{Key: "a.test", Waiting: 1, Since: began, Sent: began, Gap: 30 * time.Second}}
			}}
		ctx, cancel := context.WithCancel(t.Context())
		go s.run(ctx)
		var seen []bool
		for range 60 {
			time.Sleep(time.Second / 2)
			synctest.Wait()
			shown := strings.Contains(g.String(), "waiting for a.test")
			if len(seen) == 0 || seen[len(seen)-1] != shown {
				seen = append(seen, shown)
			}
		}
		cancel()
		synctest.Wait()
		if !slices.Equal(seen, []bool{true, false}) || g.String() != "" {
			t.Errorf("shown: %v; in the end:\n%s", seen, g)
		}
	})
}
