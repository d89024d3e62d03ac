// Package fetch gets the robots.txt of one origin: one GET, its redirects and
// its limits, and gives back the raw [Answer].
//
// It does not judge. What a status or a failure means, how long an answer is
// kept and when it is asked for again is the business of robots/cache; what
// the text says is that of robots. It opens no connection of its own: the
// http.RoundTripper it was given does, guards included, redirects included.
//
// It fails into the Answer: [Client.Fetch] never gives nil, and an Answer with
// Err set has no Body. One Client may be shared by any number of goroutines.
// An Answer belongs to who asked for it.
package fetch

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/net/http/httpguts"

	"robotsproxy/robots"
)

const (
	// MaxRedirects is how many redirects are followed: the five of RFC 9309 2.3.1.2.
	MaxRedirects = 5

	// MaxUserAgent is how many bytes of a User-Agent are sent. A longer one may
	// earn a 4xx, which would turn a site's rules into "no file".
	MaxUserAgent = 1 << 10

	defaultTimeout = 20 * time.Second
)

// A Request names one robots.txt and says as whom it is fetched.
type Request struct {
	Origin    robots.Origin
	UserAgent string // as sent; "" sends no User-Agent at all
	Token     string // product token that the fetch is for; "": the proxy's own
	Client    string // whose fair share the fetch counts against; "": nobody's, it is a refresh
}

// An Answer is what came of one fetch, whole or not.
type Answer struct {
	URL       string        // what answered last, after redirects
	UserAgent string        // that was sent
	Status    int           // of URL; 0: no answer
	Body      []byte        // of a 2xx: decoded, cut at robots.MaxBytes
	SHA256    string        // hex, of Body; "" without one
	Headers   *Headers      // of URL; nil: it had none of them, or they were not stored
	Redirects int           // followed
	Lost      bool          // more than MaxRedirects hops, or a redirect without a usable Location: "no file"
	MaxAge    time.Duration // Cache-Control max-age less Age; -1: none said; no-store and no-cache count as 0
	Connected bool          // the origin was reached: a connection (TLS included) stood
	Ours      bool          // Err is of our own way out, and says nothing about the origin
	Err       error         // network, protocol or decoding failure; nil with a whole answer
	Fetched   time.Time     // when the answer was complete
}

// Options make a [Client]; they are read once.
type Options struct {
	Transport http.RoundTripper // required; it must not follow redirects
	Timeout   time.Duration     // for the whole fetch, redirects and body; zero means 20 seconds
	From      string            // an e-mail address, sent as From (RFC 9110 10.1.2); "": none
	Denied    func(string) bool // says of a host, in the form of robots.Origin, that nothing may go there, redirects least of all; nil: of none
	Ours      func(error) bool  // says of an error of Transport that no origin is to blame for it; nil: none is such
}

// A Client fetches robots.txt files. The zero Client reaches nobody.
type Client struct {
	transport http.RoundTripper
	timeout   time.Duration
	from      string
	denied    func(string) bool // may be nil
	ours      func(error) bool  // may be nil
}

// New makes a Client.
func New(o Options) (*Client, error) {
	if o.Transport == nil {
		return nil, errors.New("fetch: Options.Transport is required")
	}
	if o.Timeout < 0 {
		return nil, fmt.Errorf("fetch: Options.Timeout %v is negative", o.Timeout)
	}
	if !httpguts.ValidHeaderFieldValue(o.From) {
		return nil, errors.New("fetch: Options.From cannot be sent")
	}
	if o.Timeout == 0 {
		o.Timeout = defaultTimeout
	}
	return &Client{transport: o.Transport, timeout: o.Timeout, from: o.From, denied: o.Denied, ours: o.Ours}, nil
}

// Fetch gets the robots.txt that r names. It returns when the answer is complete, has
// failed, or ctx or the timeout ends.
func (c *Client) Fetch(ctx context.Context, r Request) *Answer {
	a := &Answer{URL: r.Origin.RobotsURL(), UserAgent: sendable(r.UserAgent), MaxAge: -1}
	if err := c.follow(ctx, a); err != nil {
		a.Err = fmt.Errorf("fetch %s: %w", r.Origin.RobotsURL(), err)
	}
	a.Fetched = time.Now()
	return a
}

