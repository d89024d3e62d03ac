package policy_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"

	"golang.org/x/crypto/bcrypt"

	"robotsproxy/policy"
	"robotsproxy/policy/usage"
	"robotsproxy/robots"
	"robotsproxy/robots/cache"
	"robotsproxy/robots/fetch"
	"robotsproxy/robots/testkit"
)

// What a site says of the client's purposes refuses a request if the operator wants that, and is in the
// Decision in any case.
func TestUsage(t *testing.T) {
	const text = "User-agent: *\nContent-Signal: search=yes\nContent-Usage: train-ai=y\nContent-Usage: /blog/ train-ai=n\nContent-Usage: /blog/ train-ai=y\nDisallow: /private\n"
	train, both := usage.SetOf(usage.TrainAI), usage.SetOf(usage.TrainAI, usage.TDM)
	refuse, strict := usage.Policy{Purposes: train, Refuse: true}, usage.Policy{Purposes: both, Refuse: true, RefuseUnknown: true}
	ignored := []policy.Host{{Match: "*", IgnoreUsage: true, Reason: "contract 7"}}
	for _, c := range []struct {
		name, text, path string
		options          policy.Options
		reason           policy.Reason
		allowed          bool
		said             usage.Preference // of train-ai
	}{
		{"recorded", text, "/blog/1", policy.Options{Usage: usage.Policy{Purposes: train}}, policy.ReasonNoRule, true, usage.Disallowed},
		{"refused: lines of one path are separate statements", text, "/blog/1", policy.Options{Usage: refuse}, policy.ReasonUsage, false, usage.Disallowed},
		{"another path", text, "/", policy.Options{Usage: refuse}, policy.ReasonNoRule, true, usage.Allowed},
		{"another purpose", text, "/blog/1", policy.Options{Usage: usage.Policy{Purposes: usage.SetOf(usage.Search), Refuse: true}}, policy.ReasonNoRule, true, usage.Disallowed},
		{"the client's own purpose", text, "/blog/1", policy.Options{Usage: refuse, Clients: []policy.Client{{Name: "lab", PasswordHash: hashOf(t, "secret", bcrypt.MinCost), Purposes: usage.SetOf(usage.Search)}}}, policy.ReasonNoRule, true, usage.Disallowed},
		{"a rule decides first", text, "/private", policy.Options{Usage: refuse}, policy.ReasonRule, false, usage.Allowed},
		{"an exception", text, "/blog/1", policy.Options{Usage: refuse, Hosts: ignored}, policy.ReasonNoRule, true, usage.Disallowed},
		{"unknown is allowed", rules, "/page", policy.Options{Usage: usage.Policy{Purposes: both, Refuse: true}}, policy.ReasonNoRule, true, usage.Unknown},
		{"unknown is refused", text, "/", policy.Options{Usage: strict}, policy.ReasonUsage, false, usage.Allowed},
		{"unknown is refused where there is no file", "", "/", policy.Options{Usage: strict}, policy.ReasonUsage, false, usage.Unknown},
		{"no purpose", text, "/blog/1", policy.Options{}, policy.ReasonNoRule, true, usage.Unknown},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := file(c.text)
			if c.text == "" {
				f = answers{fetch.Result{URL: "https://site.test/robots.txt", Status: 404, MaxAge: -1, Connected: true}}
			}
			r := ask("FooBot", c.path)
			if len(c.options.Clients) > 0 {
				r.Client = "lab"
			}
			d := engine(t, f, c.options).Decide(t.Context(), r)
			if d.Reason != c.reason || (d.Verdict == policy.Allow) != c.allowed {
				t.Errorf("%v %q, want %q", d.Verdict, d.Reason, c.reason)
			}
			if said, _ := usage.Decide(usage.TrainAI, d.Statements); said != c.said {
				t.Errorf("train-ai is %s, want %s", said, c.said)
			}
			d.Release()
		})
	}
}

