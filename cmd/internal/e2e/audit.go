package e2e

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/csv"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"robotsproxy/robots/testkit"
)

// A Record is one line of the audit file with every member that a line may have.
type Record struct {
	Time          time.Time      `json:"time"`
	ID            string         `json:"id"`
	Replica       string         `json:"replica"`
	Client        string         `json:"client"`
	Via           string         `json:"via"`
	Method        string         `json:"method"`
	URL           string         `json:"url"`
	URLBytes      []byte         `json:"url_base64"`
	Host          string         `json:"host"`
	UserAgent     string         `json:"user_agent"`
	Agent         string         `json:"agent"`
	Decision      string         `json:"decision"`
	Reason        string         `json:"reason"`
	Enforced      *bool          `json:"enforced"`
	Entry         string         `json:"entry"`
	EntryReason   string         `json:"entry_reason"`
	Rule          string         `json:"rule"`
	Line          int            `json:"line"`
	JoinedLine    int            `json:"joined_line"`
	Reading       string         `json:"reading"`
	Group         string         `json:"group"`
	RobotsURL     string         `json:"robots_url"`
	RobotsFetched string         `json:"robots_fetched"`
	RobotsAgent   string         `json:"robots_agent"`
	RobotsSHA256  string         `json:"robots_sha256"`
	Dialect       string         `json:"dialect"`
	RobotsStale   bool           `json:"robots_stale"`
	RobotsDecoded string         `json:"robots_decoded"`
	TDMRepSHA256  string         `json:"tdmrep_sha256"`
	RobotsSignal  string         `json:"robots_content_signal"`
	RobotsUsage   string         `json:"robots_content_usage"`
	CrawlDelay    float64        `json:"crawl_delay_s"`
	CrawlAsked    float64        `json:"crawl_delay_asked_s"`
	CrawlLine     int            `json:"crawl_delay_line"`
	WaitMS        float64        `json:"wait_ms"`
	Sent          time.Time      `json:"sent"`
	Labels        string         `json:"labels"`
	BodySHA256    string         `json:"body_sha256"`
	BodyBytes     int64          `json:"body_bytes"`
	PaceMS        float64        `json:"pace_ms"`
	Burst         int            `json:"burst"`
	BackOff       float64        `json:"back_off_s"`
	BackOffBy     string         `json:"back_off_by"`
	Slowed        float64        `json:"slowed_s"`
	NotBefore     time.Time      `json:"not_before"`
	Signed        string         `json:"signed"`
	Unsigned      string         `json:"unsigned"`
	TLS           string         `json:"tls"`
	Dropped       int            `json:"dropped_fields"`
	StoreAway     bool           `json:"store_away"`
	RobotsTag     string         `json:"x_robots_tag"`
	ContentSignal string         `json:"content_signal"`
	ContentUsage  string         `json:"content_usage"`
	TDMReserved   string         `json:"tdm_reservation"`
	TDMPolicy     string         `json:"tdm_policy"`
	Price         string         `json:"crawler_price"`
	License       string         `json:"license"`
	Usage         map[string]Use `json:"usage"`
	UsageSource   string         `json:"usage_source"`
	Withheld      bool           `json:"withheld"`
	WARC          WARCPlace      `json:"warc"`
	Status        int            `json:"status"`
	Bytes         int64          `json:"bytes"`
	DurationMS    float64        `json:"duration_ms"`
	Error         string         `json:"error"`
	Seq           uint64         `json:"seq"`

	// Of the line; "" for a request.
	Kind    string   `json:"kind"`
	Hops    []string `json:"hops"`
	Outcome string   `json:"outcome"`
	SHA256  string   `json:"sha256"`

	// Of the file itself, for a line of that kind.
	Event   string   `json:"event"`
	Count   int      `json:"count"`
	Clients int      `json:"clients"`
	File    string   `json:"file"`
	Detail  string   `json:"detail"`
	By      string   `json:"by"`
	IDs     []string `json:"ids"`
	Keys    []string `json:"keys"`
	Config  string   `json:"config_sha256"`
	CA      string   `json:"ca_sha256"`
	Include string   `json:"include"`
	Version string   `json:"version"`
}

