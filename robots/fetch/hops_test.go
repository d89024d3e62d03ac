package fetch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"robotsproxy/robots"
)

// web is a Sender of sites: a URL redirects to another or, if it has none, leads to a file.
type web struct {
	leads map[string]string
	wait  time.Duration // for the slot of each hop
	takes time.Duration // to answer
	err   error         // of each GET; nil: none
	hops  []Hop

	unsent string // a host that has no slot; "": all have
}

func (w *web) Send(r *http.Request, h Hop) (*http.Response, error) {
	w.hops = append(w.hops, h)
	if h.Origin.Host == w.unsent {
		return nil, ErrUnsent
	}
	if err := h.Wait(func() error { return sleep(r.Context(), w.wait) }); err != nil {
		return nil, err
	}
	if err := sleep(r.Context(), w.takes); err != nil {
		return nil, err
	}
	if w.err != nil {
		return nil, w.err
	}
	res := &http.Response{StatusCode: 200, Header: http.Header{}, Body: http.NoBody, Request: r}
	if to := w.leads[r.URL.String()]; to != "" {
		res.StatusCode = 302
		res.Header.Set("Location", to)
	}
	return res, nil
}

// sleep waits as a Sender does.
func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

var (
	originA  = robots.Origin{Scheme: "http", Host: "a.test", Port: 80}
	originB  = robots.Origin{Scheme: "http", Host: "b.test", Port: 80}
	errNoB   = errors.New("b.test does not answer")
	crossing = map[string]string{
		"http://a.test/robots.txt": "/real.txt",
		"http://a.test/real.txt":   "http://b.test/private/x?y",
	}
)

// crossings are redirects to another origin, and what is recorded of them.
var crossings = map[string]struct {
	says   error // of Options.Allowed
	direct bool
	hops   []string
	barred bool
	fails  error
}{
	"allowed":    {hops: []string{"http://a.test/robots.txt", "http://a.test/real.txt", "http://b.test/private/x?y"}},
	"disallowed": {says: ErrDisallowed, barred: true, fails: ErrDisallowed, hops: []string{"http://a.test/robots.txt", "http://a.test/real.txt"}},
	"not known":  {says: errNoB, fails: errNoB, hops: []string{"http://a.test/robots.txt", "http://a.test/real.txt"}},
	"direct":     {direct: true, fails: errAny, hops: []string{"http://a.test/robots.txt", "http://a.test/real.txt"}},
}

// TestRedirectToAnotherOrigin: a redirect is followed only if it is permitted, and all requests
// are recorded.
func TestRedirectToAnotherOrigin(t *testing.T) {
	for name, tc := range crossings {
		t.Run(name, func(t *testing.T) {
			var told []string
			w := &web{leads: crossing}
			c, err := New(Options{
				Sender: w,
				Allowed: func(_ context.Context, r Request, to robots.Origin, pathQuery string) error {
					if to != originB || pathQuery != "/private/x?y" || r.Token != "FooBot" {
						t.Errorf("asked for %v %s as %q", to, pathQuery, r.Token)
					}
					return tc.says
				},
				Record: func(r Report) error {
					told = r.Hops
					if r.Result.Fetched.IsZero() || r.Began.After(r.Result.Fetched) {
						t.Error("the fetch is recorded before it is over")
					}
					return nil
				},
			})
			if err != nil {
				t.Fatal(err)
			}
			a := c.Fetch(t.Context(), Request{Origin: originA, UserAgent: "FooBot/1", Token: "FooBot", Client: "lab", Direct: tc.direct})
			if a.RedirectDisallowed != tc.barred || (a.Err != nil) != (tc.fails != nil) || tc.fails != errAny && !errors.Is(a.Err, tc.fails) {
				t.Errorf("%+v", a)
			}
			if !slices.Equal(told, tc.hops) {
				t.Errorf("recorded %q, want %q", told, tc.hops)
			}
			status := 302 // of the last address that was asked
			if tc.fails == nil {
				status = 200
			}
			if a.URL != tc.hops[len(tc.hops)-1] || a.Status != status || a.Redirects != len(tc.hops)-1 || a.UserAgent != "FooBot/1" {
				t.Errorf("answered by %s with %d after %d redirects, asked as %q", a.URL, a.Status, a.Redirects, a.UserAgent)
			}
			if tc.barred && !strings.Contains(fmt.Sprint(a.Err), "http://b.test/private/x?y") {
				t.Errorf("the error does not name where it leads: %v", a.Err)
			}
			for _, h := range w.hops {
				if h.SameOrigin != (h.Origin == originA) || h.Client != "lab" {
					t.Errorf("sent with %+v", h)
				}
			}
		})
	}
}

