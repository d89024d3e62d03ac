package admin

import (
	"bytes"
	"fmt"
	"net/http"
	"strconv"
	"time"
)

const (
	maxStreams        = 64
	maxBatch          = 200                    // lines that are written at once
	pollInterval      = 250 * time.Millisecond // how often the feed is looked at for a stream
	heartbeatInterval = 15 * time.Second       // so often something is written, or what is between would take it for dead
)

// stream answers with the lines that come from now on, or behind the one that a browser
// has had last, as server-sent events (HTML Standard 9.2). It takes from the feed what
// is there by then: who reads slowly misses lines, and is told how many.
func (s *Server) stream(w http.ResponseWriter, r *http.Request) {
	params, ok := parseQuery(w, r, append([]string{"after"}, filterParams...)...)
	if !ok {
		return
	}
	f := parseFilter(&params)
	after, resume := params.lineNumber("after")
	if params.writeError(w) {
		return
	}
	if last, err := strconv.ParseUint(r.Header.Get("Last-Event-ID"), 10, 64); err == nil { // newer than after: it comes back
		after, resume = last, true
	}
	if !resume {
		after = s.opts.Live.Newest()
	}
	if !s.streamSlots.tryAcquire() {
		w.Header().Set("Retry-After", "5")
		writeProblem(w, http.StatusServiceUnavailable, fmt.Sprintf("There are %d streams open, and there may be no more.", maxStreams))
		return
	}
	defer s.streamSlots.release()
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no") // of a proxy in front
	if r.Method == http.MethodHead {
		return
	}
	e := eventStream{w: w, control: http.NewResponseController(w), filter: f, after: after, reported: after}
	e.run(s, r)
}

// events is one stream.
type eventStream struct {
	w        http.ResponseWriter
	control  *http.ResponseController
	filter   filter
	after    uint64 // the last line looked at
	reported uint64 // the last one that the reader knows of
	buf      bytes.Buffer
}

// run writes until the reader has left, does not read for as long as timeout, may not ask
// any more, or all ends.
func (e *eventStream) run(s *Server, r *http.Request) {
	e.control.SetReadDeadline(time.Time{}) // of a head that has come: past it the reader would have left
	poll, heartbeat := time.NewTicker(pollInterval), time.NewTicker(heartbeatInterval)
	defer poll.Stop()
	defer heartbeat.Stop()
	e.buf.WriteString(":\n\n") // now: a browser takes the stream for open with the first octets
	for {
		for more := true; more; {
			more = e.collect(s)
			if e.flush() != nil {
				return
			}
		}
		select {
		case <-r.Context().Done():
			return
		case <-s.streamsDone:
			return
		case <-poll.C:
			if token := s.opts.Token(); token != "" && !s.authenticated(r, token) {
				return // it is another now, or the login has ended
			}
		case <-heartbeat.C:
			e.heartbeat()
		}
	}
}

// take writes down what has come, and says whether there may be more.
func (e *eventStream) collect(s *Server) (more bool) {
	lines, missed := s.linesAfter(e.after, maxBatch)
	if missed > 0 {
		fmt.Fprintf(&e.buf, "event: missed\ndata: {\"missed\":%d}\n\n", missed)
	}
	for _, l := range lines {
		if e.after = l.Number; e.filter.matches(l.JSON) {
			e.reported = l.Number
			fmt.Fprintf(&e.buf, "id: %d\ndata: %s\n\n", l.Number, l.JSON)
		}
	}
	return len(lines) == maxBatch
}

// beat writes a comment, and where the reader would begin anew if no line has been for it.
func (e *eventStream) heartbeat() {
	e.buf.WriteString(":\n")
	if e.reported != e.after {
		e.reported = e.after
		fmt.Fprintf(&e.buf, "id: %d\n", e.after)
	}
	e.buf.WriteString("\n")
}

func (e *eventStream) flush() error {
	if e.buf.Len() == 0 {
		return nil
	}
	e.control.SetWriteDeadline(time.Now().Add(requestTimeout)) // the server's own is of an answer that ends
	_, err := e.w.Write(e.buf.Bytes())
	e.buf.Reset()
	if err == nil {
		err = e.control.Flush()
	}
	return err
}
