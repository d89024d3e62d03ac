package cache

import (
	"context"
	"slices"
	"strings"
	"sync"
)

// fetchSlots limits how many fetches run at once, and shares the slots between clients.
//
// A client gets a slot only while it has fewer slots than are free. So one client alone has at
// most half of the slots, n clients leave at least one in n+1 free, and a client without a slot
// does not wait for the slow fetches of others. Waiting clients get slots in turn. Create one
// with newFetchSlots. Any number of goroutines may use it.
type fetchSlots struct {
	// mu guards the fields below.
	mu   sync.Mutex
	free int

	// clients are those that have slots or wait for one, by name.
	clients map[string]*slotClient

	// queue has the clients that wait, the next one first.
	queue []*slotClient
}

// A slotClient is one client of fetchSlots.
type slotClient struct {
	client string
	slots  int

	// waiting are the client's requests that wait, in their order. A channel is closed when its request
	// gets a slot.
	waiting []chan struct{}
}

func newFetchSlots(n int) *fetchSlots {
	return &fetchSlots{free: n, clients: make(map[string]*slotClient)}
}

// acquire waits for a slot until ctx ends (the error is that of ctx) or base ends (the error is its
// cause). The caller must call release once.
func (f *fetchSlots) acquire(ctx, base context.Context, client string) (release func(), err error) {
	f.mu.Lock()
	s := f.clients[client]
	if s == nil {
		// A substring would keep the request's head in memory.
		s = &slotClient{client: strings.Clone(client)}
		f.clients[s.client] = s
	}
	granted := make(chan struct{})
	s.waiting = append(s.waiting, granted)
	if len(s.waiting) == 1 {
		f.queue = append(f.queue, s)
	}
	f.dispatch()
	f.mu.Unlock()
	select {
	case <-granted:
		return func() { f.release(s) }, nil
	case <-ctx.Done():
		err = ctx.Err()
	case <-base.Done():
		err = context.Cause(base)
	}
	f.abandon(s, granted)
	return nil, err
}

// abandon removes a waiting request, or releases the slot that it got meanwhile.
func (f *fetchSlots) abandon(s *slotClient, granted chan struct{}) {
	f.mu.Lock()
	i := slices.Index(s.waiting, granted)
	if i >= 0 {
		s.waiting = slices.Delete(s.waiting, i, i+1)
		f.removeUnused(s)
	}
	f.mu.Unlock()
	if i < 0 {
		f.release(s)
	}
}

func (f *fetchSlots) release(s *slotClient) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s.slots--
	f.free++
	f.removeUnused(s)
	f.dispatch()
}

// dispatch grants all slots that may be granted. The caller holds f.mu.
func (f *fetchSlots) dispatch() {
	for i := 0; i < len(f.queue); {
		s := f.queue[i]
		if s.slots >= f.free {
			i++
			continue
		}
		close(s.waiting[0])
		s.waiting = slices.Delete(s.waiting, 0, 1)
		s.slots++
		f.free--
		f.queue = slices.Delete(f.queue, i, i+1)
		if len(s.waiting) > 0 {
			// The client's next request waits behind all others.
			f.queue = append(f.queue, s)
		}
	}
}

// removeUnused removes s from the queue and the clients if it is not needed there. The caller
// holds f.mu.
func (f *fetchSlots) removeUnused(s *slotClient) {
	if len(s.waiting) > 0 {
		return
	}
	if i := slices.Index(f.queue, s); i >= 0 {
		f.queue = slices.Delete(f.queue, i, i+1)
	}
	if s.slots == 0 {
		delete(f.clients, s.client)
	}
}
