// Package fetch fetches the robots.txt of one origin, or another [File]: one GET with its
// redirects and limits. It returns the raw [Result].
//
// It does not interpret the result: robots/cache decides what a status or a failure means, how
// long a response is kept and when it is fetched again, and robots parses the text. The
// robots.txt of an origin does not apply to the fetch of a File from it, since the origin offers
// the File to those who fetch from it. Package fetch opens no connection itself: its [Sender]
// does, and also paces each GET. It follows a redirect to another origin only if
// [Options].Allowed permits that.
//
// A failure is part of the Result: [Client.Fetch] never returns nil, and a Result with Err has
// no Body. Any number of goroutines may share a Client. A Result belongs to the caller.
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
	// MaxRedirects is the maximum number of redirects that are followed: the five of RFC 9309
	// 2.3.1.2.
	MaxRedirects = 5

	// MaxUserAgent is how many bytes of a User-Agent are sent. A server may refuse a longer one
	// with a 4xx, which would turn a site's rules into "no file".
	MaxUserAgent = 1 << 10

	defaultMaxURL  = 8 << 10
	defaultTimeout = 20 * time.Second
)

// A File is the file that a Client fetches from each origin. The zero File is /robots.txt.
type File struct {
	// Path is the path of the file; "": /robots.txt.
	Path string

	// Accept is the value of the Accept header; "": the one for text.
	Accept string

	// Check returns why a body cannot be read, which fails the fetch. A nil Check accepts each body.
	Check func(body []byte) error
}

// url returns the URL of the file of an origin.
func (f *File) url(o robots.Origin) string {
	if f.Path == "" {
		return o.RobotsURL()
	}
	return o.String() + f.Path
}

// A Request names the origin of one file, and the User-Agent to fetch it with.
type Request struct {
	Origin robots.Origin

	// UserAgent is the value of the User-Agent header; "": none is sent.
	UserAgent string

	// Token is the product token that the fetch is for; "": it is the proxy's own fetch.
	Token string

	// Client is the client whose fair share the fetch counts against; "": it is a refresh.
	Client string

	// Direct says that no redirect to another origin is followed, because the fetch itself is made to
	// judge a redirect.
	Direct bool
}

// ErrDisallowed is the error of Options.Allowed for a redirect to a URL that the robots.txt of
// its origin disallows.
var ErrDisallowed = errors.New("disallowed by the robots.txt there")

// ErrUnsent is in the chain of a Sender's error if the GET was not sent.
var ErrUnsent = errors.New("not sent")

// A Result is the result of one fetch, complete or not.
type Result struct {
	// URL is that of the last request, after redirects, or that of the file if no request was sent.
	URL string

	// UserAgent is the User-Agent that was sent; "": none was.
	UserAgent string

	// Status is that of the response from URL; 0: there was no response.
	Status int

	// Body is that of a 2xx, decoded and cut at robots.MaxBytes.
	Body []byte

	// SHA256 is that of Body, in hex; "" without one.
	SHA256 string

	// Headers are those of the response from URL. They are nil if it had none of them, or if they were
	// not stored.
	Headers *Headers

	// Redirects is how many redirects were followed.
	Redirects int

	// TooManyRedirects says that a redirect after MaxRedirects hops was not followed.
	TooManyRedirects bool

	// DeadRedirect says that Err is why a redirect cannot be followed: it has no usable Location, or a
	// status that names none.
	DeadRedirect bool

	// RedirectDisallowed says that the robots.txt of a redirect's target disallows it, so that the
	// target was not requested.
	RedirectDisallowed bool

	// MaxAge is the max-age of Cache-Control less Age; -1: there is none. no-store and no-cache count
	// as 0.
	MaxAge time.Duration

	// Connected says that there was a connection to the origin, TLS included.
	Connected bool

	// OwnFailure says that Err is a failure of the proxy's own, and says nothing about the origin.
	OwnFailure bool

	// Err is a failure of the network, the protocol or the decoding, or a redirect that may not be
	// followed. It is nil if the response is complete.
	Err error

	// Fetched is when the fetch ended.
	Fetched time.Time
}

