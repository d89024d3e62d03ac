package audit

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"robotsproxy/policy"
	"robotsproxy/policy/audit/trail"
	"robotsproxy/policy/labels"
	"robotsproxy/policy/pace"
	"robotsproxy/policy/usage"
	"robotsproxy/robots"
	"robotsproxy/robots/cache"
	"robotsproxy/robots/fetch"
	"robotsproxy/robots/testkit"
)

// asRead returns a string as JSON decoding returns it.
func asRead(s string) string { return string([]rune(s)) }

// lastLine is the number of the last line that a robots.txt can have.
const lastLine = robots.MaxBytes

// greedy is a record in which every member is there, and every string is the stranger's.
func greedy(s string) *Record {
	r := &Record{
		Time: time.Unix(0, math.MaxInt64), ID: NewID(), Target: s, Remote: "[2001:db8::1]:65535",
		Request: policy.Request{
			Client: s, Method: "X" + s, Target: robots.Target{Origin: robots.Origin{Scheme: "https", Host: strings.Repeat("h", 253), Port: 65535},
				PathQuery: "/?" + s}, UserAgent: s,
		},
		Decision: policy.Decision{
			Reason: policy.ReasonUnreachable, Entry: s, EntryReason: s, Rule: s, Line: lastLine, JoinedLine: lastLine, Group: s, Token: s, Dialect: s, ContentUsage: s, Licenses: s, TDMPolicy: s,
			Form: policy.Form(math.MaxUint8), Decoded: "gzip+utf-16-mark", Asked: math.MaxInt64, DelayLine: lastLine, Pace: pace.Limits{CrawlDelay: math.MaxInt64 - 1}, Err: errors.New(s), Retry: time.Unix(0, math.MaxInt64),
			Usage: usage.Policy{Purposes: usage.SetOf(usage.TrainAI, usage.AIInput, usage.Search, usage.TDM)}, Statements: forbidding(s),
			Signals: robots.Signals{Search: robots.No, AIInput: robots.No, AITrain: robots.No},
		},
		Withheld: true, Waited: math.MaxInt64, Sent: time.Unix(0, math.MaxInt64), Interval: math.MaxInt64, Burst: math.MaxInt, Received: Received{Bytes: math.MaxInt64}, BackOff: math.MaxInt64, BackOffBy: s, Slowed: math.MaxInt64, StoreAway: true, Cached: true, Transparent: true,
		Signed: strings.Repeat("k", 43), Unsigned: policy.UnsignedClient, LegacyTLS: true, Dropped: 256 << 10, // no head has more bytes
		Status: 999, Bytes: math.MinInt64, Took: math.MaxInt64, Err: errors.New(s),
	}
	for i := range 8 {
		r.Request.Labels, _ = r.Request.Labels.With(labels.Set(strings.Repeat(string(rune('a'+i)), 31) + "=" + strings.Repeat("v", 32)))
	}
	r.Archived = Archived{File: strings.Repeat("f", 255), Offset: math.MaxInt64, ID: "urn:uuid:" + strings.Repeat("0", 36)}
	w := Preference{s[:min(len(s), maxPreference)], len(s)}
	r.Preferences = Preferences{w, w, w, w, w, w, w}
	r.Decision.Ruling.Meaning, r.Decision.Ruling.Stale = cache.Rules, true
	r.Decision.Ruling.Result = &fetch.Result{URL: s, SHA256: strings.Repeat("a", 64), UserAgent: s, Fetched: time.Unix(0, math.MaxInt64)}
	r.Decision.TDMRep = r.Decision.Ruling
	return r
}

// forbidding returns a statement that forbids each purpose.
func forbidding(text string) (all []usage.Statement) {
	for c := range 4 {
		u := usage.Statement{Source: "header X-Robots-Tag", Field: "X-Robots-Tag", Text: text, Line: lastLine}
		u.Says[c] = usage.Disallowed
		all = append(all, u)
	}
	return all
}

