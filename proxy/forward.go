package proxy

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"strings"
	"time"

	"github.com/elazarl/goproxy"
	"golang.org/x/net/http/httpguts"

	"robotsproxy/policy"
	"robotsproxy/policy/audit"
)

// stateKey is the key of the requestState in a request's context. The pipeline's
// RoundTripper uses it.
type stateKey struct{}

// newPipeline creates a goproxy that sends by [requestState.exchange] and decides nothing.
func newPipeline(log *slog.Logger) *goproxy.ProxyHttpServer {
	p := goproxy.NewProxyHttpServer()
	// Only egress sends requests, and it does not use the proxy of the environment.
	p.Tr, p.ConnectDial = nil, nil
	// prepareRequest has removed what must not be sent.
	p.KeepHeader = true
	p.KeepDestinationHeaders = true
	p.Logger = pipelineLog{log}
	send := goproxy.RoundTripperFunc(func(r *http.Request, _ *goproxy.ProxyCtx) (*http.Response, error) {
		return r.Context().Value(stateKey{}).(*requestState).exchange(r)
	})
	p.OnRequest().DoFunc(func(r *http.Request, ctx *goproxy.ProxyCtx) (*http.Request, *http.Response) {
		ctx.RoundTripper = send
		return r, nil
	})
	return p
}

// pipelineLog is goproxy's logger. It logs at debug level, because the proxy reports
// warnings itself.
type pipelineLog struct{ log *slog.Logger }

func (l pipelineLog) Printf(format string, v ...any) {
	l.log.Debug("goproxy message", "text", strings.TrimSpace(fmt.Sprintf(format, v...)))
}

// forward sends the request through the pipeline, and the response to the client.
func (h *Handler) forward(s *requestState) error {
	ctx, cancel := context.WithCancelCause(context.WithValue(s.in.HTTP.Context(), stateKey{}, s))
	defer cancel(nil)
	s.transfer.cancel = cancel
	s.sender, s.owner, s.memory = &s.response, &s.client.logins, &s.work
	s.response.beginCapture()
	r := s.in.HTTP.WithContext(ctx)
	r.URL, r.RequestURI = s.record.Request.URL(), ""
	r.Host = r.URL.Host
	s.rules.prepareRequest(r, &s.record.Request, h.via)
	if r.Body != nil && r.Body != http.NoBody {
		s.transfer.setUpload(r, s.response.capture)
		// An origin may respond before it has read the whole body. Without full duplex,
		// net/http would then discard part of the body. HTTP/2 needs none.
		http.NewResponseController(s.in.Writer).EnableFullDuplex()
	}
	s.transfer.begin()
	defer s.transfer.watch.stop()
	s.slot.Follow(&s.transfer)
	h.pipeline.ServeHTTP(&s.response, r)
	switch {
	case s.response.upgraded != nil:
		// The relay has its own watch.
		s.transfer.watch.stop()
		return s.upgrade()
	case s.response.failure != nil:
	case s.response.length >= 0 && s.record.Bytes > 0:
		s.response.flushLast()
	case s.response.length < 0 && s.response.body.response != nil && ctx.Err() != nil:
		// The client left before it read the end. The origin may have ended without an
		// error because the proxy closed the connection.
		s.response.fail(context.Cause(ctx))
	}
	return s.response.failure
}

// exchange sends a request of the pipeline. It keeps an error in the response and mutes the
// pipeline, which would otherwise write its own response.
func (s *requestState) exchange(r *http.Request) (*http.Response, error) {
	signer, unsigned := s.rules.Signers.choose(s.record.Request.Client, r.URL.Scheme, r.Header)
	if signer != nil {
		// The client's request has the same header, which must stay.
		r.Header = maps.Clone(r.Header)
	}
	resp, err := s.roundTrip(r, signer)
	s.recordSignature(signer, unsigned)
	s.record.LegacyTLS, s.record.Dropped = s.wasSent && s.conn.Legacy, s.conn.Dropped
	if err == nil {
		err = checkResponse(r, resp)
	}
	if err == nil && s.response.clientLeft {
		resp.Body.Close()
		err = context.Cause(s.in.HTTP.Context())
	}
	s.adaptPace(resp, err)
	if err != nil {
		if upload := s.transfer.flow.now().failure; upload != nil {
			// The client is at fault, not the origin.
			err = upload
		}
		return nil, s.response.mute(err)
	}
	s.record.Preferences = audit.PreferencesOf(resp.Header)
	if s.rules.Engine.JudgeResponse(s.record.Request, &s.record.Decision, resp.StatusCode, resp.Header) && !s.rules.Monitor {
		// The body is not downloaded.
		resp.Body.Close()
		s.record.Withheld = true
		s.response.capture.Discard()
		return nil, s.response.mute(refusedError{s.record.Decision.Reason})
	}
	s.response.capture = s.response.capture.Respond(resp.Request, resp, s.conn.Addr, s.conn.TLS)
	if resp.StatusCode == http.StatusSwitchingProtocols {
		s.response.muted, s.response.upgraded = true, resp
		return &http.Response{StatusCode: http.StatusSwitchingProtocols, Body: http.NoBody}, nil
	}
	connection := resp.Header["Connection"]
	prepareResponse(resp.StatusCode, resp.Header, s.client.h.via)
	stripTrailer(resp.Trailer, connection)
	// Copy the header here: the pipeline would copy each value.
	maps.Copy(s.in.Writer.Header(), resp.Header)
	s.response.length = resp.ContentLength
	if isEventStream(resp.Header.Get("Content-Type")) {
		if err := s.detachSlot(); err != nil {
			resp.Body.Close()
			return nil, s.response.mute(err)
		}
	}
	resp.Header = nil
	if resp.Body != http.NoBody {
		s.response.body = originBody{ReadCloser: resp.Body, response: &s.response, received: resp, connection: connection}
		if s.rules.Digests {
			s.response.body.digest = sha256.New()
		}
		resp.Body = &s.response.body
	}
	return resp, nil
}

