package runner

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"robotsproxy/policy/audit"
	"robotsproxy/policy/explain/humanize"
	"robotsproxy/policy/pace"
)

// How the line of a run comes and goes.
const (
	statusEvery = 250 * time.Millisecond // it is drawn anew no more often
	statusFrom  = time.Second            // it comes where the next request goes no sooner
	statusUntil = 400 * time.Millisecond // and goes so long before that: what the answer makes the command print has the screen to itself
	statusLog   = 10 * time.Second       // between two lines, where they cannot be drawn over
	statusWipe  = time.Second            // a signal is held up no longer by a terminal that takes nothing (^S)
)

// The choices of --status.
const (
	statusAuto   = "auto"
	statusAlways = "always"
	statusNever  = "never"
)

var statuses = []string{statusAuto, statusAlways, statusNever}

// A status says on a terminal, while a command runs there, what its requests wait for.
//
// The terminal is the command's: its output goes there untouched and unseen. So the
// line stands below the cursor, which is put back, and is taken away by erasing what is
// behind the cursor, where no output is (but that of a command that goes back to the
// beginning of its line when it has written it: it loses that line). And it is there only while nothing is under way
// and the next request is not due: the command has no answer then to print. (With
// --status always it is there all the time, and may be mixed with the output.) It
// leaves alone a terminal that the command reads key by key (an editor, a pager, a
// prompt with line editing) or without echo (a password), or that another group of
// processes has in the foreground. It ends when the command is asked to end, which then
// has something to say.
type status struct {
	w      io.Writer
	counts func() (allowed, blocked int64)
	hosts  func() []pace.HostState
	always bool
	screen screen // nil: w is no terminal, and has a line of its own now and then

	shown string    // what is drawn, or was written last; "": nothing
	last  time.Time // when it was
}

// A screen is the terminal that a status is drawn on.
type screen interface {
	Free() bool // the line disturbs nobody
	Width() int // in columns
	Dim() bool  // the line may be told by its look
}

// watchRun begins to say what waits; w is where, mode what --status says. Either of
// what it gives ends that for good: wipe waits until the line is gone, but only so long
// as a signal may be held up, stop waits for all.
func watchRun(w io.Writer, mode string, counts *audit.Counter, pacer *pace.Pacer) (wipe, stop func()) {
	on := ttyOf(w)
	if mode == statusNever || mode == statusAuto && on == nil {
		return func() {}, func() {}
	}
	s := &status{w: w, counts: counts.Counts, hosts: pacer.Hosts, always: mode == statusAlways}
	if on != nil {
		s.screen = on
	}
	ctx, cancel := context.WithCancel(context.Background())
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		s.run(ctx)
	}()
	wipe = func() {
		cancel()
		select {
		case <-gone:
		case <-time.After(statusWipe):
		}
	}
	return wipe, func() {
		cancel()
		<-gone
	}
}

// run draws until ctx ends, and leaves nothing behind.
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
		}
	}
}

func (s *status) draw(now time.Time) {
	text := s.text(now)
	if s.screen == nil {
		if text != "" && text != s.shown && now.Sub(s.last) >= statusLog {
			fmt.Fprintln(s.w, text)
			s.shown, s.last = text, now
		}
		return
	}
	text = cut(text, s.screen.Width()-1) // a line that is full may break
	if text == s.shown || !s.screen.Free() {
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
	// Erase behind the cursor; make sure that there is a line below (IND scrolls, and
	// keeps the column); keep the cursor, and how it writes; draw there; put it back.
	io.WriteString(s.w, "\x1b[J\x1bD\x1b[A\x1b7\r\x1b[B"+look+"\x1b8") // where nobody sees it, nothing is lost
	s.shown = text
}

// clear takes the line away.
func (s *status) clear() {
	if s.screen != nil && s.shown != "" {
		io.WriteString(s.w, "\x1b[J")
		s.shown = ""
	}
}

// text is the line; "": there is nothing to say now.
func (s *status) text(now time.Time) string {
	q := queueOf(s.hosts(), now)
	least := statusFrom
	if s.shown != "" {
		least = statusUntil
	}
	if !s.always && (q.waiting == 0 || q.underWay > 0 || q.left < least) {
		return ""
	}
	allowed, blocked := s.counts()
	if s.always && allowed+blocked == 0 && q.waiting == 0 {
		return ""
	}
	return fmt.Sprintf("robotsproxy: %d allowed, %d blocked%s", allowed, blocked, q)
}

// A queue is what requests wait for.
type queue struct {
	host     string        // whose next request goes first
	left     time.Duration // until then; not positive: it is not time that holds it up
	waiting  int           // requests for that host; zero: none waits for any
	others   int           // hosts with requests that wait, beside it
	underWay int           // requests to any host
}

func queueOf(hosts []pace.HostState, now time.Time) (q queue) {
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

// due is when a host's next request may go.
func due(h pace.HostState) time.Time {
	at := h.Sent.Add(max(h.Gap, h.Slowed))
	if h.BackOffUntil.After(at) {
		return h.BackOffUntil
	}
	return at
}

// String is how the queue goes on a status.
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

// cut leaves of a text what has room in so many columns.
func cut(text string, columns int) string {
	runes := []rune(text)
	return string(runes[:max(0, min(len(runes), columns))])
}