// strangers is what a client or an origin might send to make records long.
func strangers(n int) map[string]string {
	all := map[string]string{"plain": "x", "not UTF-8": "\xff", "quotes": `"`, "control": "\x00", "accents": "é", "emoji": "😀", "tags": "\U000E0001", "mixed": "a\xff😀\U000E0001"}
	for name, s := range all {
		all[name] = strings.Repeat(s, n/len(s)+1)
	}
	return all
}

// ofOthers are the members that no record of a request with long strings has.
var ofOthers = []string{"kind", "event", "detail", "file", "octets", "until", "by", "sha256", "count", "reasons", "clients", "first_seq", "last_seq", "hops", "outcome", "fetched",
	"ids", "keys", "config_sha256", "ca_sha256", "include", "version", "origin",
	"url_base64"} // of short URLs only

// held checks the limits of a sealed line and returns its members.
func held(t *testing.T, b []byte) map[string]json.RawMessage {
	t.Helper()
	line, _ := new(trail.Salter).AppendSalted(append(b, trail.VersionMember...), 0, math.MaxUint64, trail.Hash{})
	var members map[string]json.RawMessage
	if err := json.Unmarshal(line, &members); err != nil {
		t.Fatalf("%v: %q", err, line)
	}
	rest := len(line) - len(members["url"])
	if again := members["url_base64"]; again != nil {
		rest -= len(`,"url_base64":`) + len(again)
	}
	if rest > 5<<10 {
		t.Errorf("%d bytes beside the URL", rest)
	}
	for name, value := range members {
		if len(value) > trail.MaxText+len(`""`) && value[0] == '"' && name != "url" && name != "url_base64" {
			t.Errorf("%s has %d bytes", name, len(value))
		}
	}
	return members
}

// TestRecordsAreBounded with every member at its worst.
func TestRecordsAreBounded(t *testing.T) {
	for name, s := range strangers(100 << 10) {
		r := greedy(s)
		for _, o := range []Options{{Replica: s}, {Replica: s, DropQuery: true, Client: func(string) string { return s }}} {
			members := held(t, appendLine(nil, r, &o))
			entry := reflect.TypeFor[trail.Entry]()
			for i := range entry.NumField() {
				name := entry.Field(i).Tag.Get("json")
				if members[name] == nil && !slices.Contains(ofOthers, name) {
					t.Errorf("the record has no %s", name)
				}
			}
			for _, method := range []string{"CONNECT", ""} {
				r.Request.Method = method
				held(t, appendLine(nil, r, &o))
			}
			r.Request.Method = "X" + s
		}
		r.Request.Origin = robots.Origin{}
		if members := held(t, appendLine(nil, r, &Options{})); len(members["url"]) > trail.MaxText+2 {
			t.Errorf("%s: what was no URL has %d bytes", name, len(members["url"]))
		}
		fetched := fetchLine{trail.KindRobots, fetch.Report{
			Began:   time.Unix(0, 0),
			Request: fetch.Request{Origin: r.Request.Origin, Token: s},
			Hops:    append([]string{"https://" + strings.Repeat("h", 253) + ":65535/robots.txt"}, slices.Repeat([]string{"http://" + s}, fetch.MaxRedirects)...),
			Result:  &fetch.Result{UserAgent: s, SHA256: strings.Repeat("a", 64), Status: 999, Err: errors.New(s), Fetched: time.Unix(0, math.MaxInt64)},
		}}
		held(t, appendLine(nil, &fetched, &Options{Replica: s}))
		held(t, appendLine(nil, &event{Event: trail.EventPaused, Detail: s, Host: s, Reason: s, By: s, Until: time.Unix(0, math.MaxInt64)}, &Options{Replica: s}))
		ids := slices.Repeat([]string{strings.Repeat("z", len(strconv.FormatUint(math.MaxUint64, 36)))}, maxIDs)
		held(t, appendLine(nil, &event{Event: trail.EventUnfinished, Detail: s, Count: math.MaxInt64, IDs: ids}, &Options{Replica: s}))
		held(t, appendLine(
			nil, &event{Event: "replaced", Detail: s, File: s, FileBytes: math.MaxInt64, SHA256: s, Count: math.MaxInt64, Clients: math.MaxInt, Client: s, FirstSeq: math.MaxUint64, LastSeq: math.MaxUint64,
				Reasons: map[string]int64{"malformed": math.MaxInt64, "auth": math.MaxInt64, "limit": math.MaxInt64, "loop": math.MaxInt64,
					"port": math.MaxInt64, "address": math.MaxInt64, "denied-host": math.MaxInt64, "identity": math.MaxInt64}}, &Options{Replica: s}))
	}
}

