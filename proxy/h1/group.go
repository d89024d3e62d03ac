package h1

import (
	"sync"
	"sync/atomic"
)

// A Group has open connections, which a shutdown ends together and then waits for. Its zero value is empty. Any number of
// goroutines may use it.
type Group[C comparable] struct {
	// mu guards open.
	mu   sync.Mutex
	open map[C]struct{}

	// ended is written under mu.
	ended atomic.Bool

	// all counts the open connections.
	all sync.WaitGroup
}

// Add adds a connection. It returns false after End.
func (g *Group[C]) Add(c C) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ended.Load() {
		return false
	}
	if g.open == nil {
		g.open = make(map[C]struct{})
	}
	g.open[c] = struct{}{}
	g.all.Add(1)
	return true
}

// Remove removes a connection, and reports whether it was there.
func (g *Group[C]) Remove(c C) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	_, there := g.open[c]
	if there {
		delete(g.open, c)
		g.all.Done()
	}
	return there
}

// End refuses further connections, and calls end for each that is open.
func (g *Group[C]) End(end func(C)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.ended.Store(true)
	for c := range g.open {
		end(c)
	}
}

// Wait waits until all connections are removed. Call it after End.
func (g *Group[C]) Wait() { g.all.Wait() }