// Options configure a [Client]. New reads them once.
type Options struct {
	// File is what is fetched.
	File File

	// Sender is required.
	Sender Sender

	// Timeout is that of the whole fetch with redirects and body, without the waits in Hop.Wait. Zero
	// means 20 seconds.
	Timeout time.Duration

	// From is an e-mail address that is sent as From (RFC 9110 10.1.2); "": none is.
	From string

	// MaxURL is the maximum length of a redirect's target, in bytes. Zero means 8 KiB.
	MaxURL int

	// DropQuery leaves the queries of URLs out of Results and Reports.
	DropQuery bool

	// Denied reports that no request may go to a target. A nil Denied permits every target.
	Denied func(robots.Target) bool

	// IsOwnFailure reports that an error of Sender, of Allowed or of a body is a failure of the proxy's own.
	// With nil, none is.
	IsOwnFailure func(error) bool

	// Allowed returns an error if a redirect of r's file to another origin may not be followed:
	// ErrDisallowed, or another error if that is not known. A nil Allowed permits every redirect.
	Allowed func(ctx context.Context, r Request, to robots.Origin, pathQuery string) error

	// Record is called for each fetch that has sent a GET, before Fetch returns. If it returns an
	// error, the fetch fails with an OwnFailure. A nil Record records nothing.
	Record func(Report) error
}

// A Report is what Options.Record records of a fetch.
type Report struct {
	Began   time.Time
	Request Request

	// Hops are the URLs that were requested. The first one is that of the file.
	Hops []string

	// Signed is what the Sender gave to Hop.SetSigned for the last of them; "": nothing.
	Signed string

	// Result must not be kept or changed.
	Result *Result

	// Rejected is the body that File.Check rejected, which Result does not have; nil: there is none.
	Rejected []byte
}

// A Sender sends the GETs of a fetch.
type Sender interface {
	// Send sends r as soon as its host permits, and follows no redirect. The context of r ends when
	// the fetch does. The caller closes the response's body.
	Send(r *http.Request, h Hop) (*http.Response, error)
}

// Unpaced returns a Sender that sends at once.
func Unpaced(rt http.RoundTripper) Sender { return unpaced{rt} }

type unpaced struct{ http.RoundTripper }

func (u unpaced) Send(r *http.Request, h Hop) (*http.Response, error) {
	// Goroutines of a Transport set the variable.
	var connected atomic.Bool
	resp, err := u.RoundTrip(r.WithContext(httptrace.WithClientTrace(r.Context(), &httptrace.ClientTrace{
		// A Transport may replace an idle connection that proves dead by a new one that fails: the last one counts.
		GetConn: func(string) { connected.Store(false) },
		GotConn: func(httptrace.GotConnInfo) { connected.Store(true) },
	})))
	h.SetConnected(connected.Load() || err == nil)
	return resp, err
}

// A Hop is what a Sender needs to know about one GET.
type Hop struct {
	// Origin is that of the GET.
	Origin robots.Origin

	// SameOrigin says that Origin is that of the file. Otherwise the file is redirected to Origin.
	SameOrigin bool

	// Client is Request.Client.
	Client string
	limit  *timeLimit

	// signed and connected are set by the Sender.
	signed    *string
	connected *bool
}

// SetConnected notes whether there was a connection for the GET.
func (h Hop) SetConnected(is bool) { *h.connected = is }

// SetSigned notes the ID of the key that the GET was signed with.
func (h Hop) SetSigned(keyID string) { *h.signed = keyID }

// Wait calls wait. The time that wait takes does not count against Options.Timeout.
func (h Hop) Wait(wait func() error) error {
	h.limit.stop()
	defer h.limit.start()
	return wait()
}

// A Client fetches one File of many origins. Every fetch of the zero Client fails.
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

