package proxy_test

import (
	"net/http/httptest"
	"slices"
	"strconv"
	"testing"
	"time"

	"robotsproxy/policy"
	"robotsproxy/policy/pace"
	"robotsproxy/proxy"
	"robotsproxy/robots"
	"robotsproxy/robots/testkit"
	"robotsproxy/robots/testkit/testca"
)

// TestExplainMatchesTheRequest compares the explanation with the record. Explain fetches only robots.txt.
func TestExplainMatchesTheRequest(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, address string // "": the site
		path, agent   string
		change        func(*proxy.Options)
		policyOptions func(*policy.Options)
		want          policy.Reason
	}{
		{name: "allowed", path: "/page", want: policy.ReasonNoRule},
		{name: "disallowed", path: "/private/x?y", want: policy.ReasonRule},
		{name: "of a group", path: "/foo", agent: "FooBot/2.0", want: policy.ReasonRule},
		{name: "robots.txt", path: "/robots.txt", want: policy.ReasonRobotsTxt},
		{name: "a User-Agent of ours", path: "/foo", change: func(o *proxy.Options) { o.UserAgent = "FooBot/1.0" }, want: policy.ReasonRule},
		{name: "a From of ours", path: "/page", agent: "Barbot/1", change: func(o *proxy.Options) { o.From = "bot@foo.example" },
			policyOptions: func(o *policy.Options) { o.Require = policy.RequireContact }, want: policy.ReasonNoRule},
		{name: "a denied host", path: "/page", policyOptions: entries(policy.Host{Match: "127.0.0.1", Robots: policy.Deny, Reason: closed}), want: policy.ReasonDenied},
		{name: "a forbidden port", address: "http://127.0.0.1:22", path: "/page", want: policy.ReasonPort},
		{name: "a forbidden address", address: "http://10.0.0.1:8000", path: "/page", want: policy.ReasonAddress},
		{name: "an origin that is not there", address: "http://" + testkit.DeadEnd(t, "127.0.0.1"), path: "/page", want: policy.ReasonOrigin},
	} {
		t.Run(c.name, func(t *testing.T) {
			origin := newSite(rules, hello)
			origin.Start()
			t.Cleanup(origin.Close)
			r := start(t, setup{change: c.change, policyOptions: c.policyOptions})
			if c.address == "" {
				c.address = origin.URL
			}
			at, _ := robots.ParseOrigin("http", c.address[len("http://"):])
			d, _ := r.handler.Explain(t.Context(), policy.Request{Client: "127.0.0.1", Method: "GET", Target: robots.Target{Origin: at, PathQuery: c.path}, UserAgent: c.agent})
			if seen := origin.paths(); len(seen) > 1 || len(seen) == 1 && !slices.Equal(seen, []string{"/robots.txt"}) || len(r.records.all) > 0 {
				t.Errorf("sent: %v, recorded: %v", seen, r.records.all)
			}
			req := httptest.NewRequest("GET", c.address+c.path, nil)
			req.RequestURI = ""
			req.Header.Set("User-Agent", c.agent)
			resp, err := r.client(false).Do(req)
			testkit.Must(t, err)
			resp.Body.Close()
			got := r.records.last(t, 1).Decision
			if d.Reason != c.want || d.Verdict != got.Verdict || d.Reason != got.Reason || d.Rule != got.Rule || d.Line != got.Line ||
				d.Group != got.Group || d.Token != got.Token || d.Entry != got.Entry {
				t.Errorf("predicted %+v\ngot       %+v", d, got)
			}
		})
	}
}

// A passed-through tunnel is judged by its host.
func TestExplainPassThroughHost(t *testing.T) {
	t.Parallel()
	whole := newSite("User-agent: *\nDisallow: /\n", hello)
	part := newSite(rules, hello)
	testca.StartTLS(t, whole.Server)
	testca.StartTLS(t, part.Server)
	t.Cleanup(whole.Close)
	t.Cleanup(part.Close)
	r := start(t, setup{origins: []*httptest.Server{whole.Server, part.Server}, change: func(o *proxy.Options) { o.PassThrough = func(string) bool { return true } }})
	for s, want := range map[*site]policy.Verdict{whole: policy.Refuse, part: policy.Allow} {
		port, _ := strconv.ParseUint(s.Listener.Addr().String()[len("127.0.0.1:"):], 10, 16)
		q := policy.Request{Method: "GET", Target: robots.Target{Origin: robots.Origin{Scheme: "https", Host: "127.0.0.1", Port: uint16(port)}, PathQuery: "/private"}}
		if d, _ := r.handler.Explain(t.Context(), q); d.Verdict != want || d.Reason != policy.ReasonTunnel {
			t.Errorf("%+v", d)
		}
	}
}

// An invalid FTP path is a malformed request, whatever robots.txt says.
func TestExplainAnFTPPath(t *testing.T) {
	t.Parallel()
	r := start(t, setup{})
	q := policy.Request{Method: "GET", Target: robots.Target{Origin: robots.Origin{Scheme: "ftp", Host: "127.0.0.1", Port: 2121}, PathQuery: "/%2Fetc/passwd"}}
	if d, _ := r.handler.Explain(t.Context(), q); d.Verdict != policy.Refuse || d.Reason != policy.ReasonMalformed || d.Err == nil {
		t.Errorf("%+v", d)
	}
}