// A tunnel that is passed through is refused if the site disallows a purpose everywhere.
func TestUsageOfATunnel(t *testing.T) {
	o := policy.Options{Usage: usage.Policy{Purposes: usage.SetOf(usage.TrainAI), Refuse: true}}
	for text, want := range map[string]policy.Reason{
		"User-agent: *\nContent-Signal: ai-train=no\n":          policy.ReasonUsage,
		"User-agent: *\nContent-Usage: train-ai=n\n":            policy.ReasonUsage,
		"User-agent: *\nContent-Usage: /a/ train-ai=n\n":        policy.ReasonTunnel,
		"User-agent: *\nContent-Usage: train-ai=n\nDisallow: /": policy.ReasonTunnel,
	} {
		if d := engine(t, file(text), o).DecideTunnel(t.Context(), ask("FooBot", "/")); d.Reason != want {
			t.Errorf("%q: %v %q, want %q", text, d.Verdict, d.Reason, want)
		}
	}
}

// An entry that ignores robots.txt leaves tdmrep.json, and usage.on_unknown, in force for tunnels as for
// requests.
func TestUsageWithoutRobots(t *testing.T) {
	o := policy.Options{Hosts: []policy.Host{{Match: "*", Robots: policy.Ignore, Reason: "contract 7"}}}
	o.Usage = usage.Policy{Purposes: usage.SetOf(usage.TDM), Refuse: true}
	unknown := o
	unknown.Usage.RefuseUnknown = true
	for name, c := range map[string]struct {
		options policy.Options
		want    policy.Reason
	}{
		"nothing said":         {o, policy.ReasonOverride},
		"nothing said, strict": {unknown, policy.ReasonUsage},
		"reserved":             {withTDMRep(t, o, `[{"location": "/", "tdm-reservation": 1}]`), policy.ReasonUsage},
		"not reserved":         {withTDMRep(t, unknown, `[{"location": "/", "tdm-reservation": 0}]`), policy.ReasonOverride},
	} {
		e := engine(t, file(rules), c.options)
		for kind, d := range map[string]policy.Decision{"request": e.Decide(t.Context(), ask("FooBot", "/page")), "tunnel": e.DecideTunnel(t.Context(), ask("FooBot", ""))} {
			if d.Reason != c.want || (d.Verdict == policy.Allow) != (c.want == policy.ReasonOverride) {
				t.Errorf("%s: a %s: %v %q", name, kind, d.Verdict, d.Reason)
			}
		}
	}
}

// tdmrep.json is asked after robots.txt allowed the request, and its first rule that matches counts.
func TestTDMRep(t *testing.T) {
	const rules = `[{"location": "/open/", "tdm-reservation": 0}, {"location": "/*.pdf$", "tdm-reservation": 1}, {"location": "/", "tdm-reservation": 1}]`
	ok := func(text string) fetch.Result {
		return fetch.Result{Status: 200, Body: []byte(text), MaxAge: -1, Connected: true}
	}
	for _, c := range []struct {
		name, path string
		file       fetch.Result
		purpose    usage.Category
		unknown    bool // is refused
		said       usage.Preference
		reason     policy.Reason
	}{
		{"reserved", "/a.pdf", ok(rules), usage.TDM, false, usage.Disallowed, policy.ReasonUsage},
		{"reserved, to train", "/page", ok(rules), usage.TrainAI, false, usage.Disallowed, policy.ReasonUsage},
		{"not reserved: the first rule", "/open/a.pdf", ok(rules), usage.TDM, true, usage.Allowed, policy.ReasonNoRule},
		{"dot segments", "/open/../a.pdf", ok(rules), usage.TDM, false, usage.Disallowed, policy.ReasonUsage},
		{"another purpose", "/a.pdf", ok(rules), usage.Search, false, usage.Unknown, policy.ReasonNoRule},
		{"no rule", "/a", ok("[]"), usage.TDM, false, usage.Unknown, policy.ReasonNoRule},
		{"4xx: no statement", "/a", fetch.Result{Status: 404, MaxAge: -1, Connected: true}, usage.TDM, true, usage.Unknown, policy.ReasonUsage},
		{"5xx: unknown", "/a", fetch.Result{Status: 500, MaxAge: -1, Connected: true}, usage.TDM, false, usage.Unknown, policy.ReasonNoRule},
		{"5xx: unknown, which is refused", "/a", fetch.Result{Status: 500, MaxAge: -1, Connected: true}, usage.TDM, true, usage.Unknown, policy.ReasonUsage},
	} {
		t.Run(c.name, func(t *testing.T) {
			files, err := cache.New(cache.Options{Fetcher: answers{c.file}})
			if err != nil {
				t.Fatal(err)
			}
			o := policy.Options{TDMRep: files, Usage: usage.Policy{Purposes: usage.SetOf(c.purpose), Refuse: true, RefuseUnknown: c.unknown}}
			d := engine(t, file("User-agent: *\nDisallow: /x\n"), o).Decide(t.Context(), ask("FooBot", c.path))
			if said, _ := usage.Decide(c.purpose, d.Statements); said != c.said || d.Reason != c.reason {
				t.Errorf("%s, %v %q, want %s, %q", said, d.Verdict, d.Reason, c.said, c.reason)
			}
			if asked := d.TDMRep.Result != nil; asked != (c.purpose != usage.Search) {
				t.Errorf("tdmrep.json was asked for: %v", asked)
			}
		})
	}
}