// Fetch fetches the file of the origin that r names. It returns when the response is complete, the fetch
// has failed, or ctx or the timeout ends.
func (c *Client) Fetch(ctx context.Context, r Request) *Result {
	url := c.o.File.url(r.Origin)
	a := &Result{URL: url, MaxAge: -1}
	began := time.Now()
	run := fetching{client: c, request: r, result: a, next: url}
	userAgent := sendable(r.UserAgent)
	if err := run.follow(ctx, userAgent); err != nil {
		a.Err = fmt.Errorf("fetch %s: %w", url, err)
	}
	if a.Connected && len(run.hops) > 0 {
		a.UserAgent = userAgent
	}
	a.Fetched = time.Now()
	if c.o.DropQuery {
		run.dropQueries()
	}
	if c.o.Record != nil && len(run.hops) > 0 {
		if err := c.o.Record(Report{began, r, run.hops, run.signed, a, run.rejected}); err != nil {
			a.Body, a.SHA256, a.OwnFailure, a.Err = nil, "", true, fmt.Errorf("fetch %s: %w", url, err)
		}
	}
	return a
}

// dropQueries removes the queries of redirects from what is kept of the fetch.
func (f *fetching) dropQueries() {
	a := f.result
	a.URL, _, _ = strings.Cut(a.URL, "?")
	for i, hop := range f.hops {
		f.hops[i], _, _ = strings.Cut(hop, "?")
	}
	if a.Err != nil {
		a.Err = withoutQueries{a.Err}
	}
}

// withoutQueries is an error whose text has no queries of URLs.
type withoutQueries struct{ error }

func (w withoutQueries) Error() string { return DropQueries(w.error.Error()) }
func (w withoutQueries) Unwrap() error { return w.error }

// A fetching is one fetch in progress.
type fetching struct {
	client  *Client
	request Request
	result  *Result

	// next is the URL to request next.
	next string

	// hops, signed and rejected are those of the Report.
	hops     []string
	signed   string
	rejected []byte
	limit    *timeLimit
}

// follow requests the file and follows redirects. It fills in the Result from the first response
// that is no redirect.
func (f *fetching) follow(ctx context.Context, userAgent string) error {
	o, a := &f.client.o, f.result
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
			if a.Status/100 != 3 {
				err = f.read(res)
				a.OwnFailure = f.isOwn(err)
			}
		}
		switch {
		case err != nil && context.Cause(ctx) == context.DeadlineExceeded:
			return timeoutError(o.Timeout)
		case err != nil || a.Status/100 != 3:
			a.RedirectDisallowed = errors.Is(err, ErrDisallowed)
			return err
		}
		drain(res.Body)
		if f.next, err = target(res, o.MaxURL); err != nil {
			a.DeadRedirect = true
			return fmt.Errorf("a redirect that cannot be followed: %w", err)
		}
		if a.Redirects == MaxRedirects {
			a.TooManyRedirects = true
			return nil
		}
	}
}

// hop requests the next URL, if the proxy may request it. Only the first hop sets Connected: a
// redirect counts for the origin that sends it, whatever becomes of its target (RFC 9309
// 2.3.1.2).
func (f *fetching) hop(ctx context.Context, header http.Header) (*http.Response, error) {
	o, a := &f.client.o, f.result
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, f.next, http.NoBody)
	if err != nil {
		return nil, err
	}
	// The transport and the pacer keep both strings; substrings would keep a long Location.
	req.URL.Scheme, req.URL.Host = strings.Clone(req.URL.Scheme), strings.Clone(req.URL.Host)
	to, err := f.check(req)
	if err != nil {
		a.OwnFailure = f.isOwn(err)
		return nil, err
	}
	req.Header = header.Clone()
	signed, connected := "", false
	res, err := o.Sender.Send(req, Hop{
		Origin: to, SameOrigin: to == f.request.Origin, Client: f.request.Client,
		limit: f.limit, signed: &signed, connected: &connected,
	})
	if len(f.hops) == 0 {
		a.Connected = connected || err == nil
	}
	if !errors.Is(err, ErrUnsent) {
		f.hops, f.signed = append(f.hops, f.next), signed
		a.URL, a.Status, a.Redirects = f.next, 0, len(f.hops)-1
	}
	if err != nil {
		a.OwnFailure = f.isOwn(err)
		return nil, err
	}
	// A Sender should set Request; target resolves against it.
	if res.Request == nil {
		res.Request = req
	}
	return res, nil
}

