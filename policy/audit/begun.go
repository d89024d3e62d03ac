package audit

import (
	"encoding/base64"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"robotsproxy/policy"
	"robotsproxy/policy/audit/trail"
	"robotsproxy/policy/explain/humanize"
)

// A Begun is what a Record says of its request from the beginning. A line with it is written for a request that is
// under way for long, so that a crash leaves a trace of the request.
type Begun struct {
	Time        time.Time
	ID          string
	Request     policy.Request
	Target      string
	Transparent bool
	Monitor     bool

	// Token, Verdict and Reason are those of the Decision.
	Token   string
	Verdict policy.Verdict
	Reason  policy.Reason

	// Unused reports that this is a tunnel to a host that was dialled, and has ended without a request.
	Unused bool
}

// Begun returns what r says from the beginning.
func (r *Record) Begun() Begun {
	d := &r.Decision
	return Begun{
		Time: r.Time, ID: r.ID, Request: r.Request, Target: r.Target, Transparent: r.Transparent, Monitor: r.Monitor,
		Token: d.Token, Verdict: d.Verdict, Reason: d.Reason,
	}
}

func (b *Begun) appendWithin(to []byte, o *Options, limit int) (line []byte, url int) {
	kind := trail.KindBegun
	if b.Unused {
		kind = trail.KindContact
	}
	return b.append(to, kind, o, limit)
}

// append appends the members with which all lines about requests begin. kind is "" for a Record.
func (b *Begun) append(to []byte, kind string, o *Options, limit int) (line []byte, url int) {
	to = append(appendTime(append(to, `{"time":"`...), b.Time), '"')
	to = appendOptional(to, `,"kind":"`, kind, limit)
	to = appendString(append(to, `,"id":`...), b.ID)
	to = appendOptional(to, `,"replica":"`, o.Replica, limit)
	to = appendOptional(to, `,"client":"`, o.clientName(b.Request.Client), max(limit, minClient))
	if b.Transparent {
		to = append(to, `,"via":"transparent"`...)
	}
	to = appendOptional(to, `,"method":"`, b.Request.Method, limit)
	to, url = appendURL(to, b, o.DropQuery, limit)
	// Filters and reports need the whole host.
	to = appendOptional(to, `,"host":"`, b.Request.Origin.Host, trail.MaxText)
	to = appendOptional(to, `,"user_agent":"`, b.Request.UserAgent, limit)
	to = appendOptional(to, `,"agent":"`, b.Token, limit)
	to = append(append(to, `,"decision":"`...), b.Verdict.String()...)
	to = append(append(to, `","reason":"`...), b.Reason...)
	return strconv.AppendBool(append(to, `","enforced":`...), !b.Monitor), url
}

// Begin adds a line for each request or tunnel that is under way; the Record with the same ID ends it. For an Unused
// tunnel, the line is the only one. With Options.BlockedOnly, Begin leaves allowed requests out. The lines are in the file when
// Begin returns without an error; with SyncAlways, the disk has them. After an error, some may be missing. With
// Options.Continue there is no error.
func (l *Log) Begin(all ...*Begun) error {
	var last uint64
	var err error
	for _, r := range all {
		if l.options.Load().BlockedOnly && r.Verdict == policy.Allow {
			continue
		}
		if last, _, err = l.add(r); err != nil {
			break
		}
	}
	if err == nil && last > 0 {
		err = l.commit(last)
	}
	if l.options.Load().Continue {
		return nil
	}
	return err
}

// hasBegun reports whether the request with an ID has a line of kind begun. Its Record is then written even if
// Options.BlockedOnly was set meanwhile.
func (l *Log) hasBegun(id string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.open[id] > 0
}

// appendURL appends the URL of the request, and returns its length in the line. For a request
// without a valid URL it appends the target that the client sent, cut as other strings are,
// and returns 0.
//
// A reader of the line gets the bytes that the client sent: [trail.Entry.RequestURL]. JSON has only
// UTF-8, so other bytes are percent-encoded in the member url, and url_base64 has the whole URL.
func appendURL(b []byte, r *Begun, dropQuery bool, limit int) (line []byte, url int) {
	q := &r.Request
	part := func(pathQuery string) string {
		if dropQuery {
			pathQuery, _, _ = strings.Cut(pathQuery, "?")
		}
		return pathQuery
	}
	b = append(b, `,"url":"`...)
	start := len(b)
	switch {
	case q.Origin.Host == "":
		return append(appendURLText(b, part(r.Target), limit), '"'), 0
	case q.Method == http.MethodConnect:
		b = appendEscaped(b, q.Origin.Addr())
		return append(b, '"'), len(b) - start
	}
	b = appendEscaped(b, q.Origin.String())
	if q.IsWhole() {
		return append(b, '"'), len(b) - start
	}
	target := part(q.PathQuery)
	sent := humanize.Cut(target, trail.MaxURL)
	text := percentEncode(sent, func(r rune, size int) bool { return r >= ' ' && r != 0x7f && (r != utf8.RuneError || size > 1) })
	b = appendEscaped(b, text)
	switch {
	case len(target) > len(sent):
		b = trail.AppendCut(b, len(target))
	case len(text) > len(sent):
		b = append(b, `","url_base64":"`...)
		b = base64.StdEncoding.AppendEncode(b, []byte(q.Origin.String()+sent))
	}
	return append(b, '"'), len(b) - start
}
