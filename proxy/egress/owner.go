package egress

import (
	"slices"
	"sync"
)

// maxOwned is the maximum number of idle connections of one Owner in a pool.
const maxOwned = 8

// An Owner stands for a connection of a client. NTLM and Negotiate log a connection to an origin in, not a
// request (RFC 4559 6): what such a connection carries counts as sent by whoever logged in. So it belongs
// to the Owner whose request logged in, or was asked to, and carries requests of no other. Any number of goroutines may
// share an Owner.
type Owner struct {
	mu    sync.Mutex
	ended bool
	pools []*pool // have, or had, connections of the Owner
}

// noOwner owns the connections that are not kept.
var noOwner = &Owner{ended: true}

// End closes the connections of the Owner: idle ones now, others after their requests.
func (o *Owner) End() {
	o.mu.Lock()
	o.ended = true
	pools := o.pools
	o.mu.Unlock()
	for _, p := range pools {
		p.release(o)
	}
}

// isEnded reports whether the connections of the Owner are to be closed. A nil Owner does not end.
func (o *Owner) isEnded() bool {
	if o == nil {
		return false
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.ended
}

// owns reports whether p may have connections of the Owner.
func (o *Owner) owns(p *pool) bool {
	if o == nil {
		return false
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Contains(o.pools, p)
}

// claim prepares a connection for a request.
func (p *persistConn) claim(want wanted) {
	if p.by = want.owner; want.login {
		p.bind()
	}
}

// bind makes a connection belong to the Owner of its request, if it has none yet.
func (p *persistConn) bind() {
	if p.owner != nil {
		return
	}
	o := p.by
	if p.owner = o; o == nil {
		p.owner = noOwner
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if !slices.Contains(o.pools, p.pool) {
		o.pools = append(o.pools, p.pool)
	}
}
