package auditcmd

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"robotsproxy/cmd/internal/checkcmd"
	"robotsproxy/cmd/internal/cli"
	"robotsproxy/policy"
	"robotsproxy/policy/audit/snapshot"
	"robotsproxy/policy/audit/trail"
	"robotsproxy/policy/explain"
	"robotsproxy/policy/usage"
	"robotsproxy/robots"
	"robotsproxy/robots/cache"
	"robotsproxy/robots/fetch"
	"robotsproxy/robots/testkit"
)

const robotsTxt = `# made up
User-agent: FooBot
User-agent: BarBot
Crawl-delay: 30
Disallow: /private
Allow: /private/open
Disallow: /*?id=

User-agent: *
Disallow: /none
`

// A madeUp is a state directory that is made up.
type madeUp struct {
	dir, audit string
	snapshots  *snapshot.Store
	seq        uint64
	hash       trail.Hash
}

func newState(t *testing.T) *madeUp {
	t.Helper()
	s := &madeUp{dir: t.TempDir()}
	s.audit = filepath.Join(s.dir, cli.AuditName)
	var err error
	s.snapshots, err = snapshot.Open(snapshot.Options{
		Dir: filepath.Join(s.dir, cli.SnapshotsName), NoSync: true, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// write adds a record to the trail.
func (s *madeUp) write(t *testing.T, e trail.Entry) {
	t.Helper()
	text, err := json.Marshal(e)
	if err != nil {
		t.Fatal(err)
	}
	var members map[string]any // without those that Seal writes
	if err := json.Unmarshal(text, &members); err != nil {
		t.Fatal(err)
	}
	delete(members, "seq")
	if text, err = json.Marshal(members); err != nil {
		t.Fatal(err)
	}
	s.seq++
	text, s.hash = trail.AppendLink(bytes.TrimSuffix(text, []byte("}")), 0, s.seq, s.hash)
	file, err := os.OpenFile(s.audit, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	_, err = file.Write(text)
	if err := errors.Join(err, file.Close()); err != nil {
		t.Fatal(err)
	}
}

// command runs one of audit's.
func (s *madeUp) command(t *testing.T, args ...string) (status int, out, errOut string) {
	t.Helper()
	var o, e bytes.Buffer
	status = cli.Execute(t.Context(), Command(), append([]string{"--state", s.dir}, args...), strings.NewReader(""), &o, &e)
	return status, o.String(), e.String()
}

func textAnswer(status int, body string) *fetch.Result {
	return fileAnswer("http://site.test/robots.txt", status, body)
}

func fileAnswer(url string, status int, body string) *fetch.Result {
	file := &checkcmd.File{Name: url, Text: []byte(body), Status: status}
	a := file.Fetch(context.Background(), fetch.Request{Origin: robots.Origin{}, UserAgent: ""})
	a.Fetched = time.Date(2026, 11, 21, 10, 0, 0, 123456789, time.UTC)
	return a
}

// judged is the record of a request as it would have been judged, for a record of
// the kind that is rederived.
func judged(t *testing.T, a, tdmrep *fetch.Result, o policy.Options, r policy.Request) trail.Entry {
	t.Helper()
	if o.Dialect.Name == "" {
		o.Dialect = robots.Standard()
	}
	robotsCache, err := cache.New(cache.Options{Fetcher: &checkcmd.File{Name: a.URL, Text: a.Body, Status: a.Status}})
	if err != nil {
		t.Fatal(err)
	}
	o.Cache = robotsCache
	if tdmrep != nil {
		if o.TDMRep, err = cache.New(cache.Options{Fetcher: &checkcmd.File{Name: tdmrep.URL, Text: tdmrep.Body, Status: tdmrep.Status}}); err != nil {
			t.Fatal(err)
		}
	}
	engine, err := policy.New(o)
	if err != nil {
		t.Fatal(err)
	}
	e := trail.Entry{Method: r.Method, URL: r.Target.String()}
	d := engine.Decide(t.Context(), r)
	if r.Method == http.MethodConnect {
		d, e.URL = engine.DecideTunnel(t.Context(), r), r.Origin.Addr()
	}
	e.ID, e.Time, e.Enforced, e.UserAgent, e.Host = "ab12-1", a.Fetched.Add(time.Second), true, r.UserAgent, r.Origin.Host
	e.Decision, e.Reason, e.Rule, e.Line, e.Group, e.Agent = d.Verdict.String(), string(d.Reason), d.Rule, d.Line, d.Group, d.Token
	e.Dialect, e.RobotsURL, e.RobotsFetched, e.RobotsSHA256 = d.Dialect, a.URL, a.Fetched, a.SHA256
	e.Reading = d.Form.String()
	x := explain.Of(&d)
	e.Usage, e.UsageSource, e.TDMRepURL, e.TDMRepSHA256 = x.Usage, x.UsageSource, x.TDMRepURL, x.TDMRepSHA256
	e.CrawlDelay, e.CrawlAsked = d.Pace.CrawlDelay.Seconds(), d.Asked.Seconds()
	return e
}

func dialectNamed(t *testing.T, name string) robots.Dialect {
	t.Helper()
	d, err := robots.DialectByName(name)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

var (
	plain = robots.Origin{Scheme: "http", Host: "site.test", Port: 80}
	odd   = robots.Origin{Scheme: "https", Host: "2001:db8::1", Port: 8443}
	ftp   = robots.Origin{Scheme: "ftp", Host: "site.test", Port: 21}
)

// Uses of content.
var (
	forTraining   = usage.Policy{Purposes: usage.SetOf(usage.TrainAI), Refuse: true}
	onlyPermitted = usage.Policy{Purposes: usage.SetOf(usage.TrainAI), Refuse: true, RefuseUnknown: true}
	page          = policy.Request{Target: robots.Target{Origin: plain, PathQuery: "/page?a"}, UserAgent: fooAgent}
)

const (
	signals  = "User-agent: *\nContent-Signal: ai-train=no\n"
	reserved = `[{"location": "/", "tdm-reservation": 1}]`
)

const fooAgent = "FooBot/1.0 (+https://foo.test)"

// words returns n letters a and b, always the same for one seed.
func words(seed uint64, n int) string {
	rnd := rand.New(rand.NewPCG(seed, 9309))
	return strings.Map(func(rune) rune { return rune("ab"[rnd.IntN(2)]) }, strings.Repeat("x", n))
}

// complexTDMRep returns a tdmrep.json for which matching a long path of letters a and b gives up.
func complexTDMRep() string {
	var rules []string
	for i := range uint64(7000) {
		rules = append(rules, fmt.Sprintf(`{"location": "*%s*%s*z", "tdm-reservation": 1}`, words(i, 8), words(i+7000, 10)))
	}
	return "[" + strings.Join(rules, ",") + "]"
}

// A rederivation is a request that is judged, recorded and then explained.
type rederivation struct {
	name     string
	options  policy.Options
	dialect  string // "": that of options
	request  policy.Request
	file     string
	makeFile func() string // in place of file
	tdmrep   string        // "": there is none
	status   int
	change   func(*trail.Entry)
	exit     int
	want     string // in the output
}

var rederivations = []rederivation{
	{name: "a rule forbids", request: policy.Request{Target: robots.Target{Origin: plain, PathQuery: "/private/a"}, UserAgent: fooAgent},
		want: `disallowed +http://site.test/private/a\n(.*\n)*  rule: +Disallow: /private \(line 5\)\n(.*\n)*` +
			` +2 \| User-agent: FooBot\n    +3 \| User-agent: BarBot\n    +4 \| Crawl-delay: 30\n  > +5 \| Disallow: /private\n    +6 \| Allow: /private/open\n`},
	{name: "a rule allows", request: policy.Request{Target: robots.Target{Origin: plain, PathQuery: "/private/open?a=b"}, UserAgent: fooAgent}, want: `allowed`},
	{name: "the query decides", request: policy.Request{Target: robots.Target{Origin: odd, PathQuery: "/x?id=%20"}, UserAgent: fooAgent}, want: `(?m)^  rule: +Disallow: /\*\?id= `},
	{name: "no rule", request: policy.Request{Target: robots.Target{Origin: plain, PathQuery: "/"}, UserAgent: "BarBot/2"}, want: `No rule of the site's robots.txt matches`},
	{name: "no group", request: policy.Request{Target: robots.Target{Origin: plain, PathQuery: "/"}}, file: "User-agent: x\nDisallow: /\n", want: `No group of the site's robots.txt applies`},
	{name: "the group of all, and nobody named", request: policy.Request{Target: robots.Target{Origin: plain, PathQuery: "/none"}}, want: `(?m)^  group: +\*$`},
	{name: "dot segments", request: policy.Request{Target: robots.Target{Origin: plain, PathQuery: "/x/../private"}, UserAgent: fooAgent}, want: `disallowed`},
	{name: "dot segments, in a record of before readings were recorded", request: policy.Request{Target: robots.Target{Origin: plain, PathQuery: "/x/../private"}, UserAgent: fooAgent},
		change: func(e *trail.Entry) { e.Reading = "" }, want: `disallowed`},
	{name: "merged slashes", request: policy.Request{Target: robots.Target{Origin: plain, PathQuery: "/x//../private"}, UserAgent: fooAgent}, want: `(?m)^  read as: +slashes-merged\+dots-removed$`},
	{name: "a form that decided nothing, of an earlier version", request: policy.Request{Target: robots.Target{Origin: plain, PathQuery: "/x/../a"}, UserAgent: fooAgent},
		change: func(e *trail.Entry) { e.Reading = "dots-removed" }, want: `allowed`},
	{name: "merged slashes, judged literally", options: policy.Options{Readings: policy.LiteralReadings},
		request: policy.Request{Target: robots.Target{Origin: plain, PathQuery: "//private"}, UserAgent: fooAgent}, want: `allowed`},
	{name: "another reading", request: policy.Request{Target: robots.Target{Origin: plain, PathQuery: "//private?x"}, UserAgent: fooAgent},
		change: func(e *trail.Entry) { e.Reading = "parameters-stripped" }, exit: 1, want: `reading: recorded parameters-stripped, re-derived slashes-merged`},
	{name: "a file that takes too long", makeFile: testkit.ComplexFile, request: policy.Request{Target: robots.Target{Origin: plain, PathQuery: "/" + strings.Repeat("a", 4000)}}, want: `gives up matching`},
	{name: "ftp", request: policy.Request{Target: robots.Target{Origin: ftp, PathQuery: "/priv%61te;type=a"}, UserAgent: fooAgent}, want: `disallowed`},
	{name: "a configured token", options: policy.Options{ProductToken: "FooBot"}, request: policy.Request{Target: robots.Target{Origin: plain, PathQuery: "/private"}, UserAgent: "curl/8"},
		want: `the configuration set the product token FooBot`},
	{name: "a configured token that stands in the header behind another", options: policy.Options{ProductToken: "BarBot"},
		file:    "User-agent: Lib\nDisallow: /\n\nUser-agent: BarBot\nAllow: /\n",
		request: policy.Request{Target: robots.Target{Origin: plain, PathQuery: "/x"}, UserAgent: "Lib/1 BarBot/1.0"}, want: `the configuration set the product token BarBot`},
	{name: "the delay is kept", options: policy.Options{MaxCrawlDelay: time.Minute}, request: policy.Request{Target: robots.Target{Origin: plain, PathQuery: "/"}, UserAgent: fooAgent}, want: `30 s \(asked: 30 s\)`},
	{name: "the delay is clamped", options: policy.Options{MaxCrawlDelay: 2500 * time.Millisecond}, request: policy.Request{Target: robots.Target{Origin: plain, PathQuery: "/"}, UserAgent: fooAgent}, want: `asks for 30 s between requests; sent every 2\.5 s`},
	{name: "the delay refuses", options: policy.Options{OverMax: policy.RefuseExcess}, request: policy.Request{Target: robots.Target{Origin: plain, PathQuery: "/"}, UserAgent: fooAgent}, want: `asks for a longer Crawl-delay`},
	{name: "a tunnel", request: policy.Request{Method: "CONNECT", Target: robots.Target{Origin: odd, PathQuery: "/"}, UserAgent: fooAgent}, want: `allowed +.*\[2001:db8::1\]:8443`},
	{name: "a tunnel to a site that is disallowed", file: "User-agent: *\nDisallow: /\n",
		request: policy.Request{Method: "CONNECT", Target: robots.Target{Origin: odd, PathQuery: "/"}, UserAgent: fooAgent}, want: `disallowed`},
	{name: "a status that says that there are no rules", dialect: "coccoc", status: 203,
		request: policy.Request{Target: robots.Target{Origin: plain, PathQuery: "/private"}, UserAgent: fooAgent}, want: `Status 203 means under coccoc that there are no rules`},
	{name: "a status that says that there are no rules, of a URL longer than a record's", dialect: "coccoc", status: 203,
		request: policy.Request{Target: robots.Target{Origin: plain, PathQuery: "/private"}, UserAgent: fooAgent},
		change:  func(e *trail.Entry) { e.RobotsURL = "http://site.test/ro…(27 bytes)" }, want: `Status 203 means under coccoc that there are no rules`},
	{name: "an empty rule has a line", dialect: "google", file: "User-agent: *\nDisallow:\n",
		request: policy.Request{Target: robots.Target{Origin: plain, PathQuery: "/x"}}, want: `  >     2 \| Disallow:\n`},
	{name: "bytes that are not UTF-8", file: "User-agent: *\nDisallow: /\xff\xfe*\n", request: policy.Request{Target: robots.Target{Origin: plain, PathQuery: "/%FF%FEx"}}, want: `disallowed`},
	{name: "bytes of the URL that are not UTF-8", file: "User-agent: *\nDisallow: /*\xff\xfe\n", request: policy.Request{Target: robots.Target{Origin: plain, PathQuery: "/?%61=\xff\xfe"}},
		change: func(e *trail.Entry) {
			e.URL, e.URLBytes = "http://site.test/?%61=%FF%FE", []byte("http://site.test/?%61=\xff\xfe")
		}, want: `disallowed`},
	{name: "a broken escape, and bytes that no URI has", file: "User-agent: *\nDisallow: /100%/ü|\n", request: policy.Request{Target: robots.Target{Origin: plain, PathQuery: "/100%/ü|"}}, want: `disallowed`},
	{name: "RFC 9112 3.2.4: OPTIONS *", file: "User-agent: *\nDisallow: /$\n", request: policy.Request{Method: "OPTIONS", Target: robots.Target{Origin: plain, PathQuery: "*"}}, want: `disallowed`},
	{name: "bytes of the URL that are not UTF-8, to a dialect that takes them as they are", dialect: "google",
		file: "User-agent: *\nDisallow: /*%FF\n", request: policy.Request{Target: robots.Target{Origin: plain, PathQuery: "/?\xff"}},
		change: func(e *trail.Entry) { e.URL = "http://site.test/?%FF" }, want: `disallowed`},
	{name: "a rule longer than a record's", file: "User-agent: *\nDisallow: /" + strings.Repeat("x", 9000) + "\n",
		request: policy.Request{Target: robots.Target{Origin: plain, PathQuery: "/" + strings.Repeat("x", 9000)}},
		change:  func(e *trail.Entry) { e.Rule = e.Rule[:900] + "…(9001 bytes)" }, want: `disallowed`},
	{name: "another rule than the record's, which is cut", file: "User-agent: *\nDisallow: /" + strings.Repeat("x", 9000) + "\n",
		request: policy.Request{Target: robots.Target{Origin: plain, PathQuery: "/" + strings.Repeat("x", 9000)}},
		change:  func(e *trail.Entry) { e.Rule = e.Rule[:900] + "…(9002 bytes)" }, exit: 1, want: `rule: recorded`},
	{name: "a URL longer than a record's", file: "User-agent: *\nDisallow: /*y\n",
		request: policy.Request{Target: robots.Target{Origin: plain, PathQuery: "/" + strings.Repeat("x", 900) + "y"}},
		change:  func(e *trail.Entry) { e.URL = e.URL[:800] + "…(70000 bytes)" }, exit: 1, want: `only the beginning of the URL of 70000 bytes`},
	{name: "the pace came before", request: policy.Request{Target: robots.Target{Origin: plain, PathQuery: "/private/open"}, UserAgent: fooAgent},
		change: func(e *trail.Entry) { e.Decision, e.Reason, e.Error = "block", "pace", "too busy" },
		want:   `(?s)The wait for this host.*rule: +/private/open \(line 6\)(?s:.*)robots.txt alone allows the request`},
	{name: "monitor mode", request: policy.Request{Target: robots.Target{Origin: plain, PathQuery: "/private"}, UserAgent: fooAgent},
		change: func(e *trail.Entry) { e.Enforced = false }, want: `(?m)^  enforced: +no: the proxy sent the request and only recorded`},
	{name: "a copy from before", request: policy.Request{Target: robots.Target{Origin: plain, PathQuery: "/private"}, UserAgent: fooAgent},
		change: func(e *trail.Entry) { e.RobotsStale, e.Error = true, "fetch: answered with status 503" }, want: `an older copy, because robots.txt could not be fetched again`},

	{name: "a use that a line of robots.txt disallows", options: policy.Options{Usage: forTraining}, file: signals, request: page,
		want: `(?s)The site's robots.txt \(line 2\) does not permit.*\n  >     2 \| Content-Signal: ai-train=no\n`},
	{name: "a use of which the site says nothing", options: policy.Options{Usage: onlyPermitted}, request: page, want: `The site does not say whether`},
	{name: "a use that tdmrep.json disallows", options: policy.Options{Usage: forTraining}, tdmrep: reserved, request: page,
		want: `(?s)The site's tdmrep.json does not permit.*tdmrep.json: +http://site.test/.well-known/tdmrep.json\n.*snapshot: +152 bytes: .* +41 bytes of tdmrep.json: robotsproxy audit snapshot 9534b19e88c7`},
	{name: "a use that tdmrep.json disallows, without a robots.txt", options: policy.Options{Usage: forTraining}, tdmrep: reserved, status: 404, request: page,
		change: func(e *trail.Entry) { e.RobotsSHA256 = "" }, want: `The site's tdmrep.json does not permit`},
	{name: "a use that tdmrep.json disallows, where robots.txt is not applied", options: policy.Options{Usage: forTraining, Hosts: []policy.Host{{Match: "*", Robots: policy.Ignore, Reason: "asked Ada"}}}, tdmrep: reserved, request: page,
		change: func(e *trail.Entry) {
			e.RobotsURL, e.RobotsSHA256, e.RobotsFetched, e.Dialect = "", "", time.Time{}, ""
		}, want: `The site's tdmrep.json does not permit`},
	{name: "a header in place of tdmrep.json", options: policy.Options{Usage: usage.Policy{Purposes: usage.SetOf(usage.TDM)}}, tdmrep: reserved, request: page,
		change: func(e *trail.Entry) {
			e.TDMReservation, e.UsageSource = "0", ""
			e.Usage = map[string]trail.Usage{"tdm": {Outcome: "allowed", Statement: "tdm-reservation: 0", Source: "header tdm-reservation"}}
		}, want: `use tdm: +allowed \(response header: tdm-reservation: 0\)`},
	{name: "a header beside tdmrep.json that states nothing", options: policy.Options{Usage: forTraining}, tdmrep: reserved, request: page,
		change: func(e *trail.Entry) { e.TDMReservation = "yes" }, want: `The site's tdmrep.json does not permit`},
	{name: "a tdmrep.json that takes too long", options: policy.Options{Usage: forTraining}, tdmrep: complexTDMRep(),
		request: policy.Request{Target: robots.Target{Origin: plain, PathQuery: "/" + words(1, 8<<10)}}, want: `gives up matching`},

	{name: "another statement of tdmrep.json", options: policy.Options{Usage: forTraining}, tdmrep: reserved, request: page,
		change: func(e *trail.Entry) {
			e.Usage = map[string]trail.Usage{"train-ai": {Outcome: "disallowed", Statement: "tdm-reservation: 1 for /x", Source: "tdmrep.json"}}
		}, exit: 1, want: `statement about train-ai: recorded tdm-reservation: 1 for /x, re-derived tdm-reservation: 1 for /\n`},
	{name: "a use that tdmrep.json disallows and the record does not", options: policy.Options{Usage: forTraining}, tdmrep: reserved, request: page,
		change: func(e *trail.Entry) {
			e.Decision, e.Reason, e.UsageSource, e.Usage = "allow", "no-rule", "", map[string]trail.Usage{"train-ai": {Outcome: "unknown"}}
		}, exit: 1, want: `usage train-ai: recorded unknown, line 0, re-derived disallowed, line 0\n`},
	{name: "a tdmrep.json that was removed", options: policy.Options{Usage: forTraining}, tdmrep: reserved, request: page,
		change: func(e *trail.Entry) { e.TDMRepSHA256 = strings.Repeat("a", 64) }, exit: 1, want: `no snapshot a+: it may have been removed`},
	{name: "another verdict", request: policy.Request{Target: robots.Target{Origin: plain, PathQuery: "/private?x"}, UserAgent: fooAgent},
		change: func(e *trail.Entry) { e.Decision = "allow" }, exit: 1, want: `(?m)it differs\n +decision: recorded allow, re-derived block\n +audit verify shows whether somebody changed `},
	{name: "another line", request: policy.Request{Target: robots.Target{Origin: plain, PathQuery: "/private?x"}, UserAgent: fooAgent},
		change: func(e *trail.Entry) { e.Line = 6 }, exit: 1, want: `(?m)it differs\n +line: recorded 6, re-derived 5$`},
	{name: "another agent", request: policy.Request{Target: robots.Target{Origin: plain, PathQuery: "/private?x"}, UserAgent: fooAgent},
		change: func(e *trail.Entry) { e.Agent = "BazBot" }, exit: 1, want: `group: recorded foobot, re-derived \*`},
	{name: "another delay", request: policy.Request{Target: robots.Target{Origin: plain, PathQuery: "/private?x"}, UserAgent: fooAgent},
		change: func(e *trail.Entry) { e.CrawlAsked = 20 }, exit: 1, want: `crawl_delay_asked_s: recorded 20, re-derived 30`},
	{name: "a query that was dropped", request: policy.Request{Target: robots.Target{Origin: plain, PathQuery: "/x?id=1"}, UserAgent: fooAgent},
		change: func(e *trail.Entry) { e.URL = "http://site.test/x" }, exit: 1, want: `audit.query_strings: drop removed it, the decision cannot be re-derived exactly`},
	{name: "no URL", request: policy.Request{Target: robots.Target{Origin: plain, PathQuery: "/x"}}, change: func(e *trail.Entry) { e.URL = "x\x1b[2J" }, exit: 1, want: `the request cannot be parsed`},
	{name: "no dialect", request: policy.Request{Target: robots.Target{Origin: plain, PathQuery: "/x"}}, change: func(e *trail.Entry) { e.Dialect = "\x1b[2J" }, exit: 1, want: `the request cannot be judged`},
	{name: "no hash", request: policy.Request{Target: robots.Target{Origin: plain, PathQuery: "/x"}}, change: func(e *trail.Entry) { e.RobotsSHA256 = "../../etc/passwd" }, exit: 1, want: `the stored snapshot has another SHA-256`},
	{name: "removed", request: policy.Request{Target: robots.Target{Origin: plain, PathQuery: "/x"}}, change: func(e *trail.Entry) { e.RobotsSHA256 = strings.Repeat("a", 64) }, exit: 1,
		want: `no snapshot a+: it may have been removed \(audit.snapshot_max_age, audit.snapshot_max_size\)`},
}

// TestExplainRederives: whatever the configuration was, explain re-derives the recorded
// decision without it.
func TestExplainRederives(t *testing.T) {
	t.Parallel()
	for _, tc := range rederivations {
		t.Run(tc.name, func(t *testing.T) {
			if tc.dialect != "" {
				tc.options.Dialect = dialectNamed(t, tc.dialect)
			}
			if tc.makeFile != nil {
				tc.file = tc.makeFile()
			}
			tc.file = cmp.Or(tc.file, robotsTxt)
			tc.status, tc.request.Method = cmp.Or(tc.status, 200), cmp.Or(tc.request.Method, "GET")
			s := newState(t)
			a := textAnswer(tc.status, tc.file)
			a.Headers = &fetch.Headers{ETag: "\"e\x1b\""}
			if err := s.snapshots.Save(a, "someone"); err != nil {
				t.Fatal(err)
			}
			var tdmrep *fetch.Result
			if tc.tdmrep != "" {
				tdmrep = fileAnswer("http://site.test/.well-known/tdmrep.json", 200, tc.tdmrep)
				if err := s.snapshots.Save(tdmrep, "someone"); err != nil {
					t.Fatal(err)
				}
			}
			e := judged(t, a, tdmrep, tc.options, tc.request)
			if tc.change != nil {
				tc.change(&e)
			}
			s.write(t, e)
			status, out, errOut := s.command(t, "explain", e.ID)
			if status != tc.exit || errOut != "" || !regexp.MustCompile(tc.want).MatchString(out) {
				t.Errorf("status %d, want %d and %s:\n%s%s", status, tc.exit, tc.want, out, errOut)
			}
			if tc.exit == 0 && !strings.Contains(out, "re-derived:     the same\n") {
				t.Errorf("not said to be the same:\n%s", out)
			}
			if strings.ContainsAny(out, "\x1b\r") {
				t.Errorf("a stranger's bytes are printed: %q", out)
			}
			var x struct {
				Record  trail.Entry
				Place   recordPlace
				Fetch   *snapshot.Fetch
				Derived derivation `json:"rederived"`
			}
			if status, out, errOut = s.command(t, "explain", "--json", e.ID); status != tc.exit || json.Unmarshal([]byte(out), &x) != nil || errOut != "" {
				t.Errorf("--json: status %d: %s%s", status, out, errOut)
			}
			if x.Derived.Same != (tc.exit == 0) || x.Record.URL != e.URL || !x.Place.Hash || x.Place.Seq != 1 {
				t.Errorf("--json: %+v", x)
			}
			if e.RobotsSHA256 == a.SHA256 && (x.Fetch == nil || x.Fetch.Headers != *a.Headers) {
				t.Errorf("--json: fetched %+v", x.Fetch)
			}
		})
	}
}

// TestExplainWithoutFile: decisions that are based on something other than a file.
func TestExplainWithoutFile(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)
	for _, tc := range []struct {
		name string
		e    trail.Entry
		want []string
	}{
		{"override", trail.Entry{Decision: "allow", Reason: "override", Entry: "*.test", EntryReason: "asked Ada"}, []string{"robots: ignore", "asked Ada", "not needed for this decision"}},
		{"signed", trail.Entry{Decision: "allow", Reason: "override", Signed: "key-1"}, []string{"  signed:         key-1\n"}},
		{"unsigned", trail.Entry{Decision: "allow", Reason: "override", Unsigned: "plain-http"}, []string{"  unsigned:       plain-http\n"}},
		{"weak TLS", trail.Entry{Decision: "allow", Reason: "override", TLS: "legacy"}, []string{"  tls:            legacy: "}},
		{"dropped fields", trail.Entry{Decision: "allow", Reason: "override", Dropped: 2}, []string{"  left out:       2 malformed fields of the response\n"}},
		{"address", trail.Entry{Decision: "block", Reason: "address"}, []string{"private, local or reserved"}},
		{"malformed", trail.Entry{Decision: "block", Reason: "malformed", URL: "/x\x1b"}, []string{"not one that a proxy can forward", `"/x\x1b"`}},
		{"no file", trail.Entry{Decision: "allow", Reason: "no-file", RobotsURL: "http://none.test/robots.txt", RobotsFetched: at}, []string{
			"Status 404 means that there is no robots.txt", "outcome:        status 404: no file"}},
		{"no file, and no index", trail.Entry{Decision: "allow", Reason: "no-file", RobotsURL: "http://gone.test/robots.txt", RobotsFetched: at}, []string{
			"the index no longer has the fetch"}},
		{"unreachable", trail.Entry{Decision: "block", Reason: "unreachable", RobotsURL: "http://fails.test/robots.txt", DurationMS: 1500}, []string{
			"gave no usable robots.txt", "outcome:        status 503: unreachable", "2026-11-21T10:00:01Z"}},
		{"not reached", trail.Entry{Decision: "block", Reason: "origin", RobotsURL: "http://dead.test/robots.txt"}, []string{
			"The site could not be reached", "outcome:        no connection", `refused \x1b`}},
		{"a redirect is disallowed", trail.Entry{Decision: "allow", Reason: "no-file", RobotsURL: "http://leads.test/robots.txt", RobotsFetched: at, RobotsAgent: "FooBot"}, []string{
			"Under google this means that there are no rules", "status 302: no file: a redirect is disallowed by robots.txt: redirected to b.test"}},
		{"a reason that is not known", trail.Entry{Decision: "block", Reason: "\x1b[2J"}, []string{`\x1b[2J`}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := newState(t)
			for _, a := range []*fetch.Result{
				{URL: "http://none.test/robots.txt", Status: 404, Fetched: at},
				{URL: "http://fails.test/robots.txt", Status: 500, Fetched: at.Add(-time.Hour)},
				{URL: "http://fails.test/robots.txt", Status: 503, Fetched: at.Add(time.Second)},
				{URL: "http://fails.test/robots.txt", Status: 502, Fetched: at.Add(time.Minute)},
				{URL: "http://leads.test/robots.txt", UserAgent: "FooBot", Status: 302, RedirectDisallowed: true, Connected: true, Err: errors.New("redirected to b.test"), Fetched: at},
				{URL: "http://dead.test/robots.txt", Err: errors.New("refused \x1b"), Fetched: at},
			} {
				if err := s.snapshots.Save(a, "someone"); err != nil {
					t.Fatal(err)
				}
			}
			tc.e.ID, tc.e.Time, tc.e.Dialect = "ab12-1", at, "google"
			s.write(t, tc.e)
			status, out, errOut := s.command(t, "explain", "ab12-1")
			for _, want := range tc.want {
				if !strings.Contains(out, want) {
					t.Errorf("%q is not said", want)
				}
			}
			if n := strings.Count(out, tc.e.RobotsAgent); tc.e.RobotsAgent != "" && n != 1 {
				t.Errorf("who fetched is said %d times", n)
			}
			if status != 0 || errOut != "" || strings.Contains(out, "re-derived") || strings.ContainsAny(out, "\x1b\r") {
				t.Errorf("status %d: %s", status, errOut)
			}
			if t.Failed() {
				t.Log(out)
			}
		})
	}
}

// TestExplainChanged: a line that was changed is told, and is no success.
func TestExplainChanged(t *testing.T) {
	s := newState(t)
	s.write(t, trail.Entry{ID: "ab12-1", Decision: "allow", Reason: "override"})
	s.write(t, trail.Entry{ID: "ab12-2", Decision: "allow", Reason: "override"})
	text, err := os.ReadFile(s.audit)
	if err != nil {
		t.Fatal(err)
	}
	text = bytes.Replace(text, []byte(`"decision":"allow"`), []byte(`"decision":"block"`), 1)
	if err := os.WriteFile(s.audit, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if status, out, _ := s.command(t, "explain", "ab12-1"); status != 1 || !strings.Contains(out, "changed: the hash does not match the bytes of the line") {
		t.Errorf("status %d:\n%s", status, out)
	}
	if status, out, _ := s.command(t, "explain", "ab12-2"); status != 0 || !strings.Contains(out, s.audit+":2, number 2\n") {
		t.Errorf("status %d:\n%s", status, out)
	}
	if status, out, errOut := s.command(t, "explain", "ab12-3"); status != 1 || out != "" || !strings.Contains(errOut, "record ab12-3: no such record in "+s.audit) {
		t.Errorf("status %d: %s%s", status, out, errOut)
	}
	if status, _, errOut := s.command(t, "explain"); status != 2 {
		t.Errorf("status %d: %s", status, errOut)
	}
}
