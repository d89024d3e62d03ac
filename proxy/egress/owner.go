package egress

import (
	"slices"
	"strings"
	"sync"
)

// maxOwned is the maximum number of idle connections of one Owner in a pool.
const maxOwned = 8

// An Owner represents one connection of a client. NTLM and Negotiate log in a connection to an origin, not a
// request (RFC 4559 6), so everything sent on that connection counts as sent by the user who logged in. Such a
// connection belongs to the Owner whose request logged in, or was asked to log in, and carries no other Owner's
// requests. The zero Owner is ready for use. Call End when the client's connection is closed. Any number of
// goroutines may share an Owner.
type Owner struct {
	mu    sync.Mutex
	ended bool

	// pools are those that have had connections of the Owner.
	pools []*pool
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

// hasLogin reports whether one of the values, of Authorization or WWW-Authenticate, has a scheme that
// logs a connection in, not a request (RFC 4559 6).
func hasLogin(values []string) bool {
	for _, list := range values {
		for part := range strings.SplitSeq(list, ",") {
			scheme, _, _ := strings.Cut(strings.ReplaceAll(strings.TrimLeft(part, " \t"), "\t", " "), " ")
			if strings.EqualFold(scheme, "NTLM") || strings.EqualFold(scheme, "Negotiate") {
				return true
			}
		}
	}
	return false
}
