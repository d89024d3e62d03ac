package runner

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"robotsproxy/policy"
	"robotsproxy/policy/pace"
)

func countOf(allowed, disallowed int64) func() outcomeCounts {
	return func() outcomeCounts { return outcomeCounts{policy.Allowed: allowed, policy.Disallowed: disallowed} }
}

// A fakeScreen is the screen of a terminal. It interprets what a status and a command write.
type fakeScreen struct {
	t      *testing.T
	rows   [][]rune
	x, y   int
	sx, sy int
	height int
	dim    bool
	sdim   bool
}

func (g *fakeScreen) Write(b []byte) (int, error) {
	for s := string(b); s != ""; {
		s = g.step(s)
	}
	return len(b), nil
}

func (g *fakeScreen) down(x int) {
	if g.x = x; g.y < g.height-1 {
		g.y++
		return
	}
	copy(g.rows, g.rows[1:])
	g.rows[g.height-1] = nil
}

// step takes one character or sequence.
func (g *fakeScreen) step(s string) string {
	for len(g.rows) < g.height {
		g.rows = append(g.rows, nil)
	}
	if rest, is := strings.CutPrefix(s, "\x1b["); is {
		end := strings.IndexFunc(rest, func(r rune) bool { return r >= '@' })
		switch rest[end] {
		case 'A':
			g.y = max(0, g.y-1)
		case 'B':
			g.y = min(g.height-1, g.y+1)
		case 'J':
			g.rows[g.y] = g.rows[g.y][:min(g.x, len(g.rows[g.y]))]
			clear(g.rows[g.y+1:])
		case 'm':
			n, _ := strconv.Atoi(rest[:end])
			g.dim = n == 2
		default:
			g.t.Fatalf("not known: %q", s)
		}
		return rest[end+1:]
	}
	if rest, is := strings.CutPrefix(s, "\x1b"); is {
		switch rest[0] {
		case 'D':
			g.down(g.x)
		case '7':
			g.sx, g.sy, g.sdim = g.x, g.y, g.dim
		case '8':
			g.x, g.y, g.dim = g.sx, g.sy, g.sdim
		default:
			g.t.Fatalf("not known: %q", s)
		}
		return rest[1:]
	}
	switch r := []rune(s)[0]; r {
	case '\r':
		g.x = 0
	case '\n':
		g.down(0)
	default:
		row := g.rows[g.y]
		for len(row) <= g.x {
			row = append(row, ' ')
		}
		row[g.x] = r
		g.rows[g.y] = row
		g.x++
	}
	return s[len(string([]rune(s)[:1])):]
}

func (g *fakeScreen) String() string {
	var lines []string
	for _, row := range g.rows {
		lines = append(lines, strings.TrimRight(string(row), " "))
	}
	return strings.TrimRight(strings.Join(lines, "\n"), "\n")
}

// A frame is a screen of a test's own.
type frame struct {
	free  bool
	width int
	dim   bool
}

func (f *frame) IsIdle() bool { return f.free }

func (f *frame) Width() int { return f.width }

func (f *frame) Dim() bool { return f.dim }

var start = time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)

// waiting is a host whose next request goes after so long.
func waiting(host string, n int, left time.Duration) pace.HostState {
	return pace.HostState{Key: host, Waiting: n, Sent: start.Add(left - 5*time.Second), Gap: 5 * time.Second}
}

func TestStatusText(t *testing.T) {
	for _, c := range []struct {
		name   string
		hosts  []pace.HostState
		always bool
		shown  string
		want   string
	}{
		{"nothing waits", []pace.HostState{{Key: "a.test"}}, false, "", ""},
		{"nothing waits, always", []pace.HostState{{Key: "a.test"}}, true, "", "120 allowed, 3 disallowed"},
		{"one waits", []pace.HostState{waiting("a.test", 2, 3500*time.Millisecond)}, false, "", "120 allowed, 3 disallowed, waiting for a.test 4 s (2 in queue)"},
		{"not for long", []pace.HostState{waiting("a.test", 2, 900*time.Millisecond)}, false, "", ""},
		{"not for long any more", []pace.HostState{waiting("a.test", 2, 900*time.Millisecond)}, false, "x", "120 allowed, 3 disallowed, waiting for a.test 1 s (2 in queue)"},
		{"it is due", []pace.HostState{waiting("a.test", 2, 300*time.Millisecond)}, false, "x", ""},
		{"something is under way", []pace.HostState{waiting("a.test", 2, 4*time.Second), {Key: "b.test", UnderWay: 1}}, false, "", ""},
		{"something is under way, always", []pace.HostState{waiting("a.test", 2, 4*time.Second), {Key: "b.test", UnderWay: 1}}, true, "", "120 allowed, 3 disallowed, waiting for a.test 4 s (2 in queue)"},
		{"the next one counts", []pace.HostState{waiting("a.test", 2, 4*time.Second), waiting("b.test", 1, 2*time.Second)}, false, "", "120 allowed, 3 disallowed, waiting for b.test 2 s (1 in queue) and for 1 other host"},
		{"the next one is due", []pace.HostState{waiting("a.test", 2, 4*time.Second), waiting("b.test", 1, 0)}, false, "", ""},
		{"no place is free", []pace.HostState{{Key: "a.test", Waiting: 1, UnderWay: 2}}, true, "", "120 allowed, 3 disallowed, waiting for a.test (1 in queue)"},
		{"a pause", []pace.HostState{{Key: "a.test", Waiting: 1, Sent: start, Gap: time.Second, BackOffUntil: start.Add(30 * time.Second)}}, false, "", "120 allowed, 3 disallowed, waiting for a.test 30 s (1 in queue)"},
		{"a slow host", []pace.HostState{{Key: "a.test", Waiting: 1, Sent: start, Gap: time.Second, Slowed: 7 * time.Second}}, false, "", "120 allowed, 3 disallowed, waiting for a.test 7 s (1 in queue)"},
		{"a hostile name", []pace.HostState{waiting("a\x1b[2J", 1, 2*time.Second)}, false, "", `120 allowed, 3 disallowed, waiting for "a\x1b[2J" 2 s (1 in queue)`},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := status{always: c.always, shown: c.shown, hosts: func() []pace.HostState { return c.hosts }, counts: countOf(120, 3)}
			want := c.want
			if want != "" {
				want = "robotsproxy: " + want
			}
			if got := s.text(start); got != want {
				t.Errorf("%q, want %q", got, want)
			}
		})
	}
}

