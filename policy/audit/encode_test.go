package audit

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"robotsproxy/policy"
	"robotsproxy/policy/audit/trail"
	"robotsproxy/policy/pace"
	"robotsproxy/policy/usage"
	"robotsproxy/robots"
	"robotsproxy/robots/cache"
	"robotsproxy/robots/fetch"
	"robotsproxy/robots/testkit"
)

func allowed() *Record {
	return &Record{
		Time: time.Date(2026, 11, 21, 10, 0, 0, 5, time.FixedZone("", 3600)), ID: "a-1",
		Request: policy.Request{
			Client: "127.0.0.1", Method: "GET", Target: robots.Target{Origin: robots.Origin{Scheme: "https", Host: "site.test", Port: 443},
				PathQuery: "/page?q=1"}, UserAgent: "FooBot/1.0", Labels: "job=news,team=a",
		},
		Decision: policy.Decision{
			Verdict: policy.Allow, Reason: policy.ReasonRule, Rule: "/p", Line: 3, Group: "foobot", Token: "FooBot",
			Asked: 100 * time.Second, Pace: pace.Limits{CrawlDelay: 10 * time.Second},
			Ruling: cache.Ruling{Meaning: cache.Rules, Result: &fetch.Result{URL: "https://site.test/robots.txt", UserAgent: "robotsproxy/1.0", SHA256: "ab", Fetched: time.Unix(0, 0)}},
		},
		Waited: 1500 * time.Microsecond, Status: 200, Bytes: 12, Took: 2 * time.Second,
	}
}

func refused() *Record {
	r := allowed()
	r.Decision.Verdict = policy.Refuse
	r.Status, r.Err = 403, errors.New("why")
	return r
}

// encoded is a record's line without its end.
func encoded(r *Record, o Options) string { return string(appendLine(nil, r, &o)) }

