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
	"robotsproxy/proxy/clientfault"
)

// ErrTLSInTheClear is in the record of a client that begins a TLS handshake on a port without TLS. Often
// the proxy's URL in its settings begins with https:// in place of http://.
var ErrTLSInTheClear = errors.New("the client speaks TLS to the proxy's own port, which expects plain HTTP (use an http:// URL for the proxy)")

// An unreadable is a request that net/http answers itself, or bytes that are not HTTP.
type unreadable struct {
	conn   net.Conn
	client string
	head   sentHead

	// It is the beginning of a TLS handshake, on the proxy's own port without TLS.
	tls bool

	// Why the TLS handshake failed; nil: it succeeded.
	tlsFault error

	// Why the requestReader stopped reading; nil: it did not.
	headErr error

	// The response of net/http.
	answer []byte
}

// answerUnreadable records a request that net/http answers itself, and replaces the response.
func (h *Handler) answerUnreadable(c unreadable) error {
	fault := faultOf(c.answer)
	a, err, to := answerTo(fault), error(fault), c.conn
	switch {
	case c.tls:
		err = ErrTLSInTheClear
		a.detail, a.advice = "This port expects plain HTTP.", clientfault.TLS.Advice()
		h.countFault(clientfault.TLS, c.client, "")
	case errors.Is(c.headErr, memory.ErrShort):
		a, err = answerTo(c.headErr), c.headErr
	}
	if c.tlsFault != nil {
		inTheClear, ok := errors.AsType[tls.RecordHeaderError](c.tlsFault)
		if !ok || inTheClear.Conn == nil {
			h.o.Log.Debug("TLS handshake with a client failed", "error", c.tlsFault)
			// There is no request, and no response is possible.
			return c.tlsFault
		}
		err, to = fmt.Errorf("tls handshake with the client: %w", c.tlsFault), inTheClear.Conn
		a.detail, a.advice = "This port requires TLS.", clientfault.PlainHTTP.Advice()
		h.countFault(clientfault.PlainHTTP, c.client, "")
	}
	rec := new(audit.Record)
	newRecord(rec, c.conn.RemoteAddr().String())
	rec.Request.Client, rec.Request.Method, rec.Target = c.client, c.head.method, withoutUserinfo(c.head.target)
	rec.Status, rec.Decision.Reason = a.status, a.reason
	if err := h.writeRecord(rec, err); err != nil {
		a = answerTo(err)
	}
	p := newProblem(a, explain.Explanation{}, false, rec.ID)
	p.URL = beginningOf(rec.Target)
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

// faultOf returns the error that net/http has answered with a response. Its status line depends on the
// kind of error only.
func faultOf(response []byte) *malformedError {
	line, _, _ := strings.Cut(string(response), "\r\n")
	_, text, _ := strings.Cut(line, " ")
	number, _, _ := strings.Cut(text, " ")
	// net/http gives some causes.
	_, cause, known := strings.Cut(text, ": ")
	switch status, _ := strconv.Atoi(number); {
	case status == http.StatusRequestHeaderFieldsTooLarge:
		return errLongHead
	case status == http.StatusNotImplemented:
		return &malformedError{status, "its transfer coding is not supported", "Send the body with Content-Length, or chunked."}
	case status == http.StatusExpectationFailed:
		return &malformedError{status, "its expectation is not supported", "Omit Expect, or send 100-continue."}
	case status == http.StatusHTTPVersionNotSupported:
		return &malformedError{status, "its HTTP version is not supported", "Use HTTP/1.1 or HTTP/2."}
	case status == http.StatusBadRequest && known:
		return malformed(cause)
	}
	return malformed("its header is incomplete, has a line that is not NAME: VALUE, or a wrong Content-Length")
}