func TestURLIsWhole(t *testing.T) {
	for name, s := range strangers(trail.MaxURL) {
		r := allowed()
		for _, n := range []int{trail.MaxURL, trail.MaxURL + 1} {
			r.Request.PathQuery = s[:n]
			line, err := trail.Read([]byte(encoded(r, Options{}) + "}"))
			testkit.Must(t, err)
			url, whole := line.RequestURL()
			head := strings.TrimPrefix(url, "https://site.test")
			if n == trail.MaxURL && (head != s[:n] || whole != 0) {
				t.Errorf("%s: a URL of %d bytes is not whole", name, n)
			}
			if n > trail.MaxURL && (whole != n || !strings.HasPrefix(s, head) && !strings.Contains(head, "%") || len(head) < trail.MaxURL-utf8.UTFMax) {
				t.Errorf("%s: a URL of %d bytes is cut to %d, as one of %d", name, n, len(head), whole)
			}
		}
	}
}

// TestURLIsPercentEncoded: in the URL of a fetch, and in a target that is no URL, the bytes that are
// not printable are percent-encoded. In the URL of a request, those that are not UTF-8 are, and the
// line has the URL byte for byte too. The URL takes at most five times its bytes.
func TestURLIsPercentEncoded(t *testing.T) {
	for sent, want := range map[string]struct{ request, other string }{
		"/?a=\xff\xfe&b=%FF":   {"/?a=%FF%FE&b=%FF", "/?a=%FF%FE&b=%FF"},
		"/?\xe2\x82":           {"/?%E2%82", "/?%E2%82"},
		"/?é\u20ac😀":           {"/?é\u20ac😀", "/?é\u20ac😀"},
		"/?\u202e\ufffd\x00":   {"/?\u202e\ufffd%00", "/?%E2%80%AE%EF%BF%BD%00"},
		"/?\U000E0001\u0085\"": {"/?\U000E0001\u0085\"", "/?%F3%A0%80%81%C2%85\""},
	} {
		r := allowed()
		r.Request.PathQuery = sent
		line, err := trail.Read(append(appendLine(nil, r, &Options{}), '}'))
		testkit.Must(t, err)
		if exact, whole := line.RequestURL(); line.URL != "https://site.test"+want.request || exact != "https://site.test"+sent || whole != 0 {
			t.Errorf("%q is recorded as %q, and read as %q", sent, line.URL, exact)
		}
		hops := fetchLine{trail.KindRobots, fetch.Report{Hops: []string{"http://site.test/robots.txt", "http://site.test" + sent}, Result: &fetch.Result{}}}
		malformed := allowed()
		malformed.Request.Origin, malformed.Target = robots.Origin{}, "https://site.test"+sent
		for _, b := range [][]byte{appendLine(nil, malformed, &Options{}), appendLine(nil, &hops, &Options{})} {
			var line struct {
				URL  string
				Hops []string
			}
			if err := json.Unmarshal(append(b, '}'), &line); err != nil {
				t.Fatal(err)
			}
			if got := append([]string{line.URL}, line.Hops...); !strings.HasSuffix(got[len(got)-1], "://site.test"+want.other) {
				t.Errorf("%q is recorded as %q", sent, got)
			}
		}
	}
	for name, s := range strangers(8 << 10) {
		r := allowed().Begun()
		r.Request.PathQuery = "/?" + s
		if b, n := appendURL(nil, &r, false, trail.MaxText); n > len(`https://site.test","url_base64":"`)+5*len(r.Request.PathQuery) {
			t.Errorf("%s: a URL of %d bytes takes %d: %.100q", name, len(r.Request.PathQuery), n, b)
		}
	}
}