// follow goes from a.URL to the answer that is no redirect and fills in a.
func (c *Client) follow(ctx context.Context, a *Answer) error {
	if c.transport == nil {
		return errors.New("no transport")
	}
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	header := c.requestHeader(a.UserAgent)
	for {
		res, err := c.hop(ctx, a, header)
		if err != nil {
			return err
		}
		a.Status = res.StatusCode
		if !isRedirect(res.StatusCode) {
			return a.read(res)
		}
		drain(res.Body)
		next := target(res)
		if next == "" || a.Redirects == MaxRedirects {
			a.Lost = true
			return nil
		}
		a.Redirects++
		a.URL, a.Status = next, 0
	}
}

// hop asks a.URL. Only the first hop says whether the origin was reached: a
// redirect speaks for its origin, wherever it leads (RFC 9309 2.3.1.2).
func (c *Client) hop(ctx context.Context, a *Answer, header http.Header) (*http.Response, error) {
	var connected atomic.Bool
	first := a.Redirects == 0
	if first {
		ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
			// A kept connection may prove dead and be replaced by a new one
			// that fails: the last attempt counts.
			GetConn: func(string) { connected.Store(false) },
			GotConn: func(httptrace.GotConnInfo) { connected.Store(true) },
		})
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, a.URL, http.NoBody)
	if err != nil {
		return nil, err
	}
	if err := c.check(req.URL); err != nil {
		return nil, err
	}
	req.Header = header.Clone()
	res, err := c.transport.RoundTrip(req)
	if first {
		a.Connected = connected.Load() || err == nil
	}
	if err != nil {
		a.Ours = c.ours != nil && c.ours(err)
		return nil, err
	}
	if res.Request == nil { // a RoundTripper should set it; target resolves against it
		res.Request = req
	}
	return res, nil
}

// check says why nothing may be fetched from an address.
func (c *Client) check(u *url.URL) error {
	if c.denied == nil {
		return nil
	}
	o, err := robots.ParseOrigin(strings.ToLower(u.Scheme), u.Host)
	if err != nil {
		return err
	}
	if c.denied(o.Host) {
		return fmt.Errorf("nothing may go to %s", o.Host)
	}
	return nil
}

// read takes the final answer: its freshness, and the body of a 2xx.
func (a *Answer) read(res *http.Response) error {
	if res.StatusCode < 200 {
		_ = res.Body.Close()
		return fmt.Errorf("status %d is no answer to a GET", res.StatusCode)
	}
	a.MaxAge, a.Headers = maxAge(res.Header), headersOf(res.Header)
	if res.StatusCode > 299 {
		drain(res.Body)
		return nil
	}
	defer func() { _ = res.Body.Close() }()
	body, err := decode(res)
	if err != nil {
		return err
	}
	sum := sha256.Sum256(body)
	a.Body, a.SHA256 = body, hex.EncodeToString(sum[:])
	return nil
}

// sendable gives what may be sent of a User-Agent.
func sendable(userAgent string) string {
	userAgent = userAgent[:min(len(userAgent), MaxUserAgent)]
	if !httpguts.ValidHeaderFieldValue(userAgent) {
		return ""
	}
	return userAgent
}

func (c *Client) requestHeader(userAgent string) http.Header {
	h := http.Header{
		"User-Agent":      {userAgent}, // an empty value, unlike none, keeps net/http from naming itself
		"Accept":          {"text/plain, */*;q=0.1"},
		"Accept-Encoding": {"gzip"},
	}
	if c.from != "" {
		h["From"] = []string{c.from}
	}
	return h
}

func isRedirect(status int) bool {
	switch status {
	case http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther,
		http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
		return true
	}
	return false
}

// target gives the address a redirect leads to, or "" where it has none that
// can be asked by HTTP.
func target(res *http.Response) string {
	location := res.Header.Get("Location")
	if location == "" {
		return ""
	}
	u, err := res.Request.URL.Parse(location)
	if err != nil || u.Host == "" {
		return ""
	}
	if !strings.EqualFold(u.Scheme, "http") && !strings.EqualFold(u.Scheme, "https") {
		return ""
	}
	u.User = nil // not ours to send, nor to keep in a record
	u.Fragment, u.RawFragment = "", ""
	return u.String()
}
