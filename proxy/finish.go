package proxy

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"strconv"
	"time"

	"robotsproxy/policy"
	"robotsproxy/policy/audit"
	"robotsproxy/policy/explain"
	"robotsproxy/policy/memory"
	"robotsproxy/policy/pace"
	"robotsproxy/proxy/egress"
)

// finish writes the record of a request that ended, with err if it failed. After a failure
// it sends a refusal, or breaks off the response if it has begun.
func (h *Handler) finish(s *requestState, err error) {
	rec := &s.record
	if errors.Is(err, context.Canceled) && h.aborting.Load() {
		// Shutdown has ended the request, not the client.
		err = errAborted
	}
	s.recordPace(err)
	// The origin has answered: a client that does not read must not delay other requests.
	s.releaseSlot()
	unarchived := s.response.endCapture()
	err = cmp.Or(err, unarchived)
	var a answer
	var wait time.Duration
	if err != nil && !s.response.headSent {
		a, wait, err = s.chooseAnswer(err)
	}
	if errors.Is(err, egress.ErrParent) {
		h.parentLog.Do(func() { h.o.Log.Warn("upstream proxy failed", "error", err) })
	}
	s.attempt.End()
	if s.wasSent {
		s.ticket.AddBytes(rec.Bytes)
	} else {
		s.ticket.GiveBack()
	}
	rec.Took = time.Since(rec.Time)
	s.written = true
	// The record meets the same error of the audit.
	_, _ = h.sent.end(&s.line)
	switch werr := writeRecord(h.o.Audit, rec, err); {
	case werr != nil && !s.response.headSent:
		err, a = werr, answerTo(werr)
	case werr != nil && s.rules.RecordFirst:
		err = cmp.Or(err, werr)
	case unarchived == nil:
		s.response.sendHeld()
	}
	switch {
	case s.response.headSent && err != nil:
		s.in.Abort(s.response.length >= 0)
	case err != nil:
		h.refusals.wait(s.in.HTTP.Context(), wait)
		s.refuse(a, err)
	}
	if !s.transfer.flow.uploaded() {
		s.in.DiscardBody(err != nil)
	}
}