// TestLongStringsShortenNoShortOnes: long strings of a client do not shorten the rest of
// the record.
func TestLongStringsShortenNoShortOnes(t *testing.T) {
	r := greedy(strings.Repeat("\xff", 60<<10))
	r.Decision.Rule, r.Request.UserAgent = "/private/*.html", "FooBot/1.0"
	got := encoded(r, Options{})
	for _, want := range []string{`"rule":"/private/*.html"`, `"user_agent":"FooBot/1.0"`, `"robots_sha256":"` + strings.Repeat("a", 64) + `"`} {
		if !strings.Contains(got, want) {
			t.Errorf("%s is not in %s", want, got)
		}
	}
}

// TestHostAndClientAreWhole: whatever the origin sends, reports and filters find its records by the host,
// and those of a client by its name.
func TestHostAndClientAreWhole(t *testing.T) {
	r := greedy(strings.Repeat("x", 60<<10))
	r.Request.Client = strings.Repeat("c", 100)
	fetched := fetchLine{trail.KindRobots, fetch.Report{
		Request: fetch.Request{Origin: r.Request.Origin, Token: "x"}, Result: &fetch.Result{UserAgent: "x"},
		Hops: append([]string{"https://site.test/robots.txt"}, slices.Repeat([]string{"http://" + strings.Repeat("x", 60<<10)}, 20)...),
	}}
	for _, what := range []line{r, &fetched} {
		var got trail.Entry
		if err := json.Unmarshal(append(appendLine(nil, what, &Options{Replica: "proxy-1"}), '}'), &got); err != nil {
			t.Fatal(err)
		}
		if got.Host != r.Request.Origin.Host {
			t.Errorf("the host is %q", got.Host)
		}
		if got.IsRequest() && got.Client != r.Request.Client {
			t.Errorf("the client is %q", got.Client)
		}
	}
}

// FuzzText: a string is whole, or cut between characters with its length behind.
func FuzzText(f *testing.F) {
	for _, s := range strangers(300) {
		f.Add(s, uint16(0), uint16(0))
		f.Add(s, uint16(200), uint16(9))
	}
	f.Fuzz(func(t *testing.T, s string, more, behind uint16) {
		limit, whole := minText+int(more), len(s)+int(behind)
		b := appendText([]byte("x"), s, limit, whole)[1:]
		if len(b) > limit {
			t.Fatalf("%d bytes, over %d: %q", len(b), limit, b)
		}
		var got string
		if err := json.Unmarshal(fmt.Appendf(nil, `"%s"`, b), &got); err != nil {
			t.Fatalf("%q: %v", b, err)
		}
		if fits := len(appendEscaped(nil, s)) <= limit; fits && behind == 0 {
			if got != asRead(s) {
				t.Errorf("%q came back as %q", s, got)
			}
			return
		}
		head, ok := strings.CutSuffix(got, "…("+strconv.Itoa(whole)+" bytes)")
		if !ok || !strings.HasPrefix(asRead(s), head) {
			t.Errorf("%q was cut to %q", s, got)
		}
	})
}

// FuzzRecord: whatever strangers send, a record is JSON, within its bounds, and has the
// URL whole.
func FuzzRecord(f *testing.F) {
	for _, s := range strangers(1000) {
		f.Add("GET", "/?"+s, s, s, s, s, s)
		f.Add(s, s, "a", "b", "c", "d", "e")
	}
	f.Fuzz(func(t *testing.T, method, path, agent, rule, token, wish, fault string) {
		r := greedy(fault)
		r.Request.Method, r.Request.PathQuery, r.Request.UserAgent = method, path, agent
		r.Decision.Rule, r.Decision.Group, r.Decision.Token = rule, rule, token
		r.Preferences.RobotsTag = Preference{wish[:min(len(wish), maxPreference)], len(wish)}
		members := held(t, appendLine(nil, r, &Options{}))
		var entry trail.Entry
		for name, to := range map[string]any{"url": &entry.URL, "url_base64": &entry.URLBytes} {
			if value := members[name]; value != nil {
				testkit.Must(t, json.Unmarshal(value, to))
			}
		}
		if url, _ := entry.RequestURL(); method != "CONNECT" && path != "*" && len(path) <= trail.MaxURL && url != r.Request.Target.String() {
			t.Errorf("the URL of %q is %q", path, url)
		}
	})
}
