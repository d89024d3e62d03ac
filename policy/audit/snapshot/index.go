package snapshot

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode/utf16"

	"robotsproxy/robots/fetch"
)

const (
	maxText  = 8 << 10   // octets of a URL or an error that a line holds; what is longer is cut
	maxLine  = 128 << 10 // octets of a line, which is longer than any of ours: \u takes six
	maxBlock = 64 << 10  // octets that are read at once
)

// A Fetch is a line of the index: an answer, and when a decision of a day first
// rested on it. An answer in use has a line for each day, and one for each start of
// the program. Strings are as the origin made them.
type Fetch struct {
	Saved              time.Time     `json:"kept"`
	Fetched            time.Time     `json:"fetched,omitzero"`
	URL                string        `json:"url"`                  // what answered, after redirects
	UserAgent          string        `json:"user_agent,omitempty"` // of the fetch
	Status             int           `json:"status,omitempty"`
	SHA256             string        `json:"sha256,omitempty"` // of the octets; "": there are none
	Bytes              int           `json:"octets,omitempty"`
	Redirects          int           `json:"redirects,omitempty"`
	BadRedirect        bool          `json:"lost,omitempty"`   // the redirects lead to no file
	RedirectDisallowed bool          `json:"barred,omitempty"` // a redirect leads to an address that is disallowed there, see Error
	Headers            fetch.Headers `json:"headers,omitzero"`
	Error              string        `json:"error,omitempty"`
}

// fetchOf is what the index says of an answer that is kept at now.
func fetchOf(a *fetch.Result, now time.Time) Fetch {
	f := Fetch{
		Saved: now, Fetched: a.Fetched.UTC(), URL: cut(a.URL), UserAgent: a.UserAgent, Status: a.Status,
		SHA256: a.SHA256, Bytes: len(a.Body), Redirects: a.Redirects, BadRedirect: a.BadRedirect, RedirectDisallowed: a.RedirectDisallowed,
	}
	if a.Headers != nil {
		f.Headers = *a.Headers
	}
	if a.Err != nil {
		f.Error = cut(a.Err.Error())
	}
	return f
}

func cut(s string) string { return s[:min(len(s), maxText)] }

// lineOf gives a line of the index, after a line break.
func lineOf(f Fetch) ([]byte, error) {
	text, err := json.Marshal(f)
	return append(appendASCII([]byte{'\n'}, text), '\n'), err
}

// appendASCII writes JSON in ASCII alone, so that no stranger's octets can move a
// terminal's cursor.
func appendASCII(b, text []byte) []byte {
	for _, r := range string(text) {
		if r < 0x7f {
			b = append(b, byte(r))
			continue
		}
		for _, unit := range utf16.AppendRune(nil, r) {
			b = fmt.Appendf(b, "\\u%04x", unit)
		}
	}
	return b
}

// The index has a file for each day of UTC.
const (
	dayForm = time.DateOnly
	dayEnd  = ".jsonl"
)

func dayOf(t time.Time) string { return t.UTC().Format(dayForm) }

// indexPath is where the index of a day is.
func indexPath(dir string, day time.Time) string {
	return filepath.Join(dir, indexName, dayOf(day)+dayEnd)
}

// days gives the days that the index of a directory has files of, the oldest first.
func days(dir string) (all []time.Time, err error) {
	entries, err := os.ReadDir(filepath.Join(dir, indexName))
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		name, ok := strings.CutSuffix(e.Name(), dayEnd)
		if day, err := time.Parse(dayForm, name); ok && err == nil {
			all = append(all, day)
		}
	}
	return all, nil // as ReadDir sorts
}

// Index reads the index of a directory of snapshots, the newest line first, and of
// its lines only those that have a text in them ("": all). A line that is no line of
// an index is passed over: it is being written, or was torn in a crash. An error ends
// it; where there is no index it is fs.ErrNotExist.
func Index(dir, having string) iter.Seq2[Fetch, error] {
	quoted, _ := json.Marshal(having) // a string always can be
	text := appendASCII(nil, quoted[1:len(quoted)-1])
	return func(yield func(Fetch, error) bool) {
		all, err := days(dir)
		if err != nil {
			yield(Fetch{}, fmt.Errorf("read the index: %w", err))
			return
		}
		for _, day := range slices.Backward(all) {
			for line, err := range backward(indexPath(dir, day)) {
				if errors.Is(err, fs.ErrNotExist) {
					break // pruned meanwhile
				}
				if err != nil {
					yield(Fetch{}, fmt.Errorf("read the index: %w", err))
					return
				}
				var f Fetch
				if !bytes.Contains(line, text) || json.Unmarshal(line, &f) != nil {
					continue
				}
				if !yield(f, nil) {
					return
				}
			}
		}
	}
}

// backward gives the whole lines of a file, the last one first, each good until the
// next. One longer than maxLine is not given.
func backward(path string) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		file, err := os.Open(path)
		if err != nil {
			yield(nil, err)
			return
		}
		defer file.Close()
		at, err := file.Seek(0, io.SeekEnd)
		if err != nil {
			yield(nil, err)
			return
		}
		var tail []byte // from the place at on, but for the lines that were given
		whole := false  // it ends where a line does
		for at > 0 {
			n := min(at, maxBlock)
			at -= n
			block := make([]byte, n, int(n)+len(tail))
			if _, err := file.ReadAt(block, at); err != nil {
				yield(nil, err)
				return
			}
			tail = append(block, tail...)
			for {
				end := bytes.LastIndexByte(tail, '\n')
				if end < 0 {
					break
				}
				line := tail[end+1:]
				tail = tail[:end]
				if whole && len(line) <= maxLine && !yield(line, nil) {
					return
				}
				whole = true
			}
			if len(tail) > maxLine {
				tail, whole = nil, false // no line of ours, nor what is left of it
			}
		}
		if whole {
			yield(tail, nil)
		}
	}
}