// isOwn reports whether an error is a failure of the proxy's own.
func (f *fetching) isOwn(err error) bool {
	is := f.client.o.IsOwnFailure
	return err != nil && is != nil && is(err)
}

// A timeoutError is the error of a fetch that took longer than Options.Timeout.
type timeoutError time.Duration

func (e timeoutError) Error() string {
	return fmt.Sprintf("timed out after %g s", time.Duration(e).Seconds())
}
func (e timeoutError) Timeout() bool        { return true }
func (e timeoutError) Is(target error) bool { return target == context.DeadlineExceeded }

// check returns the origin of a GET, or an error if the GET may not be sent.
func (f *fetching) check(r *http.Request) (robots.Origin, error) {
	o := &f.client.o
	to, err := robots.ParseOrigin(strings.ToLower(r.URL.Scheme), r.URL.Host)
	if err != nil {
		return to, err
	}
	switch {
	case o.Denied != nil && o.Denied(robots.Target{Origin: to, PathQuery: r.URL.RequestURI()}):
		return to, fmt.Errorf("requests to %s are not permitted", to.Host)
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

// read reads the final response: its freshness, and the body of a 2xx.
func (f *fetching) read(res *http.Response) error {
	r := f.result
	if res.StatusCode < 200 {
		_ = res.Body.Close()
		return fmt.Errorf("unexpected status %d in response to GET", res.StatusCode)
	}
	r.MaxAge, r.Headers = maxAge(res.Header), headersOf(res.Header)
	if res.StatusCode > 299 {
		drain(res.Body)
		return nil
	}
	defer func() { _ = res.Body.Close() }()
	body, err := decode(res)
	if err != nil {
		return err
	}
	if check := f.client.o.File.Check; check != nil {
		if err := check(body); err != nil {
			f.rejected = body
			return err
		}
	}
	sum := sha256.Sum256(body)
	r.Body, r.SHA256 = body, hex.EncodeToString(sum[:])
	return nil
}

// sendable returns the part of a User-Agent that may be sent: its beginning, or "" if it is
// invalid.
func sendable(userAgent string) string {
	userAgent = userAgent[:min(len(userAgent), MaxUserAgent)]
	if !httpguts.ValidHeaderFieldValue(userAgent) {
		return ""
	}
	return userAgent
}

func (c *Client) requestHeader(userAgent string) http.Header {
	h := http.Header{
		// Without a value, net/http would send its own.
		"User-Agent":      {userAgent},
		"Accept":          {cmp.Or(c.o.File.Accept, "text/plain, */*;q=0.1")},
		"Accept-Encoding": {"gzip"},
	}
	if c.o.From != "" {
		h["From"] = []string{c.o.From}
	}
	return h
}

// target returns the URL that a response with a 3xx status leads to, or an error if it leads to none
// that can be followed.
func target(res *http.Response, maxURL int) (string, error) {
	switch res.StatusCode {
	case http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther,
		http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
	default:
		return "", fmt.Errorf("status %d has no URL to follow", res.StatusCode)
	}
	location := res.Header.Get("Location")
	if location == "" {
		return "", fmt.Errorf("status %d has no Location", res.StatusCode)
	}
	u, err := res.Request.URL.Parse(location)
	switch {
	case err == nil && !strings.EqualFold(u.Scheme, "http") && !strings.EqualFold(u.Scheme, "https"):
		return "", fmt.Errorf("the Location has the scheme %.20q", u.Scheme)
	case err != nil || u.Host == "":
		return "", fmt.Errorf("the Location %.100q is no URL with a host", location)
	}
	// User information must be neither sent nor recorded.
	u.User = nil
	u.Fragment, u.RawFragment = "", ""
	if to := u.String(); len(to) <= maxURL {
		return to, nil
	}
	return "", fmt.Errorf("the Location has more than %d bytes", maxURL)
}
