package pace

import (
	"context"
	"time"
)

const (
	// freeContacts is how many connections to a host that no request follows a client may cause in each interval of
	// contactsFor. A browser makes some before it needs them. Each further one takes the turn of a request.
	freeContacts = 6
	contactsFor  = time.Minute
	// maxContactClients is how many clients of a host are counted within contactsFor. The connections of further clients
	// are never free.
	maxContactClients = 256
)

// contacts counts the connections to a host that no request has followed, by client. host.mu guards it.
type contacts struct {
	since  time.Time
	counts map[string]int
}

// add counts a connection, and reports whether it is free.
func (c *contacts) add(client string, now time.Time) bool {
	if c.counts == nil || now.Sub(c.since) >= contactsFor {
		c.since, c.counts = now, map[string]int{}
	}
	n := c.counts[client]
	if n >= freeContacts || n == 0 && len(c.counts) >= maxContactClients {
		return false
	}
	c.counts[client]++
	return true
}

// use gives one connection back, because a request was sent, on whatever connection.
func (c *contacts) use(client string) {
	if c.counts[client] > 1 {
		c.counts[client]--
	} else {
		delete(c.counts, client)
	}
}

// WaitContact is WaitConnect for a connection that is made now, and that a request may or may not follow. If the client has
// caused freeContacts connections to the host that no request has followed, WaitContact also waits for the rate,
// and the connection takes the turn of a request. The errors are those of WaitConnect.
func (p *Pacer) WaitContact(ctx context.Context, client string, l Limits) (*Slot, error) {
	if err := l.check(); err != nil {
		return nil, err
	}
	h := p.lock(l.Key, client)
	if h == nil {
		return nil, busy(HostsFull, unknownRetry)
	}
	free := h.contacts.add(client, time.Now())
	h.mu.Unlock()
	s, err := p.take(ctx, client, l, !free)
	if err != nil && free {
		h.mu.Lock()
		h.contacts.use(client)
		h.mu.Unlock()
	}
	if err != nil || free {
		return s, err
	}
	if err := s.Ready(ctx); err != nil {
		s.Release()
		return nil, err
	}
	s.Sent()
	return s, nil
}

// Contacted reports that a connection to the host was tried, and that the request will not be sent. It takes the turn of
// a request unless it is one of the first that the client has caused.
func (s *Slot) Contacted() {
	if s == nil {
		return
	}
	s.host.mu.Lock()
	free := s.host.contacts.add(s.client, time.Now())
	// No request shares the turn of this one, because this one will not be sent.
	s.limits.Shared = s.limits.Shared && free
	s.host.mu.Unlock()
	if !free {
		s.Sent()
	}
}