// A WARCPlace is where the archive has a response.
type WARCPlace struct {
	File   string `json:"file"`
	Offset int64  `json:"offset"`
	ID     string `json:"id"`
}

// A Use is what a Record says about the use of the content for one purpose.
type Use struct {
	Outcome   string `json:"outcome"`
	Statement string `json:"statement"`
	Source    string `json:"source"`
	Line      int    `json:"line"`
}

// members is the closed set of member names that a request's line may have.
var members = strings.Fields(`
	time id replica client via method url url_base64 host user_agent agent labels decision reason enforced entry entry_reason rule
	line joined_line reading group robots_url robots_fetched robots_agent robots_sha256 dialect robots_stale robots_decoded
	tdmrep_url tdmrep_fetched tdmrep_agent tdmrep_sha256 tdmrep_stale robots_content_signal robots_content_usage
	crawl_delay_s crawl_delay_asked_s crawl_delay_line wait_ms sent pace_ms burst back_off_s back_off_by slowed_s not_before signed unsigned tls
	dropped_fields cached store_away x_robots_tag content_signal content_usage tdm_reservation tdm_policy crawler_price
	license usage usage_source withheld warc body_sha256 body_bytes status bytes duration_ms error v seq prev hash salts`)

// fetchMembers is the closed set for lines about the proxy's own fetches.
var fetchMembers = strings.Fields(`
	time kind replica url host hops user_agent agent signed outcome sha256 fetched status bytes duration_ms error v seq prev
	hash salts`)

// begunMembers is the closed set for lines about requests that are under way.
var begunMembers = strings.Fields(`
	time kind id replica client via method url url_base64 host user_agent agent decision reason enforced v seq prev hash salts`)

// eventMembers is the closed set for lines about the file and the process.
var eventMembers = strings.Fields(`
	time kind event replica host reason detail until by file octets sha256 count reasons clients client ids keys config_sha256 ca_sha256
	include version origin first_seq last_seq v seq prev hash salts`)

// ReadAudit parses the request records in the file and skips an incomplete last line.
func ReadAudit(t testing.TB, file string) []Record {
	t.Helper()
	return slices.DeleteFunc(ReadLines(t, file), func(r Record) bool { return r.Kind != "" })
}

// ReadLines parses records of all kinds.
func ReadLines(t testing.TB, file string) []Record {
	t.Helper()
	text, err := os.ReadFile(file)
	if os.IsNotExist(err) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	records, _ := ParseLines(t, text, Chained{})
	return records
}

// ParseLines checks each line against the hash chain and its members against the closed sets.
func ParseLines(t testing.TB, text []byte, last Chained) (records []Record, _ Chained) {
	t.Helper()
	for line := range bytes.Lines(text) {
		if !bytes.HasSuffix(line, []byte("\n")) {
			break
		}
		last = follows(t, line, last)
		var named map[string]json.RawMessage
		if err := json.Unmarshal(line, &named); err != nil {
			t.Fatalf("audit line is not JSON: %v\n%s", err, line)
		}
		var r Record
		if err := json.Unmarshal(line, &r); err != nil {
			t.Fatalf("audit line: %v\n%s", err, line)
		}
		known := map[string][]string{
			"": members, "event": eventMembers, "begun": begunMembers, "contact": begunMembers,
			"robots": fetchMembers, "tdmrep": fetchMembers,
		}[r.Kind]
		for name := range named {
			if !slices.Contains(known, name) {
				t.Fatalf("audit line has an unknown member %q: %s", name, line)
			}
		}
		if r.Kind != "" {
			records = append(records, r)
			continue
		}
		if r.Time.IsZero() || r.ID == "" || r.Reason == "" || (r.Decision != "allow" && r.Decision != "block") {
			t.Errorf("audit line lacks time, id, reason or decision: %s", line)
		}
		records = append(records, r)
	}
	return records, last
}

// Chained holds a line's position in the chain.
type Chained struct {
	Seq        uint64
	Prev, Hash string
}

