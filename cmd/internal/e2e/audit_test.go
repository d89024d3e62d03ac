package e2e

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

// A record is a line of the audit file, with every member that there is.
type record struct {
	Time          time.Time `json:"time"`
	ID            string    `json:"id"`
	Replica       string    `json:"replica"`
	Client        string    `json:"client"`
	Method        string    `json:"method"`
	URL           string    `json:"url"`
	Host          string    `json:"host"`
	UserAgent     string    `json:"user_agent"`
	Agent         string    `json:"agent"`
	Decision      string    `json:"decision"`
	Reason        string    `json:"reason"`
	Enforced      *bool     `json:"enforced"`
	Entry         string    `json:"entry"`
	EntryReason   string    `json:"entry_reason"`
	Rule          string    `json:"rule"`
	Line          int       `json:"line"`
	Reading       string    `json:"reading"`
	Group         string    `json:"group"`
	RobotsURL     string    `json:"robots_url"`
	RobotsFetched string    `json:"robots_fetched"`
	RobotsAgent   string    `json:"robots_agent"`
	RobotsSHA256  string    `json:"robots_sha256"`
	Dialect       string    `json:"dialect"`
	RobotsStale   bool      `json:"robots_stale"`
	RobotsSignal  string    `json:"robots_content_signal"`
	RobotsUsage   string    `json:"robots_content_usage"`
	CrawlDelay    float64   `json:"crawl_delay_s"`
	CrawlAsked    float64   `json:"crawl_delay_asked_s"`
	WaitMS        float64   `json:"wait_ms"`
	BackOff       float64   `json:"back_off_s"`
	Slowed        float64   `json:"slowed_s"`
	StoreAway     bool      `json:"store_away"`
	RobotsTag     string    `json:"x_robots_tag"`
	ContentSignal string    `json:"content_signal"`
	ContentUsage  string    `json:"content_usage"`
	TDMReserved   string    `json:"tdm_reservation"`
	TDMPolicy     string    `json:"tdm_policy"`
	Status        int       `json:"status"`
	Bytes         int64     `json:"bytes"`
	DurationMS    float64   `json:"duration_ms"`
	Error         string    `json:"error"`
	Seq           uint64    `json:"seq"`
	Kind          string    `json:"kind"` // of the line; "": a request's
	Hops          []string  `json:"hops"`
	Outcome       string    `json:"outcome"`
	SHA256        string    `json:"sha256"`
	Event         string    `json:"event"` // of the file itself
	Count         int       `json:"count"`
	Clients       int       `json:"clients"`
	File          string    `json:"file"`
}

// members is the closed set of names a line may have; robots_stale says that a
// held copy ruled while its origin failed.
var members = strings.Fields(`time id replica client method url host user_agent agent decision reason enforced entry entry_reason rule line reading group
	robots_url robots_fetched robots_agent robots_sha256 dialect robots_stale
	robots_content_signal robots_content_usage crawl_delay_s crawl_delay_asked_s wait_ms back_off_s slowed_s cached store_away
	x_robots_tag content_signal content_usage tdm_reservation tdm_policy status bytes duration_ms error v seq prev hash`)

// fetchMembers is the same of lines that speak of a fetch of a robots.txt.
var fetchMembers = strings.Fields(`time kind replica url host hops user_agent agent outcome sha256 status bytes duration_ms error v seq prev hash`)

// eventMembers is the same of lines that speak of the file.
var eventMembers = strings.Fields(`time kind event replica detail file octets sha256 count reasons clients client first_seq last_seq v seq prev hash`)

// readAudit parses the records of requests in the file as it stands; a last line still
// being written is left out.
func readAudit(t testing.TB, file string) []record {
	t.Helper()
	return slices.DeleteFunc(readLines(t, file), func(r record) bool { return r.Kind != "" })
}

// readLines is readAudit with the lines of other kinds.
func readLines(t testing.TB, file string) []record {
	t.Helper()
	text, err := os.ReadFile(file)
	if os.IsNotExist(err) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	records, _ := parseLines(t, text, chained{})
	return records
}

// parseLines holds each line against the chain, and each of its members against what
// there may be.
func parseLines(t testing.TB, text []byte, last chained) (records []record, _ chained) {
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
		var r record
		if err := json.Unmarshal(line, &r); err != nil {
			t.Fatalf("audit line: %v\n%s", err, line)
		}
		known := map[string][]string{"": members, "event": eventMembers, "robots": fetchMembers}[r.Kind]
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

// chained is what a line says of its place.
type chained struct {
	Seq        uint64
	Prev, Hash string
}

// follows holds a line against the one before it, as anybody can who has read the
// contract: hash is the last member, of the octets before it.
func follows(t testing.TB, line []byte, last chained) (c chained) {
	t.Helper()
	if err := json.Unmarshal(line, &c); err != nil {
		t.Fatalf("audit line is not JSON: %v\n%s", err, line)
	}
	hashed, end, ok := bytes.Cut(line, []byte(`,"hash":"`))
	sum := sha256.Sum256(hashed)
	if want := hex.EncodeToString(sum[:]) + "\"}\n"; !ok || string(end) != want {
		t.Fatalf("audit line ends with %q, want %q: %s", end, want, line)
	}
	first := last == chained{}
	if !first && (c.Seq != last.Seq+1 || c.Prev != last.Hash) || first && c.Seq == 1 && c.Prev != strings.Repeat("0", 64) {
		t.Fatalf("audit line %d, %s, behind %d, %s", c.Seq, c.Prev, last.Seq, last.Hash)
	}
	return c
}

// recordsOf picks the records of one URL.
func recordsOf(records []record, url string) []record {
	return slices.DeleteFunc(slices.Clone(records), func(r record) bool { return r.URL != url })
}

// awaitRecord waits for the one record of the URL: an allowed request's is
// written when it ends, which its client may see first.
func awaitRecord(t testing.TB, file, url string) record {
	t.Helper()
	var found []record
	eventually(t, patience, "a record of "+url, func() bool {
		found = recordsOf(readAudit(t, file), url)
		return len(found) > 0
	})
	if len(found) > 1 {
		t.Errorf("%d records of %s, want 1", len(found), url)
	}
	return found[0]
}

// onlyRecord takes the one record of the URL that must be on disk already: a
// refusal's is written before its answer.
func onlyRecord(t testing.TB, file, url string) record {
	t.Helper()
	found := recordsOf(readAudit(t, file), url)
	if len(found) != 1 {
		t.Fatalf("%d records of %s when its answer had come, want 1", len(found), url)
	}
	return found[0]
}

// wantBlocked holds a record against what a refusal must say.
func wantBlocked(t testing.TB, r record, reason string, status int) {
	t.Helper()
	if r.Decision != "block" || r.Reason != reason || r.Status != status {
		t.Errorf("record of %s: decision %q, reason %q, status %d; want block, %q, %d",
			r.URL, r.Decision, r.Reason, r.Status, reason, status)
	}
}
