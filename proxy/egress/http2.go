package egress

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2"

	"robotsproxy/policy/memory"
	"robotsproxy/proxy/h1"
	"robotsproxy/robots"
)

const (
	// maxStreamAhead bounds, in bytes, what an HTTP/2 origin may send on a stream ahead of a
	// client that reads slowly. All streams of a connection together have no such bound:
	// the slow ones would use it up.
	maxStreamAhead = 256 << 10
	// After this time without data, the client pings an HTTP/2 connection.
	pingAfter = 30 * time.Second

	// maxReusedHead is the maximum length of a request head, in bytes, after which its HTTP/2
	// connection is reused. net/http keeps buffers of three times the longest head as long as
	// the connection lives. Few heads are longer than 2 KiB.
	maxReusedHead = 4 << 10
)

// connKey is the key under which the context of NewClientConn holds the frameConn to use: NewClientConn takes
// none, it calls DialTLSContext.
type connKey struct{}

// newHTTP2Transport returns a Transport that makes an http.ClientConn of a connection. It connects to
// nothing itself. The head of a response must arrive within headerTimeout.
func newHTTP2Transport(headerTimeout time.Duration) *http.Transport {
	var spoken http.Protocols
	spoken.SetHTTP2(true)
	// For net/http, a frameConn is a connection without TLS.
	spoken.SetUnencryptedHTTP2(true)
	return &http.Transport{
		DialTLSContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return ctx.Value(connKey{}).(*frameConn), nil
		},
		Protocols: &spoken,
		// Bodies must pass unchanged.
		DisableCompression: true,
		// The pool closes idle connections: net/http's timer stops for good while a stream is reserved.
		IdleConnTimeout:        0,
		ResponseHeaderTimeout:  headerTimeout,
		ExpectContinueTimeout:  continueTimeout,
		MaxResponseHeaderBytes: h1.MaxHead,
		HTTP2: &http.HTTP2Config{
			MaxReceiveBufferPerStream: maxStreamAhead,
			SendPingTimeout:           pingAfter,
		},
	}
}

// An http2Conn is a connection of HTTP/2. Many requests share it.
type http2Conn struct {
	endpoint endpoint
	frames   *frameConn
	pool     *pool
	info     Info
	client   *http.ClientConn
	made     time.Time

	// used says that a response has arrived.
	used atomic.Bool

	// last is when a stream was last reserved, and timer calls pool.expire; nil: the connection is not shared. The
	// pool's mutex guards both.
	last  time.Time
	timer *time.Timer
}

// newHTTP2Conn returns a connection after its handshake, with a stream reserved for the caller if the origin takes one.
func newHTTP2Conn(ctx context.Context, t *http.Transport, conn *tls.Conn, at endpoint, in *pool) (*http2Conn, error) {
	h := &http2Conn{endpoint: at, frames: newFrameConn(conn), pool: in, info: infoOf(conn), made: time.Now()}
	below := tracked(conn)
	counted := below.onClose
	below.onClose = func() {
		counted()
		in.unshare(h)
	}
	var err error
	if h.client, err = t.NewClientConn(context.WithValue(ctx, connKey{}, h.frames), "https", at.Addr()); err != nil {
		conn.Close()
		return nil, err
	}
	// An origin that takes no stream (GOAWAY) was connected to, so the request fails, not the connection.
	h.client.Reserve()
	return h, nil
}

// closeWhenIdle closes the connection when no request uses it.
func (c *http2Conn) closeWhenIdle() {
	end := func(client *http.ClientConn) {
		if client.InFlight() == 0 {
			client.Close()
		}
	}
	c.client.SetStateHook(end)
	end(c.client)
}

// A streamConn is a [Conn] for one stream of HTTP/2.
type streamConn struct {
	*http2Conn
	history *history
	pending
}

// Info implements [Conn].
func (s *streamConn) Info() Info { return s.info }

// Release implements [Conn].
func (s *streamConn) Release() { s.client.Release() }