// follows checks a line against the line before it, as the contract documents.
func follows(t testing.TB, line []byte, last Chained) (c Chained) {
	t.Helper()
	if err := json.Unmarshal(line, &c); err != nil {
		t.Fatalf("audit line is not JSON: %v\n%s", err, line)
	}
	sum := sha256.Sum256(hashedForm(t, line))
	if want := hex.EncodeToString(sum[:]); c.Hash != want {
		t.Fatalf("audit line has the hash %q, want %q: %s", c.Hash, want, line)
	}
	first := last == Chained{}
	if !first && (c.Seq != last.Seq+1 || c.Prev != last.Hash) || first && c.Seq == 1 && c.Prev != strings.Repeat("0", 64) {
		t.Fatalf("audit line %d, %s, behind %d, %s", c.Seq, c.Prev, last.Seq, last.Hash)
	}
	return c
}

// hashedForm returns the hashed form of a line, as the documentation defines it.
func hashedForm(t testing.TB, line []byte) []byte {
	t.Helper()
	form := line[:bytes.LastIndex(line, []byte(`,"hash":"`))]
	var salted struct {
		Salts map[string]string `json:"salts"`
	}
	if err := json.Unmarshal(line, &salted); err != nil {
		t.Fatal(err)
	}
	for name, salt := range salted.Salts {
		random, err := base64.RawURLEncoding.DecodeString(salt)
		found := regexp.MustCompile(`,"` + name + `":"((?:[^"\\]|\\.)*)"`).FindSubmatchIndex(form)
		if err != nil || found == nil {
			t.Fatalf("salt of %s: %v: %s", name, err, line)
		}
		start, end, slash := found[2], found[3], ""
		if name == "url" {
			start += len(regexp.MustCompile(`^(?:[^/?]*://)?[^/?]*`).Find(form[start:end]))
			slash = "/"
		}
		sum := sha256.Sum256(append(random, form[start:end]...))
		form = slices.Concat(form[:start], []byte(slash+"sha256:"+base64.RawURLEncoding.EncodeToString(sum[:])), form[end:])
	}
	return form
}

// RecordsOf returns the records of one URL.
func RecordsOf(records []Record, url string) []Record {
	return slices.DeleteFunc(slices.Clone(records), func(r Record) bool { return r.URL != url })
}

// AwaitRecord waits for the only record of the URL. The record of an allowed request is
// written when the request ends, possibly after the client has read the response.
func AwaitRecord(t testing.TB, file, url string) Record {
	t.Helper()
	var found []Record
	testkit.Eventually(t, "a record of "+url, func() bool {
		found = RecordsOf(ReadAudit(t, file), url)
		return len(found) > 0
	})
	if len(found) > 1 {
		t.Errorf("%d records of %s, want 1", len(found), url)
	}
	return found[0]
}

// AwaitEvent waits for the first line about an event.
func AwaitEvent(t testing.TB, file, event string) (found Record) {
	t.Helper()
	testkit.Eventually(t, "the event "+event, func() bool {
		lines := ReadLines(t, file)
		i := slices.IndexFunc(lines, func(r Record) bool { return r.Event == event })
		if i >= 0 {
			found = lines[i]
		}
		return i >= 0
	})
	return found
}

// OnlyRecord returns the only record of the URL, which must be on disk already: the proxy
// writes a refusal's record before it sends the refusal.
func OnlyRecord(t testing.TB, file, url string) Record {
	t.Helper()
	found := RecordsOf(ReadAudit(t, file), url)
	if len(found) != 1 {
		t.Fatalf("%d records of %s when its answer had come, want 1", len(found), url)
	}
	return found[0]
}

// WantBlocked checks that a record describes a refusal.
func WantBlocked(t testing.TB, r Record, reason string, status int) {
	t.Helper()
	if r.Decision != "block" || r.Reason != reason || r.Status != status {
		t.Errorf("record of %s: decision %q, reason %q, status %d; want block, %q, %d",
			r.URL, r.Decision, r.Reason, r.Status, reason, status)
	}
}

// An Explanation holds the members of audit explain --json that the tests check.
type Explanation struct {
	Record struct {
		Reason   string `json:"reason"`
		Decision string `json:"decision"`
		Dialect  string `json:"dialect"`
		SHA256   string `json:"robots_sha256"`
	} `json:"record"`
	Place struct {
		Hash bool `json:"hash_holds"`
	} `json:"place"`
	Snapshot string `json:"snapshot"`
	TDMRep   string `json:"tdmrep_snapshot"`
	Fetch    *struct {
		URL    string `json:"url"`
		Status int    `json:"status"`
	} `json:"fetch"`
	Derived *struct {
		Same    bool `json:"same"`
		Differs []struct {
			Member string `json:"member"`
		} `json:"differs"`
		Notes []string `json:"notes"`
	} `json:"rederived"`
}

