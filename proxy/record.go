package proxy

import (
	"cmp"
	"context"
	"errors"
	"net"
	"time"

	"robotsproxy/policy/audit"
	"robotsproxy/policy/pace"
	"robotsproxy/proxy/egress"
)

// newRecord creates the record of a request from the address remote.
func newRecord(rec *audit.Record, remote string) {
	rec.Time, rec.ID, rec.Remote = time.Now(), audit.NewID(), remote
}

// recordRequest records the request as the client sent it, except its Target.
func (s *requestState) recordRequest(head sentHead) {
	r, rec := s.request, &s.record
	rec.Monitor = s.rules.Monitor
	rec.Target = recordedTarget(r, head.target)
	rec.Transparent = connInfoFrom(r).redirect() != nil
	q := &rec.Request
	q.Method, q.UserAgent, q.From, q.Dest = head.method, r.UserAgent(), r.Header.Get("From"), r.Header.Get("Sec-Fetch-Dest")
}

// recordPace records how long a request that ended with err waited for a slot, or why it got none.
func (s *requestState) recordPace(err error) {
	rec := &s.record
	if busy, ok := errors.AsType[*pace.BusyError](err); ok {
		rec.BackOff, rec.BackOffBy, rec.Slowed, rec.StoreAway = busy.BackOff, busy.BackOffBy, busy.Slowed, busy.Alone
	}
	if s.slot == nil {
		return
	}
	if s.state == connecting {
		countContact(s.slot, err)
	}
	held := s.slot.Held()
	if rec.BackOff == 0 {
		rec.BackOff, rec.BackOffBy = held.BackOff, held.By
	}
	rec.Slot, rec.Waited, rec.Slowed = true, held.Waited, cmp.Or(rec.Slowed, held.Slowed)
	rec.StoreAway = rec.StoreAway || held.Alone
}

// countContact counts an attempt to connect that failed with err, unless it cannot have reached the host. One that the
// client broke off takes the turn of a request each time.
func countContact(slot *pace.Slot, err error) {
	again, ok := errors.AsType[*egress.RetryError](err)
	switch {
	case errors.Is(err, context.Canceled):
		slot.Sent()
	case err == nil, ok && again.Repeated, as[*net.DNSError](err), egress.LocalError(err),
		errors.Is(err, egress.ErrForbiddenAddr), errors.Is(err, egress.ErrForbiddenPort):
	default:
		slot.Contacted()
	}
}

// writeRecord writes the record of a request that ended, with err if it failed.
func (h *Handler) writeRecord(rec *audit.Record, err error) error {
	// Otherwise the decision says everything.
	if !errors.Is(err, errRefused) {
		rec.Err = err
	}
	return h.o.Audit.Write(rec)
}