// The status line does not change the command's output, wherever the cursor is.
func TestStatusOnAScreen(t *testing.T) {
	for _, c := range []struct {
		name, before, appendOptions string
		want                        string // on the screen at the end
	}{
		{"on an empty screen", "", "done\n", "done"},
		{"behind a line", "one\n", "two\n", "one\ntwo"},
		{"in a line", "fetching... ", "ok\n", "fetching... ok"},
		{"on the last row", "1\n2\n3\n4\n5\n", "6\n", "3\n4\n5\n6"},
		{"in the last row", "1\n2\n3\n4\n5 ", "5\n", "2\n3\n4\n5 5"},
		{"in a long line that goes back", "progress 10%\r", "progress 99%\n", "progress 99%"},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := &fakeScreen{t: t, height: 5}
			hosts := []pace.HostState{waiting("a.test", 2, 3*time.Second)}
			s := status{w: g, screen: &frame{free: true, width: 60, dim: true}, hosts: func() []pace.HostState { return hosts }, counts: countOf(1, 0)}
			g.Write([]byte(c.before))
			for at := time.Duration(0); at < 3*time.Second; at += statusEvery {
				s.draw(start.Add(at))
				if shown := strings.Contains(g.String(), "waiting for a.test"); shown != (at <= 2500*time.Millisecond) {
					t.Errorf("after %s: shown %t:\n%s", at, shown, g)
				}
				if g.dim {
					t.Error("the command's output is dimmed")
				}
			}
			hosts = nil
			g.Write([]byte(c.appendOptions))
			s.draw(start.Add(4 * time.Second))
			if got := g.String(); got != c.want {
				t.Errorf("in the end:\n%s\nwant\n%s", got, c.want)
			}
		})
	}
}

// Output while the line is shown is not lost, and the overwritten part of the line is
// removed.
func TestStatusUnderUnexpectedOutput(t *testing.T) {
	g := &fakeScreen{t: t, height: 5}
	s := status{w: g, screen: &frame{free: true, width: 80}, counts: countOf(1, 0),
		hosts: func() []pace.HostState { return []pace.HostState{waiting("a.test", 2, 3*time.Second)} }}
	g.Write([]byte("one "))
	s.draw(start)
	g.Write([]byte("two\n"))
	s.draw(start.Add(time.Second))
	if want := "one two\n\nrobotsproxy: 1 allowed, 0 disallowed, waiting for a.test 2 s (2"; !strings.HasPrefix(g.String(), want) {
		t.Errorf("%s", g)
	}
	s.clear()
	if got := g.String(); got != "one two" {
		t.Errorf("%s", got)
	}
}

func TestStatusLeavesTheScreenAlone(t *testing.T) {
	g, f := &fakeScreen{t: t, height: 5}, &frame{width: 60}
	s := status{w: g, screen: f, counts: countOf(1, 0),
		hosts: func() []pace.HostState { return []pace.HostState{waiting("a.test", 2, 3*time.Second)} }}
	s.draw(start)
	if g.String() != "" {
		t.Errorf("drawn on a screen that is not free: %s", g)
	}
	f.free = true
	s.draw(start)
	f.free = false
	before := g.String()
	s.draw(start.Add(time.Second))
	if got := g.String(); got != before || got == "" {
		t.Errorf("%s\nwant\n%s", got, before)
	}
}

func TestStatusIsCut(t *testing.T) {
	for width, want := range map[int]string{20: "robotsproxy: 1 allo", 1: "", 0: ""} {
		g := &fakeScreen{t: t, height: 5}
		s := status{w: g, screen: &frame{free: true, width: width}, counts: countOf(1, 0),
			hosts: func() []pace.HostState { return []pace.HostState{waiting("a.test", 2, 3*time.Second)} }}
		s.draw(start)
		if got := strings.TrimPrefix(g.String(), "\n"); got != want {
			t.Errorf("%d columns: %q", width, got)
		}
	}
	if got := cut("wäre", 2); got != "wä" {
		t.Errorf("%q", got)
	}
}

// What is no terminal has a line now and then, and none that moves the cursor.
func TestStatusInALog(t *testing.T) {
	var b strings.Builder
	allowed := int64(0)
	s := status{w: &b, always: true, counts: func() outcomeCounts { return outcomeCounts{policy.Allowed: allowed} }, hosts: func() []pace.HostState { return nil }}
	for at := time.Duration(0); at < 25*time.Second; at += statusEvery {
		s.draw(start.Add(at))
		allowed = min(allowed+1, 50)
	}
	s.clear()
	if want := "robotsproxy: 1 allowed, 0 disallowed\nrobotsproxy: 41 allowed, 0 disallowed\nrobotsproxy: 50 allowed, 0 disallowed\n"; b.String() != want {
		t.Errorf("%q", b.String())
	}
}