// Explain runs audit explain on a record and checks the replayed decision if it rests on a file.
func (p *Proxy) Explain(t *testing.T, r Record, status int) Explanation {
	t.Helper()
	got := Command(t, "audit", "explain", "-c", p.Config, "--json", r.ID).Want(t, status).Stdout
	var x Explanation
	if err := json.Unmarshal([]byte(got), &x); err != nil {
		t.Fatalf("%v: %s", err, got)
	}
	if !x.Place.Hash || x.Record.Reason != r.Reason {
		t.Errorf("%s: %s", r.URL, got)
	}
	switch {
	case r.RobotsSHA256 == "" && x.Derived != nil:
		t.Errorf("%s: made again from no file: %s", r.URL, got)
	case r.RobotsSHA256 != "" && (x.Derived == nil || x.Snapshot != "there" || x.Fetch == nil || x.Derived.Same != (status == 0)):
		t.Errorf("%s: %s", r.URL, got)
	}
	return x
}

// An AuditReport holds the members of audit report --format json that the tests check.
type AuditReport struct {
	Source struct {
		Files struct {
			Rows []struct {
				Name  string `json:"name"`
				Lines int64  `json:"lines"`
				First int64  `json:"first_seq"`
				Last  int64  `json:"last_seq"`
			} `json:"rows"`
		} `json:"files"`
		Lines      int64 `json:"lines"`
		Requests   int64 `json:"requests"`
		Unreadable int64 `json:"unreadable"`
		Chain      struct {
			Held bool `json:"held"`
		} `json:"chain"`
	} `json:"source"`
	Totals struct {
		Requests int64 `json:"requests"`
		Blocked  int64 `json:"blocked"`
	} `json:"totals"`
}

// Reports runs audit report in every format, possibly while the audit is written.
func (p *Proxy) Reports(t *testing.T) (sum AuditReport) {
	t.Helper()
	for _, format := range []string{"text", "csv", "json", "html"} {
		got := Command(t, "audit", "report", "-c", p.Config, "--format", format).Want(t, 0)
		if got.Stderr != "" {
			t.Errorf("report --format %s: %s", format, got.Stderr)
		}
		var err error
		switch format {
		case "json":
			err = json.Unmarshal([]byte(got.Stdout), &sum)
		case "csv":
			_, err = csv.NewReader(strings.NewReader(got.Stdout)).ReadAll()
		case "text":
			if !strings.Contains(got.Stdout, "\n  chain      holds: no line between ") {
				t.Errorf("report: %s", got.Stdout)
			}
		case "html":
			if !strings.HasSuffix(got.Stdout, "</html>\n") || strings.Contains(got.Stdout, `class="alarm"`) {
				t.Errorf("report --format html: %s", got.Stdout)
			}
		}
		if err != nil {
			t.Errorf("report --format %s: %v", format, err)
		}
	}
	return sum
}

// Whole checks that a report counted each line exactly once.
func (a *AuditReport) Whole(t *testing.T) {
	t.Helper()
	next := int64(1)
	for _, f := range a.Source.Files.Rows {
		if f.First != next || f.Last != f.First+f.Lines-1 {
			t.Errorf("file %+v, its first line should be %d", f, next)
		}
		next = f.Last + 1
	}
	if !a.Source.Chain.Held || a.Source.Lines != next-1 || a.Source.Unreadable != 0 || a.Totals.Requests != a.Source.Requests {
		t.Errorf("%+v", a)
	}
}

// RefusedID requests a URL that robots.txt forbids and returns the record ID in the refusal.
func RefusedID(c *http.Client, url string) (string, error) {
	resp, err := c.Get(url)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return "", err
	}
	_, id, ok := strings.Cut(string(text), "\nid:")
	if resp.StatusCode != http.StatusForbidden || !ok {
		return "", fmt.Errorf("status %d: %s", resp.StatusCode, text)
	}
	return strings.TrimSpace(id), nil
}
