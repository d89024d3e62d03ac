package proxy

import (
	"io"
	"net/http"
	"strconv"
	"strings"

	"robotsproxy/policy"
	"robotsproxy/policy/audit"
	"robotsproxy/proxy/archive"
	"robotsproxy/proxy/archive/warc"
	"robotsproxy/proxy/egress"
	"robotsproxy/robots/fetch"
)

// beginCapture begins to archive a request, if there is an archive.
func (s *requestState) beginCapture() {
	if a := s.from.h.o.Archive; a != nil {
		direct := s.rules.Egress.Direct(s.record.Request.Origin)
		s.response.capture = a.Begin(archive.Source{Client: s.shareKey(), Spare: s.work.Spare, Direct: direct})
	}
}

// endCapture archives a request that has ended. The error breaks the response off.
func (s *requestState) endCapture() (err error) {
	if s.response.capture != nil {
		s.record.Archived, err = s.response.capture.End(captureFields(&s.record, s.from.h.o.Archive.ClientName(s.record.Request.Client)))
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

// beginCapture begins to archive a GET, if there is an archive.
func (f *Fetches) beginCapture(hop fetch.Hop) *archive.Exchange {
	if f.Archive == nil {
		return nil
	}
	return f.Archive.Begin(archive.Source{Client: policy.ShareKey(hop.Client), Direct: f.Rules.Egress.Direct(hop.Origin)})
}

// captureFetch returns the body of a response, which is archived when it was read.
func captureFetch(x *archive.Exchange, resp *http.Response, hop fetch.Hop, from egress.Info) io.ReadCloser {
	if x = x.Respond(resp.Request, resp, from.Addr, from.TLS); x == nil {
		return resp.Body
	}
	return &capturedFetch{resp.Body, x, warc.AppendField(nil, "rules_of", hop.Origin.String())}
}

// A capturedFetch is the body of a response to a GET. If it cannot be archived, reading it fails, unless the
// archive permits that.
type capturedFetch struct {
	io.ReadCloser
	capture *archive.Exchange
	about   []byte
}

func (c *capturedFetch) Read(p []byte) (int, error) {
	n, err := c.ReadCloser.Read(p)
	err = c.capture.Read(p[:n], err)
	if err == io.EOF {
		if _, unarchived := c.capture.End(c.about); unarchived != nil {
			err = unarchived
		}
	}
	return n, err
}

// Close archives what was read.
func (c *capturedFetch) Close() error {
	// An error is that of the archive, which refuses the requests that follow.
	c.capture.End(c.about)
	return c.ReadCloser.Close()
}
