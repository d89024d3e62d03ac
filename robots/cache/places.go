package cache

import (
	"context"
	"slices"
	"strings"
	"sync"
)

// places bounds the fetches that run at once, and shares them between clients.
//
// A client gets a place only while it holds fewer places than are free. So one client
// alone holds at most half of the places, n clients leave at least one in n+1 free, and a
// client that holds none does not wait for the slow fetches of others. Waiting clients
// take turns. Make one with newPlaces; any number of goroutines may use it.
type places struct {
	mu      sync.Mutex // guards all below
	free    int
	clients map[string]*sharer // those that hold a place or wait for one
	turns   []*sharer          // those that wait, the next first
}

// A sharer is one client of places.
type sharer struct {
	client  string
	held    int
	waiting []chan struct{} // requests, the longest wait first; each is closed when it gets its place
}

func newPlaces(n int) *places { return &places{free: n, clients: make(map[string]*sharer)} }

// take waits for a place, until ctx ends (the error is then ctx's) or base ends
// (ErrStopped). The caller calls giveBack once.
func (p *places) take(ctx, base context.Context, client string) (giveBack func(), err error) {
	p.mu.Lock()
	s := p.clients[client]
	if s == nil {
		s = &sharer{client: strings.Clone(client)} // else the request's head stays in memory
		p.clients[s.client] = s
	}
	given := make(chan struct{})
	s.waiting = append(s.waiting, given)
	if len(s.waiting) == 1 {
		p.turns = append(p.turns, s)
	}
	p.dispatch()
	p.mu.Unlock()
	select {
	case <-given:
		return func() { p.giveBack(s) }, nil
	default:
	}
	select {
	case <-given:
		return func() { p.giveBack(s) }, nil
	case <-ctx.Done():
		err = ctx.Err()
	case <-base.Done():
		err = ErrStopped
	}
	p.leave(s, given)
	return nil, err
}

// leave removes a waiting request, or gives back the place that it got meanwhile.
func (p *places) leave(s *sharer, given chan struct{}) {
	p.mu.Lock()
	i := slices.Index(s.waiting, given)
	if i >= 0 {
		s.waiting = slices.Delete(s.waiting, i, i+1)
		p.forget(s)
	}
	p.mu.Unlock()
	if i < 0 {
		p.giveBack(s)
	}
}

func (p *places) giveBack(s *sharer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s.held--
	p.free++
	p.forget(s)
	p.dispatch()
}

// dispatch gives out the places that may be given. The caller holds p.mu.
func (p *places) dispatch() {
	for i := 0; i < len(p.turns); {
		s := p.turns[i]
		if s.held >= p.free {
			i++
			continue
		}
		close(s.waiting[0])
		s.waiting = slices.Delete(s.waiting, 0, 1)
		s.held++
		p.free--
		p.turns = slices.Delete(p.turns, i, i+1)
		if len(s.waiting) > 0 {
			p.turns = append(p.turns, s) // behind all others
		}
	}
}

// forget removes s from what it is not needed for any more. The caller holds p.mu.
func (p *places) forget(s *sharer) {
	if len(s.waiting) > 0 {
		return
	}
	if i := slices.Index(p.turns, s); i >= 0 {
		p.turns = slices.Delete(p.turns, i, i+1)
	}
	if s.held == 0 {
		delete(p.clients, s.client)
	}
}