var errAny = errors.New("any error")

// TestRedirectToALongURL: a redirect to a URL over MaxURL cannot be followed.
func TestRedirectToALongURL(t *testing.T) {
	for _, most := range []int{0, 1 << 10} {
		long := func(size int) string {
			return "http://b.test/?" + strings.Repeat("q", size-len("http://b.test/?"))
		}
		c, err := New(Options{MaxURL: most, Sender: &web{leads: map[string]string{
			"http://a.test/robots.txt": long(cmp.Or(most, 8<<10)),
			"http://b.test/robots.txt": long(cmp.Or(most, 8<<10) + 1),
		}}})
		if err != nil {
			t.Fatal(err)
		}
		if a := c.Fetch(t.Context(), Request{Origin: originA}); a.DeadRedirect || a.Status != 200 || a.Redirects != 1 {
			t.Errorf("MaxURL %d: of just that length: %d redirects, status %d, %v", most, a.Redirects, a.Status, a.Err)
		}
		if a := c.Fetch(t.Context(), Request{Origin: originB}); !a.DeadRedirect || a.Redirects != 0 || a.Err == nil {
			t.Errorf("MaxURL %d: a longer one: %d redirects, status %d, %v", most, a.Redirects, a.Status, a.Err)
		}
	}
}

// TestWaitsDoNotCount: the wait for the slot of a GET does not count against the timeout.
func TestWaitsDoNotCount(t *testing.T) {
	for name, tc := range map[string]struct {
		takes time.Duration
		late  bool
	}{"in time": {900 * time.Millisecond, false}, "too slow": {1100 * time.Millisecond, true}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := &web{leads: crossing, wait: time.Minute, takes: tc.takes}
				c, err := New(Options{Sender: w, Timeout: 3 * time.Second})
				if err != nil {
					t.Fatal(err)
				}
				if a := c.Fetch(t.Context(), Request{Origin: originA}); errors.Is(a.Err, context.DeadlineExceeded) != tc.late {
					t.Errorf("%+v", a)
				}
			})
		})
	}
}

// TestUnsentIsNotRecorded: a GET without a slot is not sent, and not recorded.
func TestUnsentIsNotRecorded(t *testing.T) {
	w := &web{err: ErrUnsent}
	c, err := New(Options{Sender: w, Record: func(Report) error {
		t.Error("recorded")
		return nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	if a := c.Fetch(t.Context(), Request{Origin: originA, UserAgent: "FooBot"}); !errors.Is(a.Err, ErrUnsent) || a.Connected || a.UserAgent != "" {
		t.Errorf("%+v", a)
	}
}

// TestUnsentRedirect: the Result is about the last URL that was requested.
func TestUnsentRedirect(t *testing.T) {
	w := &web{leads: crossing, unsent: "b.test"}
	c, err := New(Options{Sender: w})
	if err != nil {
		t.Fatal(err)
	}
	a := c.Fetch(t.Context(), Request{Origin: originA, UserAgent: "FooBot"})
	if !errors.Is(a.Err, ErrUnsent) || a.URL != "http://a.test/real.txt" || a.Status != 302 || a.Redirects != 1 || a.UserAgent != "FooBot" {
		t.Errorf("%+v", a)
	}
}

// TestUserAgentOfNoConnection: without a connection no User-Agent was sent.
func TestUserAgentOfNoConnection(t *testing.T) {
	w := &web{err: errNoB}
	c, err := New(Options{Sender: w, Record: func(r Report) error {
		if len(r.Hops) != 1 {
			t.Errorf("recorded %q", r.Hops)
		}
		return nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	if a := c.Fetch(t.Context(), Request{Origin: originA, UserAgent: "FooBot"}); a.Connected || a.UserAgent != "" || a.URL != "http://a.test/robots.txt" {
		t.Errorf("%+v", a)
	}
}

// TestUnrecordedFetchFails: a fetch that cannot be recorded fails.
func TestUnrecordedFetchFails(t *testing.T) {
	full := errors.New("disk full")
	c, err := New(Options{Sender: Unpaced(tripper(func(r *http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: 200, Body: http.NoBody, Request: r}, nil
	})), Record: func(Report) error { return full }})
	if err != nil {
		t.Fatal(err)
	}
	if a := c.Fetch(t.Context(), Request{Origin: originA}); !errors.Is(a.Err, full) || !a.OwnFailure || a.Body != nil || !strings.Contains(a.Err.Error(), "a.test") {
		t.Errorf("%+v", a)
	}
}