// What a site says of a path counts for each form in which its origin may read the path.
func TestPreferencesOfOtherForms(t *testing.T) {
	const text = "User-agent: *\nContent-Usage: / train-ai=y\nContent-Usage: /private/ train-ai=n\n"
	none := answers{fetch.Result{Status: 404, MaxAge: -1, Connected: true}}
	o := policy.Options{Usage: usage.Policy{Purposes: usage.SetOf(usage.TrainAI), Refuse: true}}
	for path, form := range map[string]string{
		"/private/a":          "",
		"/%70rivate/a":        "",
		"/b/../private/a":     "",
		"//private/a":         "slashes-merged",
		"/private%2Fa?b":      "slashes-decoded",
		"/b%2F..%2Fprivate/a": "slashes-decoded+dots-removed",
		"/private;v=1/a":      "parameters-stripped",
	} {
		for source, d := range map[string]policy.Decision{
			"robots.txt":  engine(t, file(text), o).Decide(t.Context(), ask("FooBot", path)),
			"tdmrep.json": engine(t, none, withTDMRep(t, o, `[{"location": "/private/", "tdm-reservation": 1}, {"location": "/", "tdm-reservation": 0}]`)).Decide(t.Context(), ask("FooBot", path)),
		} {
			if said, by := usage.Decide(usage.TrainAI, d.Statements); d.Reason != policy.ReasonUsage || said != usage.Disallowed || by.Source != source || d.Form.String() != form {
				t.Errorf("%s by %s: %v %q, %s, form %q", path, source, d.Verdict, d.Reason, said, d.Form)
			}
		}
	}
	recorded := o
	recorded.Usage.Refuse = false
	if d := engine(t, file(text), recorded).Decide(t.Context(), ask("FooBot", "//private/a")); d.Verdict != policy.Allow || d.Read != "/private/a" || d.ContentUsage != "train-ai=n" {
		t.Errorf("recorded: %v, read as %q, %q", d.Verdict, d.Read, d.ContentUsage)
	}
	literal := o
	literal.Readings = policy.LiteralReadings
	if d := engine(t, file(text), literal).Decide(t.Context(), ask("FooBot", "//private/a")); d.Verdict != policy.Allow || d.Form != 0 {
		t.Errorf("literal: %v %q, form %q", d.Verdict, d.Reason, d.Form)
	}
}

// A preference applies to the same paths as a rule with its pattern, in whatever form they are sent.
func TestPreferencesApplyWhereRulesDo(t *testing.T) {
	rnd := rand.New(rand.NewPCG(28, 9309))
	some := func(pieces ...string) string {
		text := "/"
		for range rnd.IntN(6) {
			text += pieces[rnd.IntN(len(pieces))]
		}
		return text
	}
	none := answers{fetch.Result{Status: 404, MaxAge: -1, Connected: true}}
	o := policy.Options{Usage: usage.Policy{Purposes: usage.SetOf(usage.TrainAI), Refuse: true}}
	for range testkit.Rounds(3000) {
		pattern := some("a", "b", "/", "*", "%2F", ";", "%3A", ":", "$", "%61", "?")
		path := some("a", "a", "b", "/", "%2F", "%2f", "\\", "%5C", ";", "%3B", "%3A", ":", "%61", "?")
		decide := func(f cache.Fetcher, o policy.Options) bool {
			return engine(t, f, o).Decide(t.Context(), ask("FooBot", path)).Verdict != policy.Allow
		}
		location, _ := json.Marshal(pattern)
		want := decide(file("User-agent: *\nDisallow: "+pattern+"\n"), policy.Options{})
		if got := decide(file("User-agent: *\nContent-Usage: "+pattern+" train-ai=n\n"), o); got != want {
			t.Fatalf("Content-Usage: %s for %s: refused %v, by Disallow %v", pattern, path, got, want)
		}
		if got := decide(file("User-agent: *\nContent-Signal: "+pattern+" ai-train=no\n"), o); got != want {
			t.Fatalf("Content-Signal: %s for %s: refused %v, by Disallow %v", pattern, path, got, want)
		}
		if got := decide(none, withTDMRep(t, o, fmt.Sprintf(`[{"location": %s, "tdm-reservation": 1}]`, location))); got != want {
			t.Fatalf("tdmrep.json: %s for %s: refused %v, by Disallow %v", pattern, path, got, want)
		}
	}
}

