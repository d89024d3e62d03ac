package policy_test

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"robotsproxy/policy"
	"robotsproxy/robots"
	"robotsproxy/robots/cache"
	"robotsproxy/robots/fetch"
)

// hostFiles are the robots.txt files of hosts, with the number of requests for each.
type hostFiles struct {
	files map[string]string

	// mu guards asked.
	mu    sync.Mutex
	asked map[string]int
}

func (t *hostFiles) Fetch(_ context.Context, r fetch.Request) *fetch.Result {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.asked[r.Origin.Host]++
	text, ok := t.files[r.Origin.Host]
	a := &fetch.Result{URL: r.Origin.RobotsURL(), Status: 404, MaxAge: -1, Connected: true, Fetched: time.Now()}
	switch {
	case text == "down":
		a.Status = 503
	case ok:
		a.Status, a.Body = 200, []byte(text)
	}
	return a
}

// TestRedirectsOfRobotsTxt: the target of a robots.txt redirect is judged by the
// robots.txt of its host, which is fetched once.
func TestRedirectsOfRobotsTxt(t *testing.T) {
	f := &hostFiles{asked: map[string]int{}, files: map[string]string{
		"b.test":    "User-agent: robotsproxy\nDisallow: /private/\n\nUser-agent: FooBot\nDisallow: /foo/\n",
		"down.test": "down",
	}}
	hosts := []policy.Host{{Match: "ours.test", Robots: policy.Ignore, Reason: "x"}}
	f.files["ours.test"] = "User-agent: *\nDisallow: /\n"
	e := engine(t, f, policy.Options{Hosts: hosts})
	for _, c := range []struct {
		name        string
		token, host string
		path        string
		disallowed  bool
		fails       bool
	}{
		{"disallowed for the proxy", "", "b.test", "/private/x?y", true, true},
		{"with dot segments", "", "b.test", "/a/../private/x", true, true},
		{"allowed for the proxy", "", "b.test", "/foo/x", false, false},
		{"disallowed for a token", "FooBot", "b.test", "/foo/x", true, true},
		{"allowed for a token", "FooBot", "b.test", "/private/x", false, false},
		{"robots.txt itself (RFC 9309 2.2.2)", "", "down.test", "/robots.txt", false, false},
		{"no file there", "", "c.test", "/x", false, false},
		{"unreachable there", "", "down.test", "/x", false, true},
		{"an entry of hosts ignores", "", "ours.test", "/x", false, false},
	} {
		r := fetch.Request{Origin: robots.Origin{Scheme: "http", Host: "a.test", Port: 80}, UserAgent: "robotsproxy/1.0", Token: c.token}
		for range 2 {
			err := e.AllowsRedirect(t.Context(), r, robots.Origin{Scheme: "http", Host: c.host, Port: 80}, c.path)
			if errors.Is(err, fetch.ErrDisallowed) != c.disallowed || (err != nil) != c.fails {
				t.Errorf("%s: %v", c.name, err)
			}
		}
	}
	for host, want := range map[string]int{"b.test": 2, "c.test": 1, "down.test": 1, "ours.test": 0} { // b.test: with two agents
		if f.asked[host] != want {
			t.Errorf("robots.txt of %s was asked for %d times, want %d", host, f.asked[host], want)
		}
	}
}

// TestRedirectsToEachOther: two origins whose files redirect to each other's pages delay
// nothing, however many there are.
func TestRedirectsToEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var e *policy.Engine
		c, err := fetch.New(fetch.Options{
			Sender: fetch.Unpaced(mirrors{}),
			Allowed: func(ctx context.Context, r fetch.Request, to robots.Origin, pathQuery string) error {
				return e.AllowsRedirect(ctx, r, to, pathQuery)
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		e = engine(t, c, policy.Options{})
		began := time.Now()
		var wg sync.WaitGroup
		for _, host := range []string{"a.test", "b.test"} {
			wg.Go(func() {
				d := e.Decide(t.Context(), policy.Request{Client: "x", Method: "GET", Target: robots.Target{Origin: robots.Origin{Scheme: "http", Host: host, Port: 80}, PathQuery: "/page"}})
				if d.Verdict != policy.Refuse || d.Ruling.Meaning != cache.Unreachable {
					t.Errorf("%s: %+v", host, d)
				}
			})
		}
		wg.Wait()
		if took := time.Since(began); took != 0 {
			t.Errorf("it took %v", took)
		}
	})
}

// mirrors are two hosts whose robots.txt is redirected to a page of the other.
type mirrors struct{}

func (mirrors) RoundTrip(r *http.Request) (*http.Response, error) {
	other := map[string]string{"a.test": "b.test", "b.test": "a.test"}[r.URL.Host]
	return &http.Response{StatusCode: 302, Header: http.Header{"Location": {"http://" + other + "/page"}}, Body: http.NoBody, Request: r}, nil
}