// TestExplainPerAddress checks that Explain predicts the wait for the address and reports a failed lookup.
func TestExplainPerAddress(t *testing.T) {
	t.Parallel()
	route := routes[0]
	s := route.twoAddresses(t, hello)
	r := start(t, s.setup(route, pace.Limits{}))
	explain := func(host, path string) policy.Decision {
		o, err := robots.ParseOrigin("http", s.hostport(host))
		testkit.Must(t, err)
		d, _ := r.handler.Explain(t.Context(), policy.Request{Client: "127.0.0.1", Method: "GET", Target: robots.Target{Origin: o, PathQuery: path}, UserAgent: "FooBot/1"})
		return d
	}
	for host, key := range map[string]string{"one.example.com": "127.0.0.1", "two.example.com": "127.0.0.1", "far.example.com": "127.0.0.2"} {
		if d := explain(host, "/page"); d.Verdict != policy.Allow || d.Pace.Key != key {
			t.Errorf("%s: %v %s, paced by %q, want %q", host, d.Verdict, d.Reason, d.Pace.Key, key)
		}
	}
	if d := explain("one.example.com", "/robots.txt"); d.Verdict != policy.Allow || d.Pace.Key != "" {
		t.Errorf("robots.txt waits for no slot: %v, paced by %q", d.Verdict, d.Pace.Key)
	}
	s.names.Close()
	if d := explain("one.example.com", "/page"); d.Verdict != policy.Allow || d.Err == nil { // as its record would say
		t.Errorf("without an address: %v %s %v", d.Verdict, d.Reason, d.Err)
	}
}

// In monitor mode no request waits.
func TestExplainInMonitorMode(t *testing.T) {
	t.Parallel()
	origin := newSite(rules, hello)
	origin.Start()
	t.Cleanup(origin.Close)
	r := start(t, setup{change: func(o *proxy.Options) { o.Monitor = true }})
	at, err := robots.ParseOrigin("http", origin.Listener.Addr().String())
	testkit.Must(t, err)
	d, _ := r.handler.Explain(t.Context(), policy.Request{Client: "127.0.0.1", Method: "GET", Target: robots.Target{Origin: at, PathQuery: "/page"}, UserAgent: "FooBot/1"})
	if d.Verdict != policy.Allow || d.Pace.Key != "" {
		t.Errorf("%+v", d)
	}
}

// TestExplainAdmission checks that Explain takes the admission of a request, and uses up nothing of it.
func TestExplainAdmission(t *testing.T) {
	t.Parallel()
	testkit.AwayFromMidnight()
	slow := entries(policy.Host{Match: "127.0.0.1", Pace: pace.Limits{PerSecond: 1e-3, Burst: 1, MaxWait: time.Millisecond}})
	for _, c := range []struct {
		name          string
		member        policy.Client
		monitor       bool
		policyOptions func(*policy.Options)
		client        string // that Explain is asked about
		before, after policy.Reason
	}{
		{name: "quota", member: policy.Client{Networks: here, Quota: policy.Quota{Requests: 1}}, client: "lab-a", before: policy.ReasonNoRule, after: policy.ReasonQuota},
		{name: "quota, by address", member: policy.Client{Networks: here, Quota: policy.Quota{Requests: 1}}, client: "127.0.0.1", before: policy.ReasonNoRule, after: policy.ReasonQuota},
		{name: "quota, monitor mode", member: policy.Client{Networks: here, Quota: policy.Quota{Requests: 1}}, monitor: true, client: "lab-a", before: policy.ReasonNoRule, after: policy.ReasonNoRule},
		{name: "pace of the host", member: policy.Client{Networks: here}, policyOptions: slow, client: "lab-a", before: policy.ReasonNoRule, after: policy.ReasonPace},
		{name: "pace of the client", member: policy.Client{Networks: here, Pace: pace.Rate{PerSecond: 1e-3, Burst: 1}}, client: "lab-a", before: policy.ReasonNoRule, after: policy.ReasonPace},
		{name: "not admitted", member: policy.Client{Networks: here}, client: "192.0.2.1", before: policy.ReasonAuth, after: policy.ReasonAuth},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			origin := serve(t, false, rules, hello)
			c.member.Name = "lab-a"
			r := start(t, setup{clients: []policy.Client{c.member}, policyOptions: c.policyOptions, change: func(o *proxy.Options) { o.Monitor = c.monitor }})
			at, err := robots.ParseOrigin("http", origin.host())
			testkit.Must(t, err)
			explain := func(want policy.Reason) {
				t.Helper()
				for range 2 {
					d, _ := r.handler.Explain(t.Context(), policy.Request{Client: c.client, Method: "GET", Target: robots.Target{Origin: at, PathQuery: "/page"}})
					if allowed := want == policy.ReasonNoRule; d.Reason != want || allowed != (d.Verdict == policy.Allow) || !allowed && d.Err == nil {
						t.Errorf("%v %s %v, want %s", d.Verdict, d.Reason, d.Err, want)
					}
				}
			}
			explain(c.before)
			if resp, _, err := get(r.client(false), origin.URL+"/page"); err != nil || resp.StatusCode != 200 {
				t.Fatalf("%v %v", resp, err)
			}
			explain(c.after)
			if resp, _, err := get(r.client(false), origin.URL+"/page"); err != nil || (resp.StatusCode == 429) != (policy.OutcomeOf(policy.Refuse, c.after) == policy.Deferred) {
				t.Errorf("the request: %v %v", resp, err)
			}
		})
	}
}
