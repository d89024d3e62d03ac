package admin

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"robotsproxy/policy/stops"
)

// A pauseState is a pause.
type pauseState struct {
	// Host is "" if the pause is for all hosts.
	Host   string    `json:"host,omitempty"`
	Reason string    `json:"reason"`
	By     string    `json:"by,omitempty"`
	Since  time.Time `json:"since"`

	// Until is zero if somebody has to end it.
	Until time.Time `json:"until,omitzero"`
}

func newPauseState(s stops.Stop) *pauseState {
	return &pauseState{s.Host, s.Reason, s.By, s.Since.UTC(), s.Until.UTC()}
}

// pauseOf returns the pause that holds longest for a host, which may be that of all hosts; nil: there is none.
func (o *Options) pauseOf(host string) *pauseState {
	if s, ok := o.Stops.Of(stops.Paused, host, ""); ok {
		return newPauseState(s)
	}
	return nil
}

// ownPause returns the pause of a host alone or, for "", of all hosts.
func (o *Options) ownPause(host string) (stops.Stop, bool) {
	s, ok := o.Stops.Get(stops.Key{Kind: stops.Paused, Host: host})
	return s, ok && s.Holds(time.Now())
}

// pauses returns all pauses, that of all hosts first.
func (o *Options) pauses() []*pauseState {
	all := []*pauseState{}
	for _, s := range o.Stops.All() {
		if s.Kind == stops.Paused {
			all = append(all, newPauseState(s))
		}
	}
	return all
}

// getPauses answers with all pauses.
func (s *Server) getPauses(http.ResponseWriter, *http.Request, *queryParams) (any, error) {
	return struct {
		Pauses []*pauseState `json:"pauses"`
	}{s.opts.pauses()}, nil
}

// postPause pauses a host or, without one in the path, all hosts.
func (s *Server) postPause(w http.ResponseWriter, r *http.Request, _ *queryParams) (any, error) {
	var body struct {
		Reason string `json:"reason"`
		Until  string `json:"until"`
		By     string `json:"by"`
	}
	if err := decodeBody(w, r, &body); err != nil {
		return nil, err
	}
	host, err := hostOrAll(r)
	if err != nil {
		return nil, err
	}
	if body.Reason == "" {
		return nil, errors.New("reason: required")
	}
	until, err := parseUntil(body.Until, time.Now())
	if err != nil {
		return nil, err
	}
	by, err := operator(r, "API", body.By)
	if err != nil {
		return nil, err
	}
	p, err := s.pause(r.Context(), stops.Stop{Host: host, Reason: body.Reason, Until: until, By: by})
	switch {
	case errors.Is(err, stops.ErrInvalid):
		return nil, err
	case errors.Is(err, stops.ErrFull):
		detail := fmt.Sprintf("There are %d pauses, which is the maximum. End some of them.", stops.MaxPauses)
		return nil, newProblem(http.StatusConflict, detail)
	case err != nil:
		return nil, newProblem(http.StatusServiceUnavailable, pauseNotKept)
	}
	return newPauseState(p), nil
}

// deletePause ends the pause of a host or, without one in the path, that of all hosts.
func (s *Server) deletePause(w http.ResponseWriter, r *http.Request, _ *queryParams) (any, error) {
	var body struct {
		By string `json:"by"`
	}
	src := bufio.NewReader(http.MaxBytesReader(w, r.Body, maxBody))
	if _, err := src.Peek(1); !errors.Is(err, io.EOF) {
		if err := decodeObject(src, &body); err != nil {
			return nil, err
		}
	}
	host, err := hostOrAll(r)
	if err != nil {
		return nil, err
	}
	by, err := operator(r, "API", body.By)
	if err != nil {
		return nil, err
	}
	ended, err := s.endPause(r.Context(), host, by)
	if err != nil {
		return nil, newProblem(http.StatusServiceUnavailable, endNotKept)
	}
	left := s.opts.pauses()
	if host != "" {
		left = nil
		if p := s.opts.pauseOf(host); p != nil {
			left = append(left, p)
		}
	}
	return struct {
		Host string `json:"host,omitempty"`

		// Ended is set if there was a pause.
		Ended bool `json:"ended"`

		// Left are the pauses that still hold: that of all hosts after the end of one host's, and those of hosts after the end
		// of that of all.
		Left []*pauseState `json:"still_paused,omitempty"`
	}{host, ended, left}, nil
}

