package proxy

import (
	"bytes"
	"context"
	"net/http"
	"strconv"
	"time"

	"robotsproxy/policy"
	"robotsproxy/robots"
	"robotsproxy/robots/cache"
	"robotsproxy/robots/fetch"
)

// isPlainRobotsTxt reports whether a request asks for robots.txt as crawlers do: a GET or HEAD of
// exactly /robots.txt.
func isPlainRobotsTxt(q *policy.Request) bool {
	return robots.IsRobotsTxt(q.PathQuery) && (q.Method == http.MethodGet || q.Method == http.MethodHead)
}

// usableCopy returns the cached response of the origin if it is complete and may be sent to
// a client as the origin sent it, or nil.
func usableCopy(r cache.Ruling) *fetch.Result {
	a := r.Result
	switch {
	case a == nil || a.Err != nil || a.TooManyRedirects || a.RedirectDisallowed:
		return nil
	// A longer body may be truncated.
	case a.Status >= 200 && a.Status <= 299 && len(a.Body) < robots.MaxBytes:
		return a
	case r.Meaning == cache.NoFile && a.Status >= 400 && a.Status <= 499:
		return a
	}
	return nil
}

// fromCache reports whether a request for robots.txt is answered with the cached copy, and
// puts that copy into d. If it is not, fromCache puts the Crawl-delay of the request into d.
// upgrade is the protocol to which the request asks to change.
func (r *Rules) fromCache(ctx context.Context, q policy.Request, upgrade string, d *policy.Decision) bool {
	ruling, dialect := r.Engine.RobotsTxt(ctx, q, &d.Pace)
	if !isPlainRobotsTxt(&q) || upgrade != "" || usableCopy(ruling) == nil {
		return false
	}
	d.Ruling, d.Dialect = ruling, dialect
	return true
}

// answerFromCache answers a request for robots.txt with the cached copy, which the cache
// fetches if necessary. Therefore clients cannot make the proxy request the file more often
// than the cache does. answered reports whether it has answered.
func (h *Handler) answerFromCache(s *requestState) (answered bool, err error) {
	rec := &s.record
	if rec.Decision.Reason != policy.ReasonRobotsTxt {
		return false, nil
	}
	ctx := s.in.HTTP.Context()
	if rec.Cached = s.rules.fromCache(ctx, rec.Request, upgradeTo(s.in.HTTP.Header), &rec.Decision); !rec.Cached {
		if ctx.Err() != nil {
			return false, context.Cause(ctx)
		}
		return false, nil
	}
	a := rec.Decision.Ruling.Result
	// The body counts here too, because the cache may drop it before it is sent.
	err = s.work.Hold(int64(len(a.Body)))
	if err == nil {
		// The answer has a record but takes no slot, so its rate is limited here.
		err = h.refusals.pace(ctx, &s.record)
	}
	if err != nil {
		rec.Cached, rec.Decision.Ruling = false, cache.Ruling{}
		return false, err
	}
	rec.Decision.Ruling.File = nil
	header := s.response.Header()
	modified := setCopyHeader(header, a, time.Now())
	addVia(header, h.via)
	s.response.length = int64(len(a.Body))
	s.transfer.begin()
	defer s.transfer.watch.stop()
	if a.Status == http.StatusOK {
		// ServeContent knows conditions and ranges (RFC 9110 13, 14).
		http.ServeContent(&s.response, s.in.HTTP, "", modified, bytes.NewReader(a.Body))
	} else {
		header.Set("Content-Length", strconv.Itoa(len(a.Body)))
		s.response.WriteHeader(a.Status)
		if s.in.HTTP.Method != http.MethodHead {
			s.response.Write(a.Body)
		}
	}
	s.response.flushLast()
	return true, s.response.failure
}

// setCopyHeader sets the header of a response from a cached copy. It returns when the file
// was last modified, or the zero time if the origin did not say.
func setCopyHeader(header http.Header, a *fetch.Result, now time.Time) (modified time.Time) {
	said := a.Headers
	if said == nil {
		said = new(fetch.Headers)
	}
	set := func(name, value string) {
		// A longer value may be truncated.
		if value != "" && len(value) < fetch.MaxHeader {
			header.Set(name, value)
		}
	}
	header.Set("Content-Type", "text/plain; charset=utf-8")
	set("Content-Type", said.ContentType)
	set("Last-Modified", said.LastModified)
	set("Cache-Control", said.CacheControl)
	// The ETag of an encoded file belongs to the encoded bytes.
	if said.ContentEncoding == "" {
		set("ETag", said.ETag)
	}
	age := max(0, int(now.Sub(a.Fetched)/time.Second))
	if before, err := strconv.Atoi(said.Age); err == nil && before > 0 && before < 1<<31 {
		age += before
	}
	header.Set("Age", strconv.Itoa(age))
	header.Set("Proxy-Status", "robotsproxy; hit")
	modified, _ = http.ParseTime(said.LastModified)
	return modified
}
