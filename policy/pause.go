package policy

import (
	"robotsproxy/policy/stops"
)

// Paused returns a *HoldError if an operator has paused the host of a request. Only the request's Client and Origin count; with the
// Client "", only pauses for all clients do.
func (e *Engine) Paused(r *Request) error {
	if held := e.paused(r); held != nil {
		return held
	}
	return nil
}

// paused is Paused.
func (e *Engine) paused(r *Request) *HoldError {
	if !e.o.Stops.Any() {
		return nil
	}
	if s, ok := e.o.Stops.Of(stops.Paused, r.Origin.Host, ShareKey(r.Client)); ok {
		hosts := "this host"
		if s.Host == "" {
			hosts = "all hosts"
		}
		return &HoldError{ReasonPaused, s.Until, "An operator has paused requests to " + hosts + ": " + s.Reason}
	}
	return nil
}

// OnPause calls f once, as soon as the host of a request is paused. cancel ends that. See [stops.Table.OnStop].
func (e *Engine) OnPause(r *Request, f func()) (cancel func()) {
	return e.o.Stops.OnStop(stops.Paused, r.Origin.Host, ShareKey(r.Client), f)
}
