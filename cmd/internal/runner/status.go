package runner

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"robotsproxy/cmd/internal/daemon"
	"robotsproxy/policy/explain/humanize"
	"robotsproxy/policy/pace"
	"robotsproxy/robots"
)

// Timing of the status line.
const (
	statusEvery = 250 * time.Millisecond // shortest time between two updates
	statusFrom  = time.Second            // it appears if the next request is due no sooner
	statusUntil = 400 * time.Millisecond // it disappears so long before that request: the command may print on its response
	statusLog   = 10 * time.Second       // between two lines on what is no terminal
	statusWipe  = time.Second            // longest delay of a signal by a terminal that is stopped (^S)
	statusNote  = 10 * time.Second       // a longer wait is reported once, if no line says so
)

// The choices of --status.
const (
	statusAuto   = "auto"
	statusAlways = "always"
	statusNever  = "never"
)

var statuses = []string{statusAuto, statusAlways, statusNever}

// A status shows on a terminal, while a command runs there, what its requests wait for.
//
// The terminal belongs to the command, whose output goes there directly and unseen by this process.
// So the status line is drawn below the cursor, the cursor is put back, and the line is removed by
// erasing everything after the cursor, where there is no output. (A command that moves to the start
// of its line after writing it loses that line.) The line is shown only while no request is under
// way and the next one is not due: then the command has no response to print. (With --status always
// it is shown all the time, and may mix with the output.) It is not drawn on a terminal that the
// command reads key by key (an editor, a pager, a prompt with line editing) or without echo (a
// password), or that has another process group in the foreground. It ends when the command is asked
// to end, which may then print something.
//
// Where a wait is not shown, because w is no terminal or the line would mix with the output, the first wait over
// statusNote for a robots.txt, and the first one for a slot, are each written as a plain line.
type status struct {
	w      io.Writer
	counts func() outcomeCounts
	hosts  func() []pace.HostState

	// robots is [daemon.Daemon.AwaitedRobots].
	robots func() (robots.Origin, time.Time)
	always bool

	// screen is nil if w is no terminal, which gets a line now and then (always), or none.
	screen screen

	// shown is the line on the screen, or the last one written; "": there is none.
	shown string

	// last is when shown was written.
	last time.Time

	// notedRobots and notedSlot say that a wait for a robots.txt, and for a slot, was reported.
	notedRobots, notedSlot bool
}

// A screen is the terminal that a status is drawn on.
type screen interface {
	// IsIdle reports whether the line disturbs no program.
	IsIdle() bool
	// Width returns the width in columns.
	Width() int
	// Dim reports whether the line may be dimmed.
	Dim() bool
}

// startStatus starts the status line on w; mode is the value of --status. Either function that it
// returns ends it for good: wipe waits until the line is removed, at most statusWipe; stop waits
// without a limit.
func startStatus(w io.Writer, mode string, counts *counter, d *daemon.Daemon) (wipe, stop func()) {
	if mode == statusNever {
		return func() {}, func() {}
	}
	s := &status{
		w: w, counts: counts.counts, hosts: d.Pacer.Hosts, robots: d.AwaitedRobots, always: mode == statusAlways, screen: openTerminal(w),
	}
	ctx, cancel := context.WithCancel(context.Background())
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		s.run(ctx)
	}()
	end := func(limit <-chan time.Time) {
		cancel()
		select {
		case <-stopped:
		case <-limit:
		}
	}
	return func() { end(time.After(statusWipe)) }, func() { end(nil) }
}

// run draws until ctx ends, and then removes the line.
func (s *status) run(ctx context.Context) {
	tick := time.NewTicker(statusEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			s.clear()
			return
		case now := <-tick.C:
			s.draw(now)
			s.note(now)
		}
	}
}

// note reports a long wait that no line shows.
func (s *status) note(now time.Time) {
	if s.always || s.notedRobots && s.notedSlot || s.screen != nil && !s.screen.IsIdle() {
		return
	}
	say := func(noted *bool, since time.Time, of string) {
		if *noted || since.IsZero() || now.Sub(since) < statusNote {
			return
		}
		*noted = true
		s.clear()
		fmt.Fprintf(s.w, "robotsproxy: %s; --status always shows every wait\n", of)
	}
	origin, since := s.robots()
	say(&s.notedRobots, since, "waiting for "+humanize.Printable(origin.RobotsURL()))
	longest := longestWait(s.hosts())
	// The line has shown the wait if it was written later.
	if !s.last.Before(longest.Since) {
		return
	}
	say(&s.notedSlot, longest.Since, strings.TrimPrefix(firstQueue([]pace.HostState{longest}, now).String(), ", "))
}

