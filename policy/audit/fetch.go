package audit

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"

	"robotsproxy/policy/audit/trail"
	"robotsproxy/policy/explain/humanize"
	"robotsproxy/robots/cache"
	"robotsproxy/robots/fetch"
)

// A fetchLine is the line about one fetch by the proxy itself.
type fetchLine struct {
	// kind is trail.KindRobots or trail.KindTDMRep.
	kind string
	fetch.Report
}

// appendWithin appends the line. Its URL is that of the origin's file.
func (f *fetchLine) appendWithin(b []byte, o *Options, limit int) (line []byte, url int) {
	a := f.Result
	b = appendKind(b, f.Began, f.kind, o, limit)
	for i, hop := range f.Hops {
		switch {
		case i == 0:
			start := len(b)
			b = appendString(append(b, `,"url":`...), hop)
			url = len(b) - start
			b = appendOptional(b, `,"host":"`, f.Request.Origin.Host, trail.MaxText)
			continue
		case i == 1:
			b = append(b, `,"hops":[`...)
		default:
			b = append(b, ',')
		}
		b = append(appendURLText(append(b, '"'), hop, limit), '"')
	}
	if len(f.Hops) > 1 {
		b = append(b, ']')
	}
	b = appendOptional(b, `,"user_agent":"`, a.UserAgent, limit)
	b = appendOptional(b, `,"agent":"`, f.Request.Token, limit)
	b = appendOptional(b, `,"signed":"`, f.Signed, limit)
	b = appendOptional(b, `,"outcome":"`, string(cache.FetchOutcomeOf(a)), limit)
	sha, body := a.SHA256, a.Body
	// No decision rests on the bytes of a file that was rejected, and they are not stored.
	if f.Rejected != nil {
		sum := sha256.Sum256(f.Rejected)
		sha, body = hex.EncodeToString(sum[:]), f.Rejected
	}
	b = appendOptional(b, `,"sha256":"`, sha, limit)
	b = append(appendTime(append(b, `,"fetched":"`...), a.Fetched), '"')
	b = appendNumber(b, `,"status":`, a.Status)
	b = strconv.AppendInt(append(b, `,"bytes":`...), int64(len(body)), 10)
	b = appendMillis(append(b, `,"duration_ms":`...), a.Fetched.Sub(f.Began))
	if err := cache.Failure(a); err != nil {
		b = appendOptional(b, `,"error":"`, o.withoutQueries(humanize.Error(err)), limit)
	}
	return b, url
}