// recordPace records how long a request that ended with err waited for a slot, or why it got none.
func (s *requestState) recordPace(err error) {
	rec := &s.record
	if busy, ok := errors.AsType[*pace.BusyError](err); ok {
		rec.BackOff, rec.BackOffBy, rec.Slowed, rec.StoreAway = busy.BackOff, busy.BackOffBy, busy.Slowed, busy.StoreAway
	}
	if s.slot == nil {
		rec.Sent = s.sentAt
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
	rec.StoreAway = rec.StoreAway || held.StoreAway
	if s.wasSent {
		rec.Sent, rec.Interval, rec.Burst = held.Sent, held.Interval, held.Burst
	}
}

// chooseAnswer returns the answer to a request that failed with err, and how long the answer
// must wait. It puts the answer into the record. If a client has too many refusals, it
// is refused for that: chooseAnswer then returns another error.
func (s *requestState) chooseAnswer(err error) (a answer, wait time.Duration, _ error) {
	rec := &s.record
	a = answerTo(err)
	if !s.wasSent {
		a.override(&rec.Decision)
		if held, ok := errors.AsType[*policy.HoldError](err); ok {
			rec.Decision.Retry = held.Until
		}
		// Monitor mode does not allow a request that is refused here.
		rec.Monitor = rec.Monitor && rec.Decision.Verdict == policy.Allow
		if isRateLimited(rec) {
			var ok bool
			if wait, ok = s.client.h.refusals.take(rec); !ok {
				err = errRefusedOften
				a = answerTo(err)
				a.override(&rec.Decision)
			}
		}
	}
	rec.Status = a.status
	return a, wait, err
}

// noRoomRetry is the Retry-After of a request whose robots.txt had no space in the
// snapshot folder. It is about the interval at which the folder is searched for files to
// remove.
const noRoomRetry = 10 * time.Minute

// refuse sends a refusal to the client, after the record was written.
func (s *requestState) refuse(a answer, err error) {
	p := s.describe(a, err)
	s.response.headSent = true
	if a.reason == policy.ReasonClient || s.response.clientLeft {
		panic(http.ErrAbortHandler)
	}
	header := s.in.Writer.Header()
	clear(header)
	maps.Copy(header, ownHeader(a, p))
	if a.status == http.StatusProxyAuthRequired {
		header.Set("Proxy-Authenticate", challenge)
	}
	// A 405 lists the methods (RFC 9110 15.5.6).
	if a.status == http.StatusMethodNotAllowed {
		header.Set("Allow", "GET, HEAD")
	}
	body := p.text()
	header.Set("Content-Type", "text/plain; charset=utf-8")
	if acceptsJSON(s.in.HTTP.Header["Accept"]) {
		header.Set("Content-Type", "application/problem+json")
		// Strings and numbers can always be encoded.
		body, _ = json.Marshal(p)
		body = append(audit.EscapeJSON(body), '\n')
	}
	if errors.Is(err, memory.ErrShort) && s.in.HTTP.ProtoMajor == 2 {
		// A stream with a body uses memory until its client reads the body (RFC 9113 5.2).
		body = nil
	}
	header.Set("Content-Length", strconv.Itoa(len(body)))
	s.in.EndConnection(s.transfer.flow.uploaded())
	// Clients send a login only with CONNECT, so a tunnel without a valid one must end. If the proxy can record nothing, the client finds
	// another replica with its next connection.
	if a.reason == policy.ReasonLimit || a.reason == policy.ReasonAuth && s.in.Tunnel != nil ||
		a.reason == policy.ReasonAudit && !errors.Is(err, audit.ErrNoSpace) {
		header.Set("Connection", "close")
	}
	// The refusal has a time limit of its own.
	s.transfer.watch.setEnded(nil)
	s.transfer.beginWrite()
	defer s.transfer.beginLast().stop()
	s.in.Writer.WriteHeader(a.status)
	if s.in.HTTP.Method != http.MethodHead && len(body) > 0 {
		// The record is written, so an error does not matter.
		s.in.Writer.Write(body)
		http.NewResponseController(s.in.Writer).Flush()
	}
}

// describe returns the problem for the refused client.
func (s *requestState) describe(a answer, err error) problem {
	q, d := &s.record.Request, &s.record.Decision
	p := newProblem(a, explain.Of(d), s.rules.UserAgent != "", s.record.ID)
	// A request for robots.txt does not need the delay itself, but its client wants to know it.
	p.CrawlDelay = d.Pace.CrawlDelay.Seconds()
	if mayMeanProxy(s, err) {
		p.Advice += " " + seeGuide
	}
	switch {
	case q.Origin.Host == "":
		p.URL = beginningOf(s.record.Target)
	case q.Method == http.MethodConnect:
		p.URL = q.Origin.Addr()
	default:
		p.URL = q.Target.String()
	}
	if busy, ok := errors.AsType[*pace.BusyError](err); ok {
		p.BackOff, p.Slowed = busy.BackOff.Round(time.Millisecond).Seconds(), busy.Slowed.Round(time.Millisecond).Seconds()
		p.BackOffBy = busy.BackOffBy
		if a.reason == policy.ReasonPace {
			p.Detail = cmp.Or(busyDetail(busy, &d.Pace), p.Detail)
		}
	}
	if errors.Is(err, egress.ErrForbiddenAddr) && a.detail == "" {
		p.Detail = cmp.Or(addressDetail(q.Origin.Host), p.Detail)
	}
	p.RetryAfter = s.retryAfter(a, err)
	return p
}

// retryAfter returns the number of seconds after which a refused client may try again. It
// returns 0 if that is unknown or does not help.
func (s *requestState) retryAfter(a answer, err error) int {
	d := &s.record.Decision
	if busy, ok := errors.AsType[*pace.BusyError](err); ok {
		return seconds(busy.RetryAfter)
	} else if again, ok := errors.AsType[*egress.RetryError](err); ok {
		return seconds(time.Until(again.At))
	} else if quota, ok := errors.AsType[*policy.QuotaError](err); ok {
		return seconds(time.Until(quota.Until))
	} else if errors.Is(err, audit.ErrNoSpace) {
		return seconds(noRoomRetry)
	} else if !d.Retry.IsZero() && d.Verdict != policy.Allow {
		return seconds(time.Until(d.Retry))
	} else if a.reason == policy.ReasonPaused {
		// Nobody knows when it will end.
		return seconds(a.retry)
	} else if retry := d.Ruling.Retry; !retry.IsZero() && d.Verdict != policy.Allow {
		if host, _ := s.client.h.o.Pacer.Host(d.Pace.Key, d.Pace.BackOffKey); host.BackOffUntil.After(retry) {
			// The fetch gets no slot before that time.
			retry = host.BackOffUntil
		}
		return seconds(time.Until(retry))
	} else if a.retry > 0 {
		return seconds(a.retry)
	}
	return 0
}

// challenge is the value of Proxy-Authenticate (RFC 9110 11.7.1, RFC 7617 2 and 2.1).
const challenge = `Basic realm="robotsproxy", charset="UTF-8"`
