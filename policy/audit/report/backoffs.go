package report

import (
	"time"

	"robotsproxy/policy/audit/trail"
)

// A backOff is a time in which the proxy was to send a host, or one client there, nothing after a 429 or 503.
type backOff struct {
	Host string `json:"host"`

	// By is the ID of the request whose response began it, or the URL of a robots.txt, and Client is the client of that request.
	By     string `json:"by"`
	Client string `json:"client,omitempty"`

	// Began is when the request ended whose response began it; zero: a fetch of a robots.txt did, or the audit has no record of
	// the request. Length is its length, or the most that a request that it delayed met of it.
	Began  time.Time `json:"began,omitzero"`
	Length seconds   `json:"back_off_s"`

	// Delayed is the number of requests that it delayed or refused.
	Delayed int64 `json:"delayed"`

	// During is the number of requests that were sent between Began and its end, of the same client, Others that of other clients,
	// and Unknown that of requests for which the records do not say whose they are.
	During  int64 `json:"sent_during"`
	Others  int64 `json:"sent_during_others"`
	Unknown int64 `json:"sent_during_unknown"`

	// Next is when the next request of the same client was sent after its end; zero: none was.
	Next time.Time `json:"next,omitzero"`

	// EndedByOperator is when an operator ended it; zero: none did.
	EndedByOperator time.Time `json:"ended_by_operator,omitzero"`

	// end is about its end.
	end time.Time
}

// maxBackOffs bounds the list of back-offs, and maxHostBackOffs those of a host that may not have ended.
const (
	maxBackOffs     = 2_000
	maxHostBackOffs = 100
)

type backOffKey struct{ host, by string }

// addBackOff notes the back-off that a request met, or that its response began.
func (b *paceBuilder) addBackOff(e *trail.Entry) {
	if !(e.BackOff > 0) || e.BackOffBy == "" || !isPlausible(e.End()) {
		return
	}
	o, own := b.backOffs.at(backOffKey{e.Host, clip(e.BackOffBy)})
	if !own {
		b.notListed++
		return
	}
	o.Host, o.By = e.Host, clip(e.BackOffBy)
	length := seconds(milliseconds(e.BackOff * 1000))
	sent, _ := sentAt(e)
	if e.BackOffBy != e.ID {
		if o.Began.IsZero() {
			o.Length = max(o.Length, length)
		}
		// A request that was under way has met it only with its own response.
		o.Delayed += oneIf(sent.IsZero() || sent.After(o.Began))
		return
	}
	o.Client, o.Began, o.Length = e.Client, e.End(), length
	// It began with the head of the response, which the record has no time of.
	o.end = o.Began.Add(time.Duration(length) - min(time.Duration(length)/10, o.Began.Sub(sent)))
	b.push(&sending{at: o.Began, begins: o})
}

// addDuring counts a request for the back-offs of its host that have begun.
func (b *paceBuilder) addDuring(s *sending) {
	left := b.current[s.whole.Host][:0]
	for _, o := range b.current[s.whole.Host] {
		known := !isNobody(s.client) && !isNobody(o.Client)
		same := s.client == o.Client
		switch {
		case s.at.Before(o.end) && (o.EndedByOperator.IsZero() || s.at.Before(o.EndedByOperator)):
			o.During += oneIf(known && same)
			o.Others += oneIf(known && !same)
			o.Unknown += oneIf(!known)
		case same:
			o.Next = s.at
			continue
		}
		left = append(left, o)
	}
	if b.current[s.whole.Host] = left; len(left) == 0 {
		delete(b.current, s.whole.Host)
	}
}

// begin notes that a back-off begins.
func (b *paceBuilder) begin(o *backOff) {
	all := append(b.current[o.Host], o)
	b.current[o.Host] = all[max(0, len(all)-maxHostBackOffs):]
}

// isNobody reports whether a name does not tell which client it is: the audit has none (audit.clients: drop), or it was erased or is
// hidden.
func isNobody(client string) bool {
	return client == "" || client == erasedClient || client == hiddenClient
}

// endedByOperator notes that an operator ended the back-offs of a host.
func (b *paceBuilder) endedByOperator(e *trail.Entry) {
	for k, o := range b.backOffs.rows {
		if k.host == e.Host && o.EndedByOperator.IsZero() && !e.Time.Before(o.Began) && e.Time.Before(o.end) {
			o.EndedByOperator = e.Time
		}
	}
}