// longestWait returns the host for which a request has waited longest; the zero HostState if none waits.
func longestWait(hosts []pace.HostState) (longest pace.HostState) {
	for _, h := range hosts {
		if !h.Since.IsZero() && (longest.Since.IsZero() || h.Since.Before(longest.Since)) {
			longest = h
		}
	}
	return longest
}

// draw shows what requests wait for now.
func (s *status) draw(now time.Time) {
	if s.screen == nil && !s.always {
		return
	}
	text := s.text(now)
	if s.screen == nil {
		if text != "" && text != s.shown && now.Sub(s.last) >= statusLog {
			fmt.Fprintln(s.w, text)
			s.shown, s.last = text, now
		}
		return
	}
	// A line that fills the last column may wrap.
	text = cut(text, s.screen.Width()-1)
	if text == s.shown || !s.screen.IsIdle() {
		return
	}
	if text == "" {
		s.clear()
		return
	}
	look := text
	if s.screen.Dim() {
		look = "\x1b[2m" + text
	}
	// It erases what follows the cursor, makes sure that there is a line below (IND scrolls, and keeps the
	// column), saves the cursor and how it writes, draws on that line, and restores the cursor. It does not
	// matter whether the write succeeds.
	io.WriteString(s.w, "\x1b[J\x1bD\x1b[A\x1b7\r\x1b[B"+look+"\x1b8")
	s.shown, s.last = text, now
}

// clear removes the line.
func (s *status) clear() {
	if s.screen != nil && s.shown != "" {
		io.WriteString(s.w, "\x1b[J")
		s.shown = ""
	}
}

// text returns the line; "": nothing to show now.
func (s *status) text(now time.Time) string {
	q := firstQueue(s.hosts(), now)
	least := statusFrom
	if s.shown != "" {
		least = statusUntil
	}
	if !s.always && (q.waiting == 0 || q.underWay > 0 || q.left < least) {
		return ""
	}
	counts := s.counts()
	if s.always && counts.total() == 0 && q.waiting == 0 {
		return ""
	}
	return fmt.Sprintf("robotsproxy: %s%s", outcomesText(counts), q)
}

// A queue is what requests wait for.
type queue struct {
	// host is the host whose next request is due first.
	host string

	// left is the time until then; not positive: the request waits for a slot, not for a time.
	left time.Duration

	// waiting counts the requests that wait for host; zero: none wait for any host.
	waiting int

	// others counts the other hosts with waiting requests.
	others int

	// underWay counts the requests to all hosts that are under way.
	underWay int
}

// firstQueue returns the queue of the host whose next request is due first.
func firstQueue(hosts []pace.HostState, now time.Time) (q queue) {
	var waited []pace.HostState
	for _, h := range hosts {
		q.underWay += h.UnderWay
		if h.Waiting > 0 {
			waited = append(waited, h)
		}
	}
	if len(waited) == 0 {
		return q
	}
	first := slices.MinFunc(waited, func(a, b pace.HostState) int {
		return cmp.Or(due(a).Compare(due(b)), cmp.Compare(a.Key, b.Key))
	})
	q.host, q.left, q.waiting, q.others = first.Key, due(first).Sub(now), first.Waiting, len(waited)-1
	return q
}

// due returns when a host's next request may be sent.
func due(h pace.HostState) time.Time {
	at := h.Sent.Add(max(h.Gap, h.Slowed))
	if h.BackOffUntil.After(at) {
		return h.BackOffUntil
	}
	return at
}

// String returns the queue's part of the status line.
func (q queue) String() string {
	if q.waiting == 0 {
		return ""
	}
	text := ", waiting for " + humanize.Printable(q.host)
	if q.left > 0 {
		text += fmt.Sprintf(" %d s", (q.left+time.Second-1)/time.Second)
	}
	text += fmt.Sprintf(" (%d in queue)", q.waiting)
	if q.others > 0 {
		text += " and for " + count(int64(q.others), "other host")
	}
	return text
}

// cut shortens a text to so many columns.
func cut(text string, columns int) string {
	runes := []rune(text)
	return string(runes[:max(0, min(len(runes), columns))])
}