// The lines of a hostile file are not parsed again for each of the many forms of a path.
func TestPreferencesOfManyForms(t *testing.T) {
	e := engine(t, file("User-agent: *\n"+strings.Repeat("Content-Usage: train-ai=y, a, b, c\n", 900)), policy.Options{Usage: usage.Policy{Purposes: usage.SetOf(usage.TrainAI), Refuse: true}})
	allocations := func(path string) float64 {
		return testing.AllocsPerRun(5, func() { e.Decide(t.Context(), ask("FooBot", path)) })
	}
	if many, one := allocations("/a;b/%2F.%5C../%3B:%3A/./c;d"), allocations("/a"); many > 4*one {
		t.Errorf("%v allocations, %v for a path with one form", many, one)
	}
}

// If the rule of tdmrep.json that counts takes too many steps to find, the request is refused, unless
// preferences are only recorded.
func TestTDMRepIsTooComplex(t *testing.T) {
	none := answers{fetch.Result{Status: 404, MaxAge: -1, Connected: true}}
	rnd := rand.New(rand.NewPCG(790, 9309))
	word := func(n int) string {
		return strings.Map(func(rune) rune { return rune("ab"[rnd.IntN(2)]) }, strings.Repeat("x", n))
	}
	var rules []string
	for range 7000 {
		rules = append(rules, fmt.Sprintf(`{"location": "*%s*%s*z", "tdm-reservation": 0}`, word(8), word(10)))
	}
	for name, c := range map[string]struct{ path, rules string }{
		"many rules": {"/" + word(8<<10), "[" + strings.Join(rules, ",") + "]"},
		"many forms": {"/b%2F%5C..;x/./" + strings.Repeat("a", 8<<10) + "/%3B%3A/../../../a", `[{"location": "/private/", "tdm-reservation": 1}]`},
	} {
		o := withTDMRep(t, policy.Options{Usage: usage.Policy{Purposes: usage.SetOf(usage.TDM), Refuse: true}}, c.rules)
		if d := engine(t, none, o).Decide(t.Context(), ask("FooBot", c.path)); d.Verdict != policy.Refuse || d.Reason != policy.ReasonTooComplex {
			t.Errorf("%s: %v %q", name, d.Verdict, d.Reason)
		}
		o.Usage.Refuse = false
		if d := engine(t, none, o).Decide(t.Context(), ask("FooBot", c.path)); d.Verdict != policy.Allow || d.Reason != policy.ReasonNoFile {
			t.Errorf("%s, recorded: %v %q", name, d.Verdict, d.Reason)
		}
	}
}

// withTDMRep returns o with the cache of a tdmrep.json that all origins have.
func withTDMRep(t *testing.T, o policy.Options, text string) policy.Options {
	files, err := cache.New(cache.Options{Fetcher: answers{fetch.Result{Status: 200, Body: []byte(text), MaxAge: -1, Connected: true}}})
	testkit.Must(t, err)
	o.TDMRep = files
	return o
}

// A cache that gives no file refuses: nobody has read what the site reserves.
func TestTDMRepOfAStoppedCache(t *testing.T) {
	o := policy.Options{TDMRep: stopped{}, Usage: usage.Policy{Purposes: usage.SetOf(usage.TDM)}}
	if d := engine(t, file(rules), o).Decide(t.Context(), ask("FooBot", "/page")); d.Verdict == policy.Allow || d.Reason != policy.ReasonUnreachable {
		t.Errorf("%v %q", d.Verdict, d.Reason)
	}
}

