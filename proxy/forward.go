package proxy

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/textproto"
	"strconv"
	"strings"
	"time"

	"github.com/elazarl/goproxy"

	"robotsproxy/policy/audit"
)

// exchangeKey is under what a request's context holds its exchange, so that
// the pipeline's one RoundTripper finds it.
type exchangeKey struct{}

// newPipeline sets goproxy up so that it sends through us and decides nothing.
func (h *Handler) newPipeline() *goproxy.ProxyHttpServer {
	p := goproxy.NewProxyHttpServer()
	p.Tr, p.ConnectDial = nil, nil // requests go out by egress alone, not by the proxy of the environment
	p.KeepHeader = true            // what has to go is gone: see outgoing
	p.KeepDestinationHeaders = true
	p.Logger = pipelineLog{h.o.Log}
	send := goproxy.RoundTripperFunc(h.roundTrip)
	p.OnRequest().DoFunc(func(r *http.Request, ctx *goproxy.ProxyCtx) (*http.Request, *http.Response) {
		ctx.RoundTripper = send
		return r, nil
	})
	return p
}

// pipelineLog is goproxy's logger: what it warns of is known here already.
type pipelineLog struct{ log *slog.Logger }

func (l pipelineLog) Printf(format string, v ...any) {
	l.log.Debug("pipeline: " + strings.TrimSpace(fmt.Sprintf(format, v...)))
}

// forward sends the request through the pipeline and its answer to the client.
func (h *Handler) forward(x *exchange) error {
	ctx, cancel := context.WithCancelCause(context.WithValue(x.request.Context(), exchangeKey{}, x))
	defer cancel(nil)
	x.cancel = cancel
	r := x.request.WithContext(ctx)
	r.URL, r.Host, r.RequestURI = x.url, x.url.Host, ""
	h.outgoing(x, r)
	if r.Body != nil && r.Body != http.NoBody {
		r.Body = &clientBody{r.Body, x, r.Trailer}
		// An origin may answer before it has read all: without this net/http would
		// throw a part of the body away while it is being sent on.
		http.NewResponseController(x.client).EnableFullDuplex() // HTTP/2 needs none
	}
	x.watch.begin(x)
	defer x.watch.stop()
	x.slot.Follow(x)
	h.pipeline.ServeHTTP(x, r)
	switch {
	case x.upgraded != nil:
		x.watch.stop() // the relay has its own
		return h.upgrade(x)
	case x.failure != nil:
	case x.length >= 0 && x.record.Bytes > 0:
		x.flushLast()
	case x.length < 0 && x.body.x != nil && ctx.Err() != nil:
		// The client left before it can have read the end. The origin may have
		// ended in good order all the same, when it saw us leave.
		x.fail(context.Cause(ctx))
	}
	return x.failure
}

// roundTrip is the pipeline's way to the origin. A failure is left in the
// exchange and the pipeline muted: its own words for it are not ours.
func (h *Handler) roundTrip(r *http.Request, ctx *goproxy.ProxyCtx) (*http.Response, error) {
	x := r.Context().Value(exchangeKey{}).(*exchange)
	x.connecting.Store(true)
	resp, err := x.rules.Egress.At(x.at).Send(r.Context(), r, x)
	x.early.end()
	if err == nil {
		err = unusable(r, resp)
	}
	if err == nil && x.early.left {
		resp.Body.Close()
		err = context.Cause(x.request.Context())
	}
	h.heed(x, resp, err)
	if err != nil {
		if upload := x.upload.Load(); upload != nil && !x.refused.Load() {
			err = *upload // the origin is not to blame
		}
		return nil, x.mute(err)
	}
	x.record.Wishes = audit.WishesOf(resp.Header)
	if resp.StatusCode == http.StatusSwitchingProtocols {
		x.muted, x.upgraded = true, resp
		return &http.Response{StatusCode: http.StatusSwitchingProtocols, Body: http.NoBody}, nil
	}
	connection := resp.Header["Connection"]
	h.incoming(resp.StatusCode, resp.Header)
	stripTrailer(resp.Trailer, connection)
	// Handed on as it is: the pipeline would copy each value.
	maps.Copy(x.client.Header(), resp.Header)
	x.length = resp.ContentLength
	if isEventStream(resp.Header.Get("Content-Type")) {
		if err := x.detach(); err != nil {
			resp.Body.Close()
			return nil, x.mute(err)
		}
	}
	resp.Header = nil
	if resp.Body != http.NoBody {
		x.body = originBody{resp.Body, x, resp, connection}
		resp.Body = &x.body
	}
	return resp, nil
}

// unusable says why an answer cannot be passed on: net/http lets no status
// under 100 through, and a change of protocol that nobody asked for would let
// requests past that are not judged. It closes such an answer.
func unusable(r *http.Request, resp *http.Response) error {
	switch status := resp.StatusCode; {
	case status < http.StatusContinue:
		resp.Body.Close()
		return fmt.Errorf("the origin answers with status %03d", status)
	case status == http.StatusSwitchingProtocols && (upgradeTo(r.Header) == "" || upgradeTo(resp.Header) == ""):
		resp.Body.Close()
		return errors.New("the origin changes to a protocol that it was not asked for")
	}
	return nil
}

// mute keeps why there is no answer, and the pipeline's own words for it from
// the client.
func (x *exchange) mute(err error) error {
	x.muted = true
	x.fail(err)
	return err
}

func isEventStream(contentType string) bool {
	const media = "text/event-stream"
	return len(contentType) >= len(media) && strings.EqualFold(contentType[:len(media)], media)
}

// detach gives the place back of what may last for hours.
func (x *exchange) detach() error {
	if x.slot == nil {
		return nil
	}
	return x.slot.Detach()
}

// heed slows down for an origin that asks for it, or is slow. How long an upload
// takes is the client's doing as well.
func (h *Handler) heed(x *exchange, resp *http.Response, err error) {
	if x.slot == nil {
		return
	}
	fine := err == nil && resp.StatusCode < http.StatusBadRequest
	if (err == nil || isTimeout(err)) && x.request.ContentLength == 0 {
		x.slot.Answered(fine)
	}
	if !fine && err == nil && x.rules.BackOff && (resp.StatusCode == http.StatusTooManyRequests || resp.StatusCode == http.StatusServiceUnavailable) {
		x.record.BackOff = x.slot.BackOff(retryAfter(resp.Header.Get("Retry-After"), time.Now()))
	}
}

// retryAfter reads RFC 9110 10.2.3, seconds or a date; 0 where it says nothing
// that can be read. Seconds from 2^31 on count as 2^31-1.
func retryAfter(v string, now time.Time) time.Duration {
	v = textproto.TrimString(v)
	if s, err := strconv.ParseUint(v, 10, 31); err == nil || errors.Is(err, strconv.ErrRange) {
		return time.Duration(s) * time.Second // the largest number of 31 bits if out of range
	}
	if t, err := http.ParseTime(v); err == nil {
		return max(0, t.Sub(now))
	}
	return 0
}
