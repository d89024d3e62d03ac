// Package fetch gets the robots.txt of one origin: one GET, its redirects and
// its limits, and gives back the raw [Answer].
//
// It does not judge. What a status or a failure means, how long an answer is
// kept and when it is asked for again is the business of robots/cache; what
// the text says is that of robots. It opens no connection of its own: its
// [Sender] does, and also paces each GET. A redirect to another origin is
// followed only if [Options].Allowed permits it.
//
// It fails into the Answer: [Client.Fetch] never gives nil, and an Answer with
// Err set has no Body. One Client may be shared by any number of goroutines.
// An Answer belongs to who asked for it.
package fetch

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptrace"
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

	defaultMaxURL  = 8 << 10
	defaultTimeout = 20 * time.Second
)

// A Request names one robots.txt, and the User-Agent to fetch it with.
type Request struct {
	Origin    robots.Origin
	UserAgent string // to be sent; "": no User-Agent is sent
	Token     string // the product token that the fetch is for; "": none, it is the proxy's own
	Client    string // the client whose fair share the fetch counts against; "": none, it is a refresh
	Direct    bool   // no redirect to another origin is followed, because the file is fetched to judge a redirect
}

// ErrDisallowed is the error of Options.Allowed for a redirect to an address that the
// robots.txt there disallows.
var ErrDisallowed = errors.New("disallowed by the robots.txt there")

// ErrUnsent is in the chain of a Sender's error if the GET has not gone out.
var ErrUnsent = errors.New("not sent")

// An Answer is what came of one fetch, whole or not.
type Result struct {
	URL                string        // what was requested last, after redirects; the file's own if nothing was
	UserAgent          string        // as it was sent; "": no origin was told one
	Status             int           // of URL; 0: no answer
	Body               []byte        // of a 2xx: decoded, cut at robots.MaxBytes
	SHA256             string        // hex, of Body; "" without one
	Headers            *Headers      // of URL; nil: it had none of them, or they were not stored
	Redirects          int           // followed
	BadRedirect        bool          // more than MaxRedirects hops, or a redirect without a usable Location, or to a URL that is too long: "no file"
	RedirectDisallowed bool          // Err is that a redirect leads to an address that the robots.txt there disallows; it was not requested
	MaxAge             time.Duration // Cache-Control max-age less Age; -1: none said; no-store and no-cache count as 0
	Connected          bool          // the origin was reached: a connection (TLS included) stood
	OwnFailure         bool          // Err is of our own way out, and says nothing about the origin
	Err                error         // network, protocol or decoding failure, or a redirect that may not be followed; nil with a whole answer
	Fetched            time.Time     // when the answer was complete
}

// Options make a [Client]; they are read once.
type Options struct {
	Sender       Sender            // required
	Timeout      time.Duration     // for the whole fetch, redirects and body, without the waits in Hop.Wait; zero means 20 seconds
	From         string            // an e-mail address, sent as From (RFC 9110 10.1.2); "": none
	MaxURL       int               // the longest URL that a redirect is followed to, in bytes; zero means 8 KiB
	Denied       func(string) bool // says of a host, in the form of robots.Origin, that nothing may go there, redirects least of all; nil: of none
	IsOwnFailure func(error) bool  // says of an error of Sender that no origin is to blame for it; nil: none is such

	// Allowed returns an error if a redirect of r's file to another origin may not be
	// followed: ErrDisallowed, or another error if that is not known. A nil Allowed permits
	// every redirect.
	Allowed func(ctx context.Context, r Request, to robots.Origin, pathQuery string) error

	// Record is called for each fetch that has sent a GET, before Fetch returns. Its error
	// fails the fetch, and no origin is to blame for that. A nil Record records nothing.
	Record func(Report) error
}

// A Report is what Options.Record records of a fetch.
type Report struct {
	Began   time.Time
	Request Request
	Hops    []string // the addresses that were requested; the first is the file's
	Result  *Result  // must not be kept or changed
}

// A Sender sends the GETs of a fetch.
type Sender interface {
	// Send sends r as soon as its host permits, and follows no redirect. The context of r
	// ends when the fetch does. The caller closes the response's body.
	Send(r *http.Request, h Hop) (*http.Response, error)
}

// Unpaced gives a Sender that sends at once.
func Unpaced(rt http.RoundTripper) Sender { return unpaced{rt} }

type unpaced struct{ http.RoundTripper }

func (u unpaced) Send(r *http.Request, _ Hop) (*http.Response, error) { return u.RoundTrip(r) }

// A Hop is what a Sender has to know about one GET.
type Hop struct {
	Origin     robots.Origin // where the GET goes
	SameOrigin bool          // Origin is the one whose file is fetched; false: the file is redirected to Origin
	Client     string        // see Request
	limit      *timeLimit
}

// Wait calls wait. The time that wait takes does not count against Options.Timeout.
func (h Hop) Wait(wait func() error) error {
	h.limit.stop()
	defer h.limit.start()
	return wait()
}

// A Client fetches robots.txt files. The zero Client reaches nobody.
type Client struct{ o Options }

// New makes a Client.
func New(o Options) (*Client, error) {
	if o.Sender == nil {
		return nil, errors.New("fetch: Options.Sender is required")
	}
	if o.Timeout < 0 {
		return nil, fmt.Errorf("fetch: Options.Timeout %v is negative", o.Timeout)
	}
	if o.MaxURL < 0 {
		return nil, fmt.Errorf("fetch: Options.MaxURL %d is negative", o.MaxURL)
	}
	if !httpguts.ValidHeaderFieldValue(o.From) {
		return nil, errors.New("fetch: Options.From cannot be sent")
	}
	o.Timeout = cmp.Or(o.Timeout, defaultTimeout)
	o.MaxURL = cmp.Or(o.MaxURL, defaultMaxURL)
	return &Client{o}, nil
}