// With FetchPerToken, a site is asked for both files by the client's name: it may refuse the proxy's own.
func TestTDMRepIsFetchedForTheToken(t *testing.T) {
	for _, perToken := range []bool{false, true} {
		var asked asking
		o := policy.Options{TDMRep: &asked, FetchPerToken: perToken, Usage: usage.Policy{Purposes: usage.SetOf(usage.TDM)}}
		engine(t, file(rules), o).Decide(t.Context(), ask("FooBot", "/page"))
		want := map[bool]string{true: "FooBot"}[perToken]
		if asked.Token != want || asked.Origin.Host != "site.test" {
			t.Errorf("per token %v: asked for %+v", perToken, asked)
		}
	}
}

// asking is a policy.Cache that keeps the last query.
type asking cache.Query

func (a *asking) Lookup(_ context.Context, q cache.Query, _ robots.Dialect) (*cache.Entry, error) {
	*a = asking(q)
	return nil, cache.ErrStopped
}

// A failure of the proxy itself says nothing about the site. If preferences are enforced, the request is
// refused for the same reason as if the robots.txt could not be fetched.
func TestTDMRepThatTheProxyCannotFetch(t *testing.T) {
	cause := errors.New("the queue is full")
	for _, enforced := range []bool{false, true} {
		for _, own := range []bool{false, true} {
			files, err := cache.New(cache.Options{Fetcher: answers{fetch.Result{MaxAge: -1, Err: cause, OwnFailure: own}}})
			testkit.Must(t, err)
			o := policy.Options{TDMRep: files, Usage: usage.Policy{Purposes: usage.SetOf(usage.TDM), Refuse: enforced}}
			d := engine(t, file(rules), o).Decide(t.Context(), ask("FooBot", "/page"))
			if refused := d.Verdict != policy.Allow; refused != (enforced && own) || refused && (d.Reason != policy.ReasonOrigin || !errors.Is(d.Err, cause)) {
				t.Errorf("enforced %v, own failure %v: %v %q, %v", enforced, own, d.Verdict, d.Reason, d.Err)
			}
		}
	}
}

// stopped is a policy.Cache that has been stopped.
type stopped struct{}

func (stopped) Lookup(context.Context, cache.Query, robots.Dialect) (*cache.Entry, error) {
	return nil, cache.ErrStopped
}

// The head of a response is judged where content follows.
func TestJudgeResponse(t *testing.T) {
	e := engine(t, file(rules), policy.Options{Usage: usage.Policy{Purposes: usage.SetOf(usage.TrainAI), Refuse: true}})
	for _, c := range []struct {
		name    string
		status  int
		header  http.Header
		refused bool
	}{
		{"disallowed", 200, http.Header{"Content-Usage": {"train-ai=n"}}, true},
		{"a part", 206, http.Header{"Tdm-Reservation": {"1"}}, true},
		{"for this client", 200, http.Header{"X-Robots-Tag": {"foobot: noai"}}, true},
		{"an upgrade", 101, http.Header{"X-Robots-Tag": {"noai"}}, true},
		{"for another client", 200, http.Header{"X-Robots-Tag": {"otherbot: noai"}}, false},
		{"another purpose", 200, http.Header{"X-Robots-Tag": {"noindex"}}, false},
		{"no content: a redirect", 301, http.Header{"X-Robots-Tag": {"noai"}}, false},
		{"no content: busy", 503, http.Header{"X-Robots-Tag": {"noai"}}, false},
		{"nothing said", 200, http.Header{"Content-Type": {"text/html"}}, false},
	} {
		r := ask("FooBot", "/page")
		d := e.Decide(t.Context(), r)
		if got := e.JudgeResponse(r, &d, c.status, c.header); got != c.refused || (d.Reason == policy.ReasonUsage) != c.refused {
			t.Errorf("%s: %v, %q", c.name, got, d.Reason)
		}
	}
}

// Where a site says nothing, its preferences cost no allocation.
func TestNoPreferenceAllocatesNothing(t *testing.T) {
	r := ask("FooBot", "/page")
	allocations := func(p usage.Policy) float64 {
		e := engine(t, file(rules), policy.Options{Usage: p})
		return testing.AllocsPerRun(200, func() {
			d := e.Decide(t.Context(), r)
			e.JudgeResponse(r, &d, 200, nil)
		})
	}
	if with, without := allocations(usage.Policy{Purposes: usage.SetOf(usage.TrainAI), Refuse: true}), allocations(usage.Policy{}); with > without {
		t.Errorf("%v allocations, %v without purposes", with, without)
	}
}
