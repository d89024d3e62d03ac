package snapshot

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"robotsproxy/policy/audit"
	"robotsproxy/policy/audit/trail"
	"robotsproxy/policy/explain/humanize"
	"robotsproxy/robots"
	"robotsproxy/robots/fetch"
)

const (
	// maxText bounds a URL or an error in a line, in bytes; longer ones are cut.
	maxText = 8 << 10
	// maxLine bounds a line, in bytes. No line is longer, though an escaped character takes six bytes.
	maxLine = 128 << 10
)

// A Fetch is a line of the index: an answer, and when a decision first rested on it on a day. An
// answer that is used has a line for each day, and one for each start of the program. Its strings
// may have any characters that the origin sent.
type Fetch struct {
	Saved   time.Time `json:"kept"`
	Fetched time.Time `json:"fetched,omitzero"`

	// URL is that of the response, after redirects.
	URL string `json:"url"`

	// UserAgent is the header of the fetch.
	UserAgent string `json:"user_agent,omitempty"`
	Status    int    `json:"status,omitempty"`

	// SHA256 is the hash of the bytes; "": there are none.
	SHA256 string `json:"sha256,omitempty"`

	// Coding is that of the bytes under the standard dialect; see robots.Decode.
	Coding    string `json:"coding,omitempty"`
	Bytes     int    `json:"octets,omitempty"`
	Redirects int    `json:"redirects,omitempty"`

	// TooManyRedirects reports that there were more redirects than a fetch follows.
	TooManyRedirects bool `json:"lost,omitempty"`

	// DeadRedirect reports that a redirect cannot be followed; Error says why.
	DeadRedirect bool `json:"dead,omitempty"`

	// RedirectDisallowed reports that the robots.txt of the target disallows a redirect; Error names it.
	RedirectDisallowed bool          `json:"barred,omitempty"`
	Headers            fetch.Headers `json:"headers,omitzero"`
	Error              string        `json:"error,omitempty"`
}

// fetchOf returns the Fetch of an answer that is saved at now.
func fetchOf(a *fetch.Result, now time.Time) Fetch {
	f := Fetch{
		Saved: now, Fetched: a.Fetched.UTC(), URL: cut(a.URL), UserAgent: a.UserAgent, Status: a.Status,
		SHA256: a.SHA256, Bytes: len(a.Body), Redirects: a.Redirects,
		TooManyRedirects: a.TooManyRedirects, DeadRedirect: a.DeadRedirect, RedirectDisallowed: a.RedirectDisallowed,
	}
	_, coding, decodeErr := robots.Decode(string(a.Body), robots.Standard())
	f.Coding = coding
	if a.Headers != nil {
		f.Headers = *a.Headers
	}
	if err := cmp.Or(a.Err, decodeErr); err != nil {
		f.Error = cut(humanize.Error(err))
	}
	return f
}

func cut(s string) string { return s[:min(len(s), maxText)] }

// indexLine returns a line of the index, after a line feed. It is in ASCII only, so that no string of an origin can move a
// terminal's cursor.
func indexLine(f Fetch) ([]byte, error) {
	text, err := json.Marshal(f)
	return fmt.Appendf(nil, "\n%s\n", audit.EscapeASCII(text)), err
}

const (
	indexName = "index" // the directory
	indexExt  = ".jsonl"
	dayLayout = time.DateOnly
	day       = 24 * time.Hour
)

func dayOf(t time.Time) string { return t.UTC().Format(dayLayout) }

// indexPath returns the path of the index of a day.
func indexPath(dir string, day time.Time) string {
	return filepath.Join(dir, indexName, dayOf(day)+indexExt)
}

// days returns the days for which the index has files, the oldest first.
func days(dir string) (all []time.Time, err error) {
	entries, err := os.ReadDir(filepath.Join(dir, indexName))
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		name, ok := strings.CutSuffix(e.Name(), indexExt)
		if day, err := time.Parse(dayLayout, name); ok && err == nil {
			all = append(all, day)
		}
	}
	// ReadDir has sorted them.
	return all, nil
}

// Index reads the index of a directory of snapshots, the newest line first. It returns only lines
// that contain the text having ("": all). It skips a line that cannot be parsed, since it is being
// written or was torn in a crash. An error ends it; if there is no index, the error is
// fs.ErrNotExist.
func Index(dir, having string) iter.Seq2[Fetch, error] {
	// This never fails for a string.
	quoted, _ := json.Marshal(having)
	text := audit.EscapeASCII(quoted[1 : len(quoted)-1])
	return func(yield func(Fetch, error) bool) {
		all, err := days(dir)
		if err != nil {
			yield(Fetch{}, fmt.Errorf("read the index: %w", err))
			return
		}
		for _, day := range slices.Backward(all) {
			for line, err := range trail.Backward(indexPath(dir, day), maxLine) {
				if errors.Is(err, fs.ErrNotExist) {
					// The file was removed meanwhile.
					break
				}
				if err != nil {
					yield(Fetch{}, fmt.Errorf("read the index: %w", err))
					return
				}
				var f Fetch
				if !bytes.Contains(line.Text, text) || json.Unmarshal(line.Text, &f) != nil {
					continue
				}
				if !yield(f, nil) {
					return
				}
			}
		}
	}
}