// checkResponse returns why a response cannot be passed on, and then closes it. net/http
// accepts no status below 100. After a change of protocol that was not requested,
// requests would pass unchecked.
func checkResponse(r *http.Request, resp *http.Response) error {
	switch status := resp.StatusCode; {
	case status < http.StatusContinue:
		resp.Body.Close()
		return fmt.Errorf("unexpected status %03d from the origin", status)
	case status == http.StatusSwitchingProtocols && (upgradeTo(r.Header) == "" || upgradeTo(resp.Header) == ""):
		resp.Body.Close()
		return errors.New("the origin switched to a protocol that was not requested")
	}
	return nil
}

func isEventStream(contentType string) bool {
	const media = "text/event-stream"
	return len(contentType) >= len(media) && strings.EqualFold(contentType[:len(media)], media)
}

// adaptPace tells package pace that an origin asks for a back-off or serves the client, and how fast it
// responded. A request with a body is not timed, because its time also depends on the
// client.
func (s *requestState) adaptPace(resp *http.Response, err error) {
	if s.slot == nil {
		return
	}
	if err == nil {
		s.attempt.Answered(resp.StatusCode)
	}
	fine := err == nil && resp.StatusCode < http.StatusBadRequest
	if (err == nil || isTimeout(err)) && s.in.HTTP.ContentLength == 0 {
		path, _, _ := strings.Cut(s.record.Request.PathQuery, "?")
		s.slot.Answered(path, fine)
	}
	if err != nil || !s.rules.BackOff {
		return
	}
	switch status := resp.StatusCode; {
	case status == http.StatusTooManyRequests, status == http.StatusServiceUnavailable:
		s.record.BackOff, s.record.BackOffBy = s.slot.BackOff(parseRetryAfter(resp.Header.Get("Retry-After"), time.Now()), s.record.ID)
	case status/100 == 2:
		s.slot.Succeeded()
	}
}

// prepareRequest changes the header of a client's request, which was decided about as q, into that of the request to the
// origin.
func (g *generation) prepareRequest(r *http.Request, q *policy.Request, via []string) {
	r.Trailer = announcedTrailer(r)
	upgrade := ""
	if !r.ProtoAtLeast(2, 0) && r.ProtoAtLeast(1, 1) {
		upgrade = upgradeTo(r.Header)
	}
	trailers := httpguts.HeaderValuesContainsToken(r.Header["Te"], "trailers")
	stripRequest(r.Header)
	if trailers {
		// gRPC insists on it, and the proxy passes trailers on (RFC 9110 10.1.4).
		r.Header["Te"] = []string{"trailers"}
	}
	if upgrade != "" {
		r.Header["Connection"], r.Header["Upgrade"] = []string{"Upgrade"}, []string{upgrade}
	}
	if ua := q.UserAgent; ua != "" {
		if sent := r.Header["User-Agent"]; len(sent) != 1 || sent[0] != ua {
			r.Header["User-Agent"] = []string{ua}
		}
	} else {
		// net/http would add its own to HTTP/2 if there were none.
		r.Header["User-Agent"] = nil
	}
	switch from := q.From; {
	case g.from != nil:
		r.Header["From"] = g.from
	// The decision used From, although Connection names it, so it was removed.
	case from != "" && r.Header["From"] == nil:
		r.Header["From"] = []string{from}
	}
	if !g.NoVia {
		addVia(r.Header, via)
	}
	// Connection: close concerned the client's connection.
	r.Close = false
}

// upgrade answers 101 and relays between the two connections until both directions have
// ended. It returns the concurrency slot; the limit of streams applies instead.
func (s *requestState) upgrade() error {
	h := s.client.h
	resp := s.response.upgraded
	origin, ok := resp.Body.(io.ReadWriteCloser)
	if !ok {
		return fmt.Errorf("upgrade: %T is not writable", resp.Body)
	}
	defer origin.Close()
	protocol := resp.Header.Get("Upgrade")
	prepareResponse(resp.StatusCode, resp.Header, h.via)
	resp.Header["Connection"], resp.Header["Upgrade"] = []string{"Upgrade"}, []string{protocol}
	if err := s.detachSlot(); err != nil {
		return err
	}
	if err := h.sent.writeNow(&s.line); err != nil {
		return err
	}
	s.response.headSent = true
	// The server no longer reads the body.
	s.transfer.flow.endUpload(uploadComplete)
	conn, err := s.in.Hijack()
	if err != nil {
		return fmt.Errorf("upgrade: %w", err)
	}
	defer conn.Close()
	h.counts.upgraded.Begin()
	defer h.counts.upgraded.End()
	s.record.Status = resp.StatusCode
	resp.Body = nil
	err = conn.SetWriteDeadline(time.Now().Add(h.o.Silence))
	if err == nil {
		err = resp.Write(conn)
	}
	if err == nil {
		// The watch of the relay replaces the deadline.
		err = conn.SetWriteDeadline(time.Time{})
	}
	if err != nil {
		return fmt.Errorf("upgrade: %w", err)
	}
	s.record.Bytes, err = s.relay(conn, origin, false)
	return err
}