// hostOrAll returns the host in the path of a request, or "" if the path has none.
func hostOrAll(r *http.Request) (string, error) {
	if r.PathValue("host") == "" {
		return "", nil
	}
	return hostOf(r)
}

// parseUntil returns the time that text names, an RFC 3339 time or a duration from now; zero for "".
func parseUntil(text string, now time.Time) (until time.Time, err error) {
	if text == "" {
		return until, nil
	}
	if d, err := time.ParseDuration(text); err == nil {
		until = now.Add(d)
	} else if until, err = time.Parse(time.RFC3339, text); err != nil {
		return until, fmt.Errorf("until: must be a time or a duration (examples: 2027-01-31T18:00:00Z, 90m, 48h), got %q", clipInput(text))
	}
	switch {
	case !until.After(now):
		return until, fmt.Errorf("until: must be in the future, got %q", clipInput(text))
	case until.Sub(now) > stops.MaxLength:
		return until, fmt.Errorf("until: must be within ten years, got %q", clipInput(text))
	}
	return until.UTC(), nil
}

// operator returns a text that says who has sent a request: by, which is the part of the listener, the address, and the name that the
// sender has given. All operators have one token, so nothing but this name tells them apart.
func operator(r *http.Request, by, name string) (string, error) {
	from, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		from = r.RemoteAddr
	}
	by += " from " + from
	if name == "" {
		return by, nil
	}
	if len(name) > maxOperator || printable(name) != name {
		return "", fmt.Errorf("by: must be one line of at most %d bytes", maxOperator)
	}
	return name + " (as stated), " + by, nil
}

// maxOperator bounds the name that an operator states, in bytes.
const maxOperator = 100

const (
	pauseNotKept = "The pause holds, but the audit cannot record it, or it is not stored and ends with the process. The log has the error."
	endNotKept   = "The pause has ended, but the audit cannot record that, or it is not stored. The log has the error."
)

// pause begins a pause, or changes it, and returns when it is stored and recorded. After an error of stops.Table.Put there is no
// pause; after another one it holds.
func (s *Server) pause(ctx context.Context, p stops.Stop) (stops.Stop, error) {
	p.Kind = stops.Paused
	p, err := s.opts.Stops.Put(p)
	if err != nil {
		return p, err
	}
	until := cmp.Or(formatTime(p.Until), "it is ended")
	s.opts.Log.Info("requests paused by an operator", "host", cmp.Or(p.Host, "all hosts"), "until", until, "reason", p.Reason, "by", p.By)
	return p, s.keepPause(ctx, p)
}

// endPause is pause for the end of a pause. It reports whether there was one.
func (s *Server) endPause(ctx context.Context, host, by string) (ended bool, err error) {
	p, ended := s.opts.Stops.End(stops.Key{Kind: stops.Paused, Host: host}, by)
	if !ended {
		return false, nil
	}
	s.opts.Log.Info("pause ended by an operator", "host", cmp.Or(host, "all hosts"), "by", by)
	return true, s.keepPause(ctx, p)
}

// keepPause stores and records a pause, or its end.
func (s *Server) keepPause(ctx context.Context, p stops.Stop) error {
	// The operator may leave.
	ctx = context.WithoutCancel(ctx)
	err := errors.Join(s.opts.SaveStops(ctx), s.opts.Paused(p))
	if err != nil {
		s.opts.Log.Error("pause or its end not stored or recorded", "host", cmp.Or(p.Host, "all hosts"), "error", err)
	}
	return err
}
