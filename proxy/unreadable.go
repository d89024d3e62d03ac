package proxy

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"robotsproxy/policy/audit"
	"robotsproxy/policy/explain"
	"robotsproxy/policy/memory"
)

// ErrTLSInTheClear is in the record of a client that begins a TLS handshake on a port without TLS. Often
// the proxy's URL in its settings begins with https:// in place of http://.
var ErrTLSInTheClear = errors.New("the client speaks TLS to the proxy's own port, which expects plain HTTP (use an http:// URL for the proxy)")

// An unreadable is the beginning of a request that net/http cannot read.
type unreadable struct {
	conn     net.Conn
	client   string
	tls      bool   // it is the beginning of a TLS handshake, on the proxy's own port without TLS
	tlsFault error  // why the TLS handshake failed; nil: it succeeded
	headErr  error  // why the headMeter stopped reading; nil: it did not
	answer   []byte // the response of net/http
}

// answerUnreadable records a request that net/http cannot read, and replaces the response
// of net/http.
func (h *Handler) answerUnreadable(c unreadable) error {
	line, _, _ := strings.Cut(string(c.answer), "\r\n") // this line depends only on the kind of error
	a, to := unreadableAnswer(line), c.conn
	err := errors.New("unreadable request: " + line)
	if c.tls {
		err = ErrTLSInTheClear
		a.detail, a.advice = "This port expects plain HTTP.", "Use an http:// URL for the proxy."
	}
	if c.headErr != nil {
		a, err = unreadHeadAnswer(c.headErr), c.headErr
	}
	if c.tlsFault != nil {
		inTheClear, ok := errors.AsType[tls.RecordHeaderError](c.tlsFault)
		if !ok || inTheClear.Conn == nil {
			h.o.Log.Debug("TLS handshake with a client failed", "error", c.tlsFault)
			return c.tlsFault // there is no request, and no response is possible
		}
		err, to = fmt.Errorf("tls handshake with the client: %w", c.tlsFault), inTheClear.Conn
		a.detail, a.advice = "This port requires TLS.", "Use an https:// URL for the proxy."
	}
	rec := new(audit.Record)
	h.newRecord(rec, c.conn.RemoteAddr().String())
	rec.Request.Client, rec.Status, rec.Decision.Reason = c.client, a.status, a.reason
	if err := h.writeRecord(rec, err); err != nil {
		a = answerTo(err)
	}
	p := newProblem(a, explain.Explanation{}, false, rec.ID)
	if a.status == http.StatusServiceUnavailable {
		p.RetryAfter = 1
	}
	body := p.text()
	resp := http.Response{StatusCode: a.status, ProtoMajor: 1, ProtoMinor: 1, Close: true, Header: ownHeader(a, p), ContentLength: int64(len(body)), Body: io.NopCloser(bytes.NewReader(body))}
	resp.Header.Set("Content-Type", "text/plain; charset=utf-8")
	resp.Header.Set("Date", time.Now().UTC().Format(http.TimeFormat))
	var whole bytes.Buffer
	if err := resp.Write(&whole); err != nil {
		return err
	}
	if _, err = to.Write(whole.Bytes()); err == nil {
		drain(to, time.Now().Add(lastWait))
	}
	return err
}

// drain prepares the end of a connection, after the response, whose client may still be sending. If net/http closed it with
// unread bytes, the system would reset it, and the client could lose the response.
func drain(c net.Conn, until time.Time) {
	if closeWriteOrClose(c) == nil && c.SetReadDeadline(until) == nil {
		io.CopyN(io.Discard, c, maxLateUpload)
	}
}

// unreadHeadAnswer returns the answer to a head that a headMeter has stopped reading.
func unreadHeadAnswer(err error) answer {
	if errors.Is(err, memory.ErrShort) {
		return answerTo(err)
	}
	return unreadableAnswer("HTTP/1.1 431")
}

// unreadableAnswer returns the answer that replaces a response of net/http with this status
// line.
func unreadableAnswer(line string) answer {
	a := answerTo(errMalformed)
	a.detail, a.advice = "The request is not valid HTTP.", "Check its header, for example for a missing or second Host, a wrong length, or a space before a colon."
	if fields := strings.Fields(line); len(fields) > 1 {
		if n, err := strconv.Atoi(fields[1]); err == nil && n >= 400 && n <= 599 {
			a.status = n
		}
	}
	switch a.status {
	case http.StatusRequestHeaderFieldsTooLarge:
		a.detail, a.advice = "The header of the request is longer than 64 KiB or has more than 1,024 lines.", "Send a shorter URL or fewer header fields."
	case http.StatusNotImplemented:
		a.detail, a.advice = "The request has a transfer coding that the proxy does not support.", "Send the body with Content-Length, or chunked."
	case http.StatusExpectationFailed:
		a.detail, a.advice = "The request has an expectation that the proxy does not support.", "Omit Expect, or send 100-continue."
	case http.StatusHTTPVersionNotSupported:
		a.detail, a.advice = "The request has an HTTP version that the proxy does not support.", "Use HTTP/1.1 or HTTP/2."
	}
	return a
}