// Fetch gets the robots.txt that r names. It returns when the answer is complete, has
// failed, or ctx or the timeout ends.
func (c *Client) Fetch(ctx context.Context, r Request) *Result {
	a := &Result{URL: r.Origin.RobotsURL(), MaxAge: -1}
	began := time.Now()
	run := fetching{client: c, request: r, answer: a, next: a.URL}
	userAgent := sendable(r.UserAgent)
	if err := run.follow(ctx, userAgent); err != nil {
		a.Err = fmt.Errorf("fetch %s: %w", r.Origin.RobotsURL(), err)
	}
	if a.Connected && len(run.hops) > 0 {
		a.UserAgent = userAgent
	}
	a.Fetched = time.Now()
	if c.o.Record != nil && len(run.hops) > 0 {
		if err := c.o.Record(Report{began, r, run.hops, a}); err != nil {
			a.Body, a.SHA256, a.OwnFailure, a.Err = nil, "", true, fmt.Errorf("fetch %s: %w", r.Origin.RobotsURL(), err)
		}
	}
	return a
}

// A fetching is one fetch under way.
type fetching struct {
	client  *Client
	request Request
	answer  *Result
	next    string   // the address to request next
	hops    []string // addresses that were requested
	limit   *timeLimit
}

// follow follows redirects from the file's own address on, and fills in the answer from
// the first response that is no redirect.
func (f *fetching) follow(ctx context.Context, userAgent string) error {
	o, a := &f.client.o, f.answer
	if o.Sender == nil {
		return errors.New("no sender")
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	f.limit = newTimeLimit(o.Timeout, func() { cancel(context.DeadlineExceeded) })
	defer f.limit.stop()
	header := f.client.requestHeader(userAgent)
	for {
		res, err := f.hop(ctx, header)
		if err == nil {
			a.Status = res.StatusCode
			if !isRedirect(res.StatusCode) {
				err = a.read(res)
			}
		}
		switch {
		case err != nil && context.Cause(ctx) == context.DeadlineExceeded:
			return fmt.Errorf("no whole answer within %v: %w", o.Timeout, context.DeadlineExceeded)
		case err != nil || !isRedirect(a.Status):
			a.RedirectDisallowed = errors.Is(err, ErrDisallowed)
			return err
		}
		drain(res.Body)
		f.next = target(res)
		if f.next == "" || len(f.next) > o.MaxURL || a.Redirects == MaxRedirects {
			a.BadRedirect = true
			return nil
		}
	}
}

// hop requests the next address, if the proxy may request it. Only the first hop says
// whether the origin was reached: a redirect speaks for its origin, wherever it leads
// (RFC 9309 2.3.1.2).
func (f *fetching) hop(ctx context.Context, header http.Header) (*http.Response, error) {
	o, a := &f.client.o, f.answer
	var connected atomic.Bool
	first := len(f.hops) == 0
	if first {
		ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
			// A kept connection may prove dead and be replaced by a new one
			// that fails: the last attempt counts.
			GetConn: func(string) { connected.Store(false) },
			GotConn: func(httptrace.GotConnInfo) { connected.Store(true) },
		})
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, f.next, http.NoBody)
	if err != nil {
		return nil, err
	}
	// The transport and the pacer keep both strings, which must not hold on to a long Location.
	req.URL.Scheme, req.URL.Host = strings.Clone(req.URL.Scheme), strings.Clone(req.URL.Host)
	to, err := f.check(req)
	if err != nil {
		return nil, err
	}
	req.Header = header.Clone()
	res, err := o.Sender.Send(req, Hop{Origin: to, SameOrigin: to == f.request.Origin, Client: f.request.Client, limit: f.limit})
	if first {
		a.Connected = connected.Load() || err == nil
	}
	if !errors.Is(err, ErrUnsent) {
		f.hops = append(f.hops, f.next)
		a.URL, a.Status, a.Redirects = f.next, 0, len(f.hops)-1
	}
	if err != nil {
		a.OwnFailure = o.IsOwnFailure != nil && o.IsOwnFailure(err)
		return nil, err
	}
	if res.Request == nil { // a Sender should set it; target resolves against it
		res.Request = req
	}
	return res, nil
}

// check gives the origin that a GET goes to, or an error if it may not go there.
func (f *fetching) check(r *http.Request) (robots.Origin, error) {
	o := &f.client.o
	to, err := robots.ParseOrigin(strings.ToLower(r.URL.Scheme), r.URL.Host)
	if err != nil {
		return to, err
	}
	switch {
	case o.Denied != nil && o.Denied(to.Host):
		return to, fmt.Errorf("nothing may go to %s", to.Host)
	case to == f.request.Origin:
		return to, nil
	case f.request.Direct:
		return to, fmt.Errorf("redirected to another origin, %s", to)
	case o.Allowed == nil:
		return to, nil
	}
	return to, Hop{limit: f.limit}.Wait(func() error {
		if err := o.Allowed(r.Context(), f.request, to, r.URL.RequestURI()); err != nil {
			return fmt.Errorf("redirected to %s: %w", r.URL, err)
		}
		return nil
	})
}

// read takes the final answer: its freshness, and the body of a 2xx.
func (a *Result) read(res *http.Response) error {
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

// sendable gives what may be sent of a User-Agent: its beginning, or "" if it is invalid.
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
	if c.o.From != "" {
		h["From"] = []string{c.o.From}
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
