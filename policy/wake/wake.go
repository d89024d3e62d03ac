// Package wake wakes a goroutine that waits for work.
package wake

// A Signal tells a goroutine that there is something to do, however often it was set before the goroutine looked. The
// goroutine receives from it. Any number of goroutines may share a Signal. Setting a nil Signal does nothing.
type Signal chan struct{}

// New returns a Signal that is not set.
func New() Signal { return make(Signal, 1) }

// Set sets the Signal. It does not wait.
func (s Signal) Set() {
	select {
	case s <- struct{}{}:
	default:
	}
}
