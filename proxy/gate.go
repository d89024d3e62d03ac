package proxy

import (
	"sync/atomic"

	"robotsproxy/policy/pace"
)

// A slotGate is the part of an [egress.Gate] that depends on a slot. Goroutines of egress call
// its methods.
type slotGate struct {
	slot      *pace.Slot
	permitted atomic.Bool // the slot has given the permit to send, and it was not used yet
	refused   atomic.Bool // the slot has refused the permit to send
	sent      atomic.Bool // the request was sent, possibly without success
}

// ready calls wait, which waits for the permit to send, unless there is a permit. A request
// whose permit has expired waits for another one.
func (g *slotGate) ready(wait func() error) error {
	if g.permitted.Load() && g.slot.Timely() {
		return nil
	}
	err := wait()
	g.permitted.Store(err == nil)
	g.refused.Store(err != nil)
	return err
}

// Sent starts the gap to the next request.
func (g *slotGate) Sent() {
	g.permitted.Store(false)
	g.sent.Store(true)
	g.slot.Written()
}

// Retry gives back an unused permit.
func (g *slotGate) Retry() {
	g.permitted.Store(false)
	g.slot.Redial()
}
