package proxy

import (
	"sync/atomic"

	"robotsproxy/policy/pace"
)

// A slotGate is the part of an [egress.Gate] that depends on a slot. Goroutines of egress call
// its methods.
type slotGate struct {
	slot      *pace.Slot
	permitted atomic.Bool // the slot has given the right to send, which is not used yet
	refused   atomic.Bool // the slot has refused the right to send
	sent      atomic.Bool // the request was sent, perhaps without success
}

// ready calls wait, which waits for the right to send, unless the right is there. A request
// that was held up until its turn was over waits for another turn.
func (g *slotGate) ready(wait func() error) error {
	if g.permitted.Load() && g.slot.Timely() {
		return nil
	}
	err := wait()
	g.permitted.Store(err == nil)
	g.refused.Store(err != nil)
	return err
}

// Sent begins the gap to the next request.
func (g *slotGate) Sent() {
	g.permitted.Store(false)
	g.sent.Store(true)
	g.slot.Written()
}

// Retry gives an unused right to send back.
func (g *slotGate) Retry() {
	g.permitted.Store(false)
	g.slot.Redial()
}