func TestLineSaysWhatHeldTheRequestUp(t *testing.T) {
	r := allowed()
	r.BackOff, r.BackOffBy, r.Slowed = 90*time.Second+499*time.Microsecond, "a-2", 1500*time.Millisecond+500*time.Microsecond
	const want = `"wait_ms":1.5,"back_off_s":90,"back_off_by":"a-2","slowed_s":1.501,"status":200,`
	if got := encoded(r, Options{}); !strings.Contains(got, want) {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestLineHoldsWhatTheContractNames(t *testing.T) {
	const want = `{"time":"2026-11-21T09:00:00.000000005Z","id":"a-1","client":"127.0.0.1","method":"GET",` +
		`"url":"https://site.test/page?q=1","host":"site.test","user_agent":"FooBot/1.0","agent":"FooBot",` +
		`"decision":"allow","reason":"rule","enforced":true,"labels":"job=news,team=a","rule":"/p","line":3,"group":"foobot",` +
		`"robots_url":"https://site.test/robots.txt","robots_fetched":"1970-01-01T00:00:00.000000000Z","robots_agent":"robotsproxy/1.0","robots_sha256":"ab",` +
		`"crawl_delay_s":10,"crawl_delay_asked_s":100,"wait_ms":1.5,"status":200,"bytes":12,"duration_ms":2000`
	if got := encoded(allowed(), Options{}); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestLineHoldsTheTDMRep(t *testing.T) {
	r := allowed()
	r.Decision.TDMRep = cache.Ruling{Meaning: cache.Rules, Stale: true, Result: &fetch.Result{URL: "https://site.test/.well-known/tdmrep.json", UserAgent: "robotsproxy/1.0", SHA256: "cd", Fetched: time.Unix(1, 0)}}
	const want = `"robots_sha256":"ab","tdmrep_url":"https://site.test/.well-known/tdmrep.json","tdmrep_fetched":"1970-01-01T00:00:01.000000000Z",` +
		`"tdmrep_agent":"robotsproxy/1.0","tdmrep_sha256":"cd","tdmrep_stale":true,"crawl_delay_s":10,`
	if got := encoded(r, Options{}); !strings.Contains(got, want) {
		t.Errorf("got %s\nwant %s in it", got, want)
	}
}

// Of several, the line says whose it is, and that they could not be asked.
func TestLineOfAReplica(t *testing.T) {
	r := allowed()
	r.Slowed, r.StoreAway = time.Second, true
	got := encoded(r, Options{Replica: `proxy "1"`})
	for _, want := range []string{`,"id":"a-1","replica":"proxy \"1\"","client":`, `"slowed_s":1,"store_away":true,"status":200,`} {
		if !strings.Contains(got, want) {
			t.Errorf("got %s\nwant %s in it", got, want)
		}
	}
	if alone := encoded(allowed(), Options{}); strings.Contains(alone, "replica") || strings.Contains(alone, "store_away") {
		t.Errorf("on its own: %s", alone)
	}
}

func TestLineHoldsTheEntry(t *testing.T) {
	r := allowed()
	r.Decision = policy.Decision{Verdict: policy.Allow, Reason: policy.ReasonOverride, Entry: "*.site.test", EntryReason: "ticket \"7\" \u202e"}
	const want = `"decision":"allow","reason":"override","enforced":true,"labels":"job=news,team=a","entry":"*.site.test","entry_reason":"ticket \"7\" \u202e","wait_ms":1.5,`
	if got := encoded(r, Options{}); !strings.Contains(got, want) {
		t.Errorf("got %s\nwant %s in it", got, want)
	}
}

func TestURL(t *testing.T) {
	for _, c := range []struct {
		name      string
		change    func(*Record)
		dropQuery bool
		want      string
	}{
		{"whole", func(*Record) {}, false, "https://site.test/page?q=1"},
		{"query_strings: drop", func(*Record) {}, true, "https://site.test/page"},
		{"CONNECT", func(r *Record) { r.Request.Method = "CONNECT" }, false, "site.test:443"},
		{"malformed, as the client wrote it", func(r *Record) {
			r.Request.Origin, r.Target = robots.Origin{}, "http://u:p@x/?s"
		}, true, "http://u:p@x/"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := allowed()
			c.change(r)
			var line struct{ URL string }
			if err := json.Unmarshal([]byte(encoded(r, Options{DropQuery: c.dropQuery})+"}"), &line); err != nil || line.URL != c.want {
				t.Errorf("url %q, %v; want %q", line.URL, err, c.want)
			}
		})
	}
}

func TestClientsCannotForgeALine(t *testing.T) {
	r := refused()
	hostile := "a\"}\n{\"decision\":\"allow\x00\x1b[2J\u009b31m\u202eltr\xff\U0001F600\U000E0001é\x7f"
	r.Request.UserAgent, r.Request.PathQuery, r.Decision.Rule = hostile, hostile, hostile
	b := encoded(r, Options{}) + "}"
	for _, c := range b {
		if c < ' ' || c == 0x7f || c == 0x9b || c == 0x202e || c == 0xE0001 {
			t.Errorf("%U stands in the line unescaped", c)
		}
	}
	var line map[string]any
	if err := json.Unmarshal([]byte(b), &line); err != nil {
		t.Fatal(err)
	}
	if got, want := line["user_agent"], strings.ToValidUTF8(hostile, "\ufffd"); got != want {
		t.Errorf("read back as %q, want %q", got, want)
	}
}

func FuzzEscaped(f *testing.F) {
	f.Add("plain")
	f.Add("\x00\"\\\xff\U0001F600\u2028")
	f.Fuzz(func(t *testing.T, s string) {
		b := appendString(nil, s)
		var got string
		if err := json.Unmarshal(b, &got); err != nil {
			t.Fatalf("%q: %v", b, err)
		}
		if got != asRead(s) {
			t.Errorf("%q came back as %q", s, got)
		}
	})
}

// everyLine returns a line of each kind; together they have every member.
func everyLine() [][]byte {
	r := refused()
	r.Decision.Form = policy.SlashesMerged | policy.DotsRemoved
	r.Decision.Entry, r.Decision.EntryReason, r.Decision.Dialect = "*.site.test", "permitted", "standard"
	r.Decision.JoinedLine, r.Decision.Decoded, r.Decision.DelayLine = 1, "gzip", 2
	r.Decision.Ruling.Stale, r.Decision.ContentUsage, r.Decision.Signals.Search = true, "train-ai=n", robots.Yes
	r.Decision.TDMRep = r.Decision.Ruling
	r.Sent, r.Interval, r.Burst, r.Decision.Retry = time.Now(), time.Second, 5, time.Now()
	r.BackOff, r.BackOffBy, r.Slowed, r.StoreAway, r.Cached, r.Transparent = time.Second, "a-2", time.Second, true, true, true
	r.Preferences = Preferences{Preference{"a", 1}, Preference{"b", 1}, Preference{"c", 1}, Preference{"d", 1}, Preference{"e", 1}, Preference{"f", 1}, Preference{"g", 1}}
	r.Withheld, r.Decision.Licenses = true, "https://site.test/license.xml"
	r.Decision.Usage.Purposes, r.Decision.Statements = usage.SetOf(usage.TrainAI), forbidding("noai")
	r.Signed, r.Unsigned, r.LegacyTLS, r.Dropped = "key", policy.UnsignedClient, true, 1
	r.Archived = Archived{File: "a.warc.gz", Offset: 1, ID: "urn:uuid:1"}
	r.Received = Received{Bytes: 1}
	e := &event{Event: "lost", Detail: "d", File: "f", FileBytes: 1, SHA256: "s", Count: 1, Reasons: map[string]int64{"auth": 1, "limit": 2}, Clients: 2, Client: "c", FirstSeq: 1, LastSeq: 2,
		Program: "1.2", Origin: "o", Config: "c", CA: "AB", Include: "blocked", Keys: []string{"mode"}, IDs: []string{"a", "b"},
		Host: "h", Reason: "r", Until: time.Now(), By: "b"}
	var salter trail.Salter
	line, _ := salter.AppendSalted(appendLine(nil, r, &Options{Replica: "proxy-1"}), 0, 1, trail.Hash{})
	about, _ := salter.AppendSalted(appendLine(nil, e, &Options{Replica: "proxy-1"}), 0, 2, trail.Hash{})
	r.Request.PathQuery = "/\xff"
	bytes, _ := salter.AppendSalted(appendLine(nil, r, &Options{}), 0, 4, trail.Hash{})
	away := fetchLine{trail.KindRobots, fetch.Report{Hops: []string{"http://site.test/robots.txt", "http://site.test/r"}, Result: &fetch.Result{Status: 500}}}
	asked, _ := salter.AppendSalted(appendLine(nil, &away, &Options{}), 0, 3, trail.Hash{})
	return [][]byte{line, about, asked, bytes}
}

// What is written here is read there.
func TestEntryHasEveryMember(t *testing.T) {
	seen := map[string]bool{"v": true, "prev": true, "hash": true}
	for _, line := range everyLine() {
		var members map[string]json.RawMessage
		if err := json.Unmarshal(line, &members); err != nil {
			t.Fatal(err)
		}
		for name := range members {
			seen[name] = true
		}
	}
	fields := reflect.TypeFor[trail.Entry]()
	for i := range fields.NumField() {
		name := fields.Field(i).Tag.Get("json")
		if !seen[name] {
			t.Errorf("no line has the member %q", name)
		}
		delete(seen, name)
	}
	delete(seen, "prev")
	delete(seen, "hash")
	for name := range seen {
		t.Errorf("an Entry has no member %q", name)
	}
}

// TestMembersStandInTheOrderOfEntry for each kind of line. An event has its client last.
func TestMembersStandInTheOrderOfEntry(t *testing.T) {
	var want []string
	for field := range reflect.TypeFor[trail.Entry]().Fields() {
		want = append(want, field.Tag.Get("json"))
	}
	// The salts come last.
	want = append(want[:len(want)-1], "prev", "hash", "salts")
	for _, line := range everyLine() {
		names := members(t, line)
		if slices.Contains(names, "event") {
			names = slices.DeleteFunc(names, func(name string) bool { return name == "client" })
		}
		if !slices.IsSortedFunc(names, func(a, b string) int { return slices.Index(want, a) - slices.Index(want, b) }) {
			t.Errorf("the members are not in the order of trail.Entry: %q", names)
		}
	}
}

// members returns the names of a line's members in their order.
func members(t *testing.T, line []byte) (names []string) {
	t.Helper()
	in := json.NewDecoder(bytes.NewReader(line))
	for _, err := in.Token(); in.More(); {
		name, nameErr := in.Token()
		var value json.RawMessage
		testkit.Must(t, errors.Join(err, nameErr, in.Decode(&value)))
		names = append(names, name.(string))
	}
	return names
}

// TestDocsNameEveryMember: the tables of the page about records name each member, and no others.
func TestDocsNameEveryMember(t *testing.T) {
	page, err := os.ReadFile("../../docs/audit-records.md")
	testkit.Must(t, err)
	lines, _, _ := strings.Cut(string(page), "## The JSON report")
	quoted := regexp.MustCompile("`([a-z0-9_]+)`")
	// The head of the tables about kinds and events names these two. An event may have the members of a start.
	documented := map[string]bool{"kind": true, "event": true, "detail": true}
	column := 0
	for row := range strings.Lines(lines) {
		cells := strings.Split(row, "|")
		switch {
		case len(cells) < 4:
			column = 0
		case strings.TrimSpace(cells[1]) == "member":
			column = 1
		case strings.TrimSpace(cells[len(cells)-2]) == "further members":
			column = 3
		case column > 0:
			names := strings.ReplaceAll(cells[column], "those of `start`", "")
			for _, name := range quoted.FindAllStringSubmatch(names, -1) {
				documented[name[1]] = true
			}
		}
	}
	var members []string
	for field := range reflect.TypeFor[trail.Entry]().Fields() {
		members = append(members, field.Tag.Get("json"))
	}
	members = append(members, "prev", "hash")
	slices.Sort(members)
	if got := slices.Sorted(maps.Keys(documented)); !slices.Equal(got, members) {
		t.Errorf("the page has %q\na line has %q", got, members)
	}
}