// Send implements [Conn].
func (s *streamConn) Send(r *http.Request, work *memory.Work) (sent bool, err error) {
	ctx, fail := context.WithCancelCause(r.Context())
	m := &streamMemory{fail: fail, heads: reserve{work: work}, body: reserve{work: work}}
	sent, err = s.send(r, func(written func()) (*http.Response, error) {
		// net/http reports the beginning and the end of the head and 1xx responses in no other way.
		own := r.WithContext(httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
			WroteHeaderField: func(name string, _ []string) {
				if name == ":method" {
					s.frames.expect(m)
				}
			},
			WroteHeaders: written,
			Got1xxResponse: func(status int, header textproto.MIMEHeader) error {
				err := m.decoded(http.Header(header))
				if err == nil {
					err = s.gotInterim(&http.Response{StatusCode: status, Header: http.Header(header), Body: http.NoBody})
				}
				if err != nil {
					// The origin would get the request again after the error of net/http.
					fail(err)
				}
				return err
			},
		}))
		own.Close = r.Close || headSize(r) > maxReusedHead
		resp, err := s.client.RoundTrip(own)
		// The memory of a long head is free when the connection ends.
		if s.frames.hadLong() {
			s.pool.unshare(s.http2Conn)
			s.closeWhenIdle()
		}
		if err != nil {
			return nil, causeOf(ctx, s.classify(err))
		}
		s.used.Store(true)
		// net/http accepts any number as a status.
		if err = m.decoded(resp.Header); err == nil && (resp.StatusCode < 100 || resp.StatusCode > 999) {
			err = fmt.Errorf("malformed status %d", resp.StatusCode)
		}
		if err != nil {
			resp.Body.Close()
			return nil, err
		}
		if resp.Request = r; resp.Body != http.NoBody {
			resp.Body = &streamBody{resp.Body, resp, m, ctx}
		}
		return resp, nil
	})
	// A 1xx response may have ended ctx, so the request was sent.
	sent = sent || err != nil && ctx.Err() != nil
	if err != nil && !sent && !failedAtOnce(s.used.Load(), s.made) {
		err = &unprocessedError{err}
	}
	return sent, err
}

// goAwayText is the text of net/http's errClientConnGotGoAway (Go 1.26), the error for a stream above the last one of
// GOAWAY. TestRepeatsOverHTTP2 fails if it changes.
const goAwayText = "http2: Transport received Server's graceful shutdown GOAWAY"

// classify wraps the error of a request so that Repeat knows what may have become of the request.
func (s *streamConn) classify(err error) error {
	// net/http's own error for a reset stream has the same form, and converts itself.
	reset, isReset := errors.AsType[http2.StreamError](err)
	switch {
	case isReset && reset.Code == http2.ErrCodeHTTP11Required:
		s.history.note(needsHTTP1, s.endpoint.Origin)
		return &unprocessedError{errors.New("the origin requires HTTP/1.1")}
	case isReset && reset.Code == http2.ErrCodeRefusedStream, err.Error() == goAwayText:
		return &unprocessedError{err}
	case isReset && reset.Code == http2.ErrCodeProtocol:
		// The origin may permit fewer streams now (RFC 9113 5.1.2).
		return &lostError{err}
	case !isReset && s.client.Err() != nil && s.used.Load(), errors.Is(err, errHeadMemory):
		return &lostError{err}
	}
	return err
}

// A streamBody is the body of a response over HTTP/2.
type streamBody struct {
	io.ReadCloser

	// response gets the trailer before the end of the body.
	response *http.Response
	memory   *streamMemory
	ctx      context.Context
}

// Read reads from the body. At its end it counts the trailer.
func (b *streamBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	// To count less is no error.
	b.memory.receive(-n)
	if err == io.EOF && len(b.response.Trailer) > 0 {
		if short := b.memory.decoded(b.response.Trailer); short != nil {
			return n, short
		}
	}
	return n, causeOf(b.ctx, err)
}

// Close drops the rest of the body.
func (b *streamBody) Close() error {
	err := b.ReadCloser.Close()
	b.memory.receive(math.MinInt)
	return err
}

// headSize returns the approximate size of the head of r, in bytes.
func headSize(r *http.Request) int {
	size, fields := sizeOf(r.Header)
	return size - fields*fieldOverhead + len(r.URL.Host) + len(robots.PathQueryOf(r.URL))
}
