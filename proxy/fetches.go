package proxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"robotsproxy/policy"
	"robotsproxy/policy/audit"
	"robotsproxy/policy/pace"
	"robotsproxy/proxy/archive"
	"robotsproxy/proxy/archive/warc"
	"robotsproxy/proxy/egress"
	"robotsproxy/proxy/signature"
	"robotsproxy/robots"
	"robotsproxy/robots/fetch"
)

// Fetches sends the GETs of robots.txt fetches. Each GET takes a slot of its host, in the
// turn of the client that caused it. The pace, the back-off, the concurrency limit and the
// entries of hosts apply to it as to a request. It counts against the budget of its host, but
// is also sent if that is used up. A fetch of the host's own file goes before
// its client's other requests and shares its slot with the first request after it. A GET
// that was redirected to another host waits in that host's queue, as a request of its
// client.
//
// Fetches is a [fetch.Sender] for any number of goroutines. Rules must be complete when the
// first fetch begins and must not change.
type Fetches struct {
	Pacer *pace.Pacer

	// Archive gets what is fetched; nil: nothing is archived.
	Archive *archive.Archive

	// Ready is as in Options; nil: nothing is recorded.
	Ready func() error

	// Rules need only Engine, Egress, Signers, Monitor, BackOff, PerAddress and NoVia.
	Rules *Rules
}

// FetchFailedHere reports whether an error of a fetch is not the origin's fault: the
// proxy itself failed, could not sign the GET, record it or archive the response, nothing may be sent to a host now, or a fetch of the
// host's own file got no slot.
func FetchFailedHere(err error) bool {
	return egress.LocalError(err) || errors.Is(err, signature.ErrSign) || isUnrecordable(err) || errors.Is(err, policy.ErrHeld) ||
		errors.Is(err, pace.ErrTooBusy) || errors.Is(err, pace.ErrClosed)
}

// isUnrecordable reports whether an error is that of an audit or an archive that cannot be written.
func isUnrecordable(err error) bool {
	return errors.Is(err, audit.ErrUnwritable) || errors.Is(err, archive.ErrUnwritable)
}

// A fetchHop is a GET of a fetch.
type fetchHop struct {
	fetch.Hop

	// target has the path /robots.txt if the GET is at the origin of its file, also if the file has another one.
	target robots.Target
}

// ready returns why a GET is not even queued: it could not be recorded, or its host is paused.
func (f *Fetches) ready(hop fetchHop) error {
	if f.Ready != nil {
		if err := f.Ready(); err != nil {
			return err
		}
	}
	return heldFor(f.Rules.Engine.Paused(&policy.Request{Target: hop.target}), hop)
}

// check returns why a GET must not be sent now: it could not be recorded, or nothing may be sent to its host.
func (f *Fetches) check(hop fetchHop) error {
	if err := f.ready(hop); err != nil || f.Rules.Monitor {
		return err
	}
	return heldFor(f.Rules.Engine.MayFetch(hop.target), hop)
}

// heldFor returns the error of a GET to whose host nothing may be sent now. That of another host than the file's own does not say
// that the file's host is held back.
func heldFor(err error, hop fetchHop) error {
	if hop.SameOrigin || !as[*policy.HoldError](err) {
		return err
	}
	return fmt.Errorf("%s: %w", hop.Origin.Host, policy.ErrHeld)
}

// Send sends a GET when it has its slot. The Via field of the GET names the proxy, so that
// the proxy detects a GET that returns to it.
func (f *Fetches) Send(r *http.Request, of fetch.Hop) (*http.Response, error) {
	hop := fetchHop{of, robots.Target{Origin: of.Origin, PathQuery: "/robots.txt"}}
	if !of.SameOrigin {
		hop.target.PathQuery = robots.PathQueryOf(r.URL)
	}
	if !f.Rules.NoVia {
		r.Header.Set("Via", "1.1 "+f.Rules.Egress.Pseudonym())
	}
	if err := f.ready(hop); err != nil {
		return nil, fmt.Errorf("%w: %w", fetch.ErrUnsent, err)
	}
	out := f.Rules.Egress.Through(f.Rules.Engine.ParentFor(hop.target))
	if f.Rules.Monitor {
		return f.roundTrip(r, hop, &sending{out: out, sender: &fetchSender{fetches: f, hop: hop}})
	}
	var resp *http.Response
	err := tryAddresses(func() (err error) {
		resp, err = f.send(out, r, hop)
		return err
	})
	return resp, err
}

func (f *Fetches) send(out *egress.Client, r *http.Request, hop fetchHop) (*http.Response, error) {
	slot, at, err := f.slot(r.Context(), out, hop)
	if err != nil {
		return nil, err
	}
	// The wait for the slot may be long, and such a host is not connected to.
	if err := f.check(hop); err != nil {
		slot.Release()
		return nil, fmt.Errorf("%w: %w", fetch.ErrUnsent, err)
	}
	sender := &fetchSender{fetches: f, hop: hop}
	s := &sending{out: out, slot: slot, addr: at, sender: sender}
	resp, err := f.roundTrip(r, hop, s)
	var ticket policy.Ticket
	if s.wasSent {
		ticket = f.Rules.Engine.CountFetch(hop.target)
	}
	if err != nil {
		if s.state == connecting {
			countContact(slot, err)
		}
		slot.Release()
		switch {
		case sender.refused == nil:
			return nil, err
		// An earlier try has sent it.
		case s.wasSent:
			return nil, noSlot(err, hop)
		}
		return nil, unsent(err, hop)
	}
	if hop.SameOrigin {
		f.Rules.Engine.FetchAnswered(hop.Origin, resp.StatusCode)
	}
	if after := resp.Header.Get("Retry-After"); f.Rules.BackOff && after != "" &&
		(resp.StatusCode == http.StatusTooManyRequests || resp.StatusCode == http.StatusServiceUnavailable) {
		// Without Retry-After there is no back-off, because the retries of robots.txt are slow enough.
		slot.BackOff(parseRetryAfter(after, time.Now()), fetchName(r.URL))
	}
	resp.Body = &fetchBody{ReadCloser: resp.Body, slot: slot, ticket: ticket}
	return resp, nil
}

