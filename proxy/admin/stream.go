package admin

import (
	"bytes"
	"fmt"
	"net/http"
	"strconv"
	"time"
)

const (
	maxStreams = 64
	maxTaken   = 200                    // lines that are written at once
	pollEach   = 250 * time.Millisecond // how often the feed is looked at for a stream
	beatEach   = 15 * time.Second       // so often something is written, or what is between would take it for dead
)

// stream answers with the lines that come from now on, or behind the one that a browser
// has had last, as server-sent events (HTML Standard 9.2). It takes from the feed what
// is there by then: who reads slowly misses lines, and is told how many.
func (s *server) stream(w http.ResponseWriter, r *http.Request) {
	g, ok := parameters(w, r, append([]string{"after"}, filters...)...)
	if !ok {
		return
	}
	f := filterOf(&g)
	after, from := g.line("after")
	if g.bad(w) {
		return
	}
	if last, err := strconv.ParseUint(r.Header.Get("Last-Event-ID"), 10, 64); err == nil { // newer than after: it comes back
		after, from = last, true
	}
	if !from {
		after = s.o.Live.Newest()
	}
	if !enter(s.streams) {
		w.Header().Set("Retry-After", "5")
		problem(w, http.StatusServiceUnavailable, fmt.Sprintf("There are %d streams open, and there may be no more.", maxStreams))
		return
	}
	defer leave(s.streams)
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no") // of a proxy in front
	if r.Method == http.MethodHead {
		return
	}
	e := events{w: w, at: http.NewResponseController(w), filter: f, after: after, said: after}
	e.run(s, r)
}

// events is one stream.
type events struct {
	w      http.ResponseWriter
	at     *http.ResponseController
	filter filter
	after  uint64 // the last line looked at
	said   uint64 // the last one that the reader knows of
	text   bytes.Buffer
}

// run writes until the reader has left, does not read for as long as timeout, may not ask
// any more, or all ends.
func (e *events) run(s *server, r *http.Request) {
	e.at.SetReadDeadline(time.Time{}) // of a head that has come: past it the reader would have left
	look, beat := time.NewTicker(pollEach), time.NewTicker(beatEach)
	defer look.Stop()
	defer beat.Stop()
	e.text.WriteString(":\n\n") // now: a browser takes the stream for open with the first octets
	for {
		for more := true; more; {
			more = e.take(s)
			if e.flush() != nil {
				return
			}
		}
		select {
		case <-r.Context().Done():
			return
		case <-s.ending:
			return
		case <-look.C:
			if token := s.o.Token(); token != "" && !s.knows(r, token) {
				return // it is another now, or the login has ended
			}
		case <-beat.C:
			e.beat()
		}
	}
}

// take writes down what has come, and says whether there may be more.
func (e *events) take(s *server) (more bool) {
	lines, missed := s.after(e.after, maxTaken)
	if missed > 0 {
		fmt.Fprintf(&e.text, "event: missed\ndata: {\"missed\":%d}\n\n", missed)
	}
	for _, l := range lines {
		if e.after = l.Number; e.filter.takes(l.JSON) {
			e.said = l.Number
			fmt.Fprintf(&e.text, "id: %d\ndata: %s\n\n", l.Number, l.JSON)
		}
	}
	return len(lines) == maxTaken
}

// beat writes a comment, and where the reader would begin anew if no line has been for it.
func (e *events) beat() {
	e.text.WriteString(":\n")
	if e.said != e.after {
		e.said = e.after
		fmt.Fprintf(&e.text, "id: %d\n", e.after)
	}
	e.text.WriteString("\n")
}

func (e *events) flush() error {
	if e.text.Len() == 0 {
		return nil
	}
	e.at.SetWriteDeadline(time.Now().Add(timeout)) // the server's own is of an answer that ends
	_, err := e.w.Write(e.text.Bytes())
	e.text.Reset()
	if err == nil {
		err = e.at.Flush()
	}
	return err
}
