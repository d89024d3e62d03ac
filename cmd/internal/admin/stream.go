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
	maxBatch          = 200                    // lines in one write
	pollInterval      = 250 * time.Millisecond // how often a stream reads the feed
	heartbeatInterval = 15 * time.Second       // an intermediary would close a connection that is silent for longer
)

// stream answers with new audit lines as server-sent events (HTML Standard 9.2). It begins
// now, after the line that a parameter names, or after the last line that the browser has
// received. It reads the feed at intervals: a slow reader misses lines and is told how many.
func (s *Server) stream(w http.ResponseWriter, r *http.Request, params *queryParams) (any, error) {
	f := parseFilter(params)
	after, resume := params.lineNumber("after")
	if params.err != nil {
		return nil, params.err
	}
	// A browser that reconnects names a later line than after.
	if last, err := strconv.ParseUint(r.Header.Get("Last-Event-ID"), 10, 64); err == nil {
		after, resume = last, true
	}
	if !resume {
		after = s.opts.Live.Newest()
	}
	if !s.streamSlots.tryAcquire() {
		w.Header().Set("Retry-After", "5")
		return nil, newProblem(http.StatusServiceUnavailable, fmt.Sprintf("All %d streams are in use.", maxStreams))
	}
	defer s.streamSlots.release()
	w.Header().Set("Content-Type", "text/event-stream")
	// Without this header, nginx would buffer the stream.
	w.Header().Set("X-Accel-Buffering", "no")
	if r.Method == http.MethodHead {
		return nil, nil
	}
	e := eventStream{w: w, control: http.NewResponseController(w), filter: f, after: after, reported: after}
	e.run(s, r)
	return nil, nil
}

// An eventStream is one open stream.
type eventStream struct {
	w       http.ResponseWriter
	control *http.ResponseController
	filter  filter

	// after is the last line that was read from the feed.
	after uint64

	// reported is the last line that the reader knows of.
	reported uint64
	buf      bytes.Buffer
}

// run writes events until the client disconnects, does not read for requestTimeout, is no
// longer authenticated, or the Server shuts down.
func (e *eventStream) run(s *Server, r *http.Request) {
	// A stream goes on after the deadline of the server for reading a request.
	e.control.SetReadDeadline(time.Time{})
	poll, heartbeat := time.NewTicker(pollInterval), time.NewTicker(heartbeatInterval)
	defer poll.Stop()
	defer heartbeat.Stop()
	// Send at once: a browser waits for the first bytes before it reports the stream as open.
	e.buf.WriteString(":\n\n")
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
			// The token may have changed, or the session have ended.
			if token := s.opts.Token(); token != "" && !s.authenticated(r, token) {
				return
			}
		case <-heartbeat.C:
			e.heartbeat()
		}
	}
}

// collect appends new lines to buf and reports whether there may be more.
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

// heartbeat appends a comment, and the ID of the last line if the filter has dropped lines
// since. A browser that reconnects resumes there.
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
	// The deadline of the server is for a whole response.
	e.control.SetWriteDeadline(time.Now().Add(requestTimeout))
	_, err := e.w.Write(e.buf.Bytes())
	e.buf.Reset()
	if err == nil {
		err = e.control.Flush()
	}
	return err
}
