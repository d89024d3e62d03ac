package pace

import (
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
