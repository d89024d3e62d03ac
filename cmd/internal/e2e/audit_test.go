package e2e

import (
	"bytes"
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
	Group         string    `json:"group"`
	RobotsURL     string    `json:"robots_url"`
	RobotsFetched string    `json:"robots_fetched"`
	RobotsSHA256  string    `json:"robots_sha256"`
	Dialect       string    `json:"dialect"`
	RobotsStale   bool      `json:"robots_stale"`
	CrawlDelay    float64   `json:"crawl_delay_s"`
	CrawlAsked    float64   `json:"crawl_delay_asked_s"`
	WaitMS        float64   `json:"wait_ms"`
	BackOff       float64   `json:"back_off_s"`
	Slowed        float64   `json:"slowed_s"`
	Status        int       `json:"status"`
	Bytes         int64     `json:"bytes"`
	DurationMS    float64   `json:"duration_ms"`
	Error         string    `json:"error"`
}

// members is the closed set of names a line may have; robots_stale says that a
// held copy ruled while its origin failed.
var members = strings.Fields(`time id client method url host user_agent agent decision reason enforced entry entry_reason rule line group
	robots_url robots_fetched robots_sha256 dialect robots_stale crawl_delay_s crawl_delay_asked_s wait_ms back_off_s slowed_s status bytes duration_ms error seq prev hash`)

// readAudit parses the file as it stands; a last line still being written is left out.
func readAudit(t testing.TB, file string) []record {
	t.Helper()
	text, err := os.ReadFile(file)
	if os.IsNotExist(err) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	var records []record
	for line := range bytes.Lines(text) {
		if !bytes.HasSuffix(line, []byte("\n")) {
			break
		}
		var named map[string]json.RawMessage
		if err := json.Unmarshal(line, &named); err != nil {
			t.Fatalf("audit line is not JSON: %v\n%s", err, line)
		}
		for name := range named {
			if !slices.Contains(members, name) {
				t.Fatalf("audit line has an unknown member %q: %s", name, line)
			}
		}
		var r record
		if err := json.Unmarshal(line, &r); err != nil {
			t.Fatalf("audit line: %v\n%s", err, line)
		}
		if r.Time.IsZero() || r.ID == "" || r.Reason == "" || (r.Decision != "allow" && r.Decision != "block") {
			t.Errorf("audit line lacks time, id, reason or decision: %s", line)
		}
		records = append(records, r)
	}
	return records
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
