package proxy

import (
	"strconv"
	"strings"

	"robotsproxy/policy/audit"
	"robotsproxy/proxy/archive"
	"robotsproxy/proxy/archive/warc"
)

// beginCapture begins to archive a request, if there is an archive.
func (r *response) beginCapture() {
	s := r.s
	if a := s.client.h.o.Archive; a != nil {
		direct := s.out.Direct(s.record.Request.Origin)
		r.capture = a.Begin(archive.Source{Client: s.shareKey(), Spare: s.work.Spare, Direct: direct})
	}
}

// endCapture archives a request that has ended. The error breaks the response off.
func (r *response) endCapture() (err error) {
	s := r.s
	switch digest := r.body.digest; {
	case digest != nil:
		digest.Sum(s.record.Received.SHA256[:0])
	case r.capture != nil:
		s.record.Received = r.capture.Received()
	}
	if r.capture != nil {
		s.record.Archived, err = r.capture.End(captureFields(&s.record, s.client.h.o.Archive.ClientName(s.record.Request.Client)))
	}
	return err
}

// captureFields returns the fields that join an archived response to its record in the audit. client is the
// name that they give the client.
func captureFields(rec *audit.Record, client string) (b []byte) {
	d := &rec.Decision
	add := func(name, value string) {
		if value != "" {
			b = warc.AppendField(b, name, value)
		}
	}
	add("id", rec.ID)
	add("client", client)
	for key, value := range rec.Request.Labels.All() {
		add("label", key+"="+value)
	}
	add("agent", d.Token)
	add("decision", d.Verdict.String())
	add("reason", string(d.Reason))
	add("enforced", strconv.FormatBool(!rec.Monitor))
	add("entry", d.Entry)
	add("rule", d.Rule)
	if d.Line > 0 {
		add("line", strconv.Itoa(d.Line))
	}
	if a := d.Ruling.Result; a != nil {
		add("robots_url", a.URL)
		add("robots_sha256", a.SHA256)
	}
	var purposes []string
	for c := range d.Usage.Purposes.All {
		purposes = append(purposes, c.String())
	}
	add("purposes", strings.Join(purposes, " "))
	return b
}