// roundTrip sends a GET, and signs it if that is configured for the client that caused it.
func (f *Fetches) roundTrip(r *http.Request, hop fetchHop, s *sending) (*http.Response, error) {
	signer, _ := f.Rules.Signers.choose(hop.Client, r.URL.Scheme, r.Header)
	capture := f.beginCapture(s.out, hop)
	resp, err := s.roundTrip(r, signer)
	hop.SetConnected(s.state > connecting)
	if err == nil {
		resp.Body = captureFetch(capture, resp, hop, s.conn)
	} else {
		capture.Discard()
	}
	switch {
	case errors.Is(err, signature.ErrSign), (isUnrecordable(err) || errors.Is(err, policy.ErrHeld)) && !s.wasSent:
		return nil, fmt.Errorf("%w: %w", fetch.ErrUnsent, err)
	case signer != nil && s.wasSent:
		hop.SetSigned(signer.KeyID())
	}
	return resp, err
}

// maxFetchName is the length of a robots.txt URL whose host is as long as a host can be, in bytes.
const maxFetchName = len("https://:65535/robots.txt") + 253

// fetchName returns the name of a GET as the cause of a back-off: its URL, because a fetch has no ID. Redirects can
// make the URL long and add a query.
func fetchName(u *url.URL) string {
	name := u.Scheme + "://" + u.Host + u.EscapedPath()
	return strings.Clone(name[:min(len(name), maxFetchName)])
}

// slot waits for the slot of a GET that out sends. at is the address of the GET, if it is known.
func (f *Fetches) slot(ctx context.Context, out *egress.Client, hop fetchHop) (slot *pace.Slot, at netip.Addr, err error) {
	limits, err := f.Rules.Engine.FetchLimits(hop.target)
	if err != nil {
		return nil, at, fmt.Errorf("%w: %w", fetch.ErrUnsent, heldFor(err, hop))
	}
	limits.First, limits.Shared, limits.Redirected = hop.SameOrigin, hop.SameOrigin && hop.Client != "", !hop.SameOrigin
	if at, err = f.Rules.chooseAddress(ctx, out, hop.Origin, &limits); err != nil {
		return nil, at, err
	}
	err = hop.Wait(func() error {
		slot, err = f.Pacer.Wait(ctx, hop.Client, limits)
		return err
	})
	if err != nil {
		return nil, at, unsent(err, hop)
	}
	return slot, at, nil
}

// unsent returns the error of a GET that got no slot and was not sent.
func unsent(err error, hop fetchHop) error {
	return fmt.Errorf("%w: %w", fetch.ErrUnsent, noSlot(err, hop))
}

// noSlot returns the error of a GET that got no slot. At another host than the file's
// own, the error does not wrap pace.ErrTooBusy, so that the file counts as unreachable.
func noSlot(err error, hop fetchHop) error {
	if hop.SameOrigin || !errors.Is(err, pace.ErrTooBusy) {
		return err
	}
	return fmt.Errorf("no slot at %s: %v", hop.Origin.Host, err)
}

// A fetchSender is the [sender] of a GET.
type fetchSender struct {
	fetches *Fetches
	hop     fetchHop

	// refused is why the slot gave no permit; nil: it gave one, or was not asked.
	refused error
}

func (s *fetchSender) await(ctx context.Context, slot *pace.Slot) error {
	s.refused = s.hop.Wait(func() error { return slot.Ready(ctx) })
	return s.refused
}

func (s *fetchSender) check() error { return s.fetches.check(s.hop) }

// sent does nothing: a fetch has a time limit, and leaves a line when it ends.
func (*fetchSender) sent() {}

// passInterim does nothing: a fetch does not use 1xx responses.
func (*fetchSender) passInterim(*http.Response) {}

// A fetchBody is the body of a response. Closing it releases the slot, and counts the bytes that were read.
type fetchBody struct {
	io.ReadCloser
	slot   *pace.Slot
	ticket policy.Ticket

	// uncounted is how many bytes were read and not counted.
	uncounted int64
}

func (b *fetchBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.uncounted += int64(n)
	return n, err
}

// Close closes the body, counts its bytes and releases the slot.
func (b *fetchBody) Close() error {
	b.ticket.AddBytes(b.uncounted)
	b.uncounted = 0
	defer b.slot.Release()
	return b.ReadCloser.Close()
}

// beginCapture begins to archive a GET, if there is an archive.
func (f *Fetches) beginCapture(out *egress.Client, hop fetchHop) *archive.Exchange {
	if f.Archive == nil {
		return nil
	}
	return f.Archive.Begin(archive.Source{Client: policy.ShareKey(hop.Client), Direct: out.Direct(hop.Origin)})
}

// captureFetch returns the body of a response, which is archived when it was read.
func captureFetch(x *archive.Exchange, resp *http.Response, hop fetchHop, from egress.Info) io.ReadCloser {
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
	// After an error the archive refuses the requests that follow.
	c.capture.End(c.about)
	return c.ReadCloser.Close()
}
