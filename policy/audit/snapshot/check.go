package snapshot

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/maphash"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"time"

	"robotsproxy/policy/audit/trail"
	"robotsproxy/robots/cache"
	"robotsproxy/robots/fetch"
)

// maxFaults bounds CheckResult.Faults.
const maxFaults = 20

// A Check compares a directory of snapshots with the trail whose decisions are based on them. It
// needs about 100 bytes of memory for each fetch in the trail. Create one with NewCheck. It is
// for one goroutine.
type Check struct {
	seed maphash.Seed

	// files are the files by their hashes.
	files map[[sha256.Size]byte]recordedFile

	// fetches are the fetches by the Unix time when they ended, in nanoseconds.
	fetches map[int64][]fetchLine
}

// A recordedFile is one that records rest on.
type recordedFile struct {
	// seq is that of the first record.
	seq uint64

	// kind is an index of shaNames.
	kind int
}

// A fetchLine is what a line of kind [trail.KindRobots] or [trail.KindTDMRep] says about a fetch.
type fetchLine struct {
	seq uint64

	// result is a hash of the status, the redirects, the SHA-256, the number of bytes and the outcome.
	result uint64

	// url has no query.
	url       hashedText
	userAgent hashedText

	// indexed reports that the index says the same.
	indexed bool
}

// A hashedText is the hash of a string or, if the line has only the beginning of the string, of that.
type hashedText struct {
	hash uint64

	// most is how many bytes the beginning has; 0: the line has the whole string.
	most int
}

// NewCheck returns a Check.
func NewCheck() *Check {
	return &Check{maphash.MakeSeed(), map[[sha256.Size]byte]recordedFile{}, map[int64][]fetchLine{}}
}

var (
	fetchKinds = [][]byte{[]byte(`,"kind":"` + trail.KindRobots + `"`), []byte(`,"kind":"` + trail.KindTDMRep + `"`)}

	// shaEnd ends the names of the members with a SHA-256, and shaNames are the beginnings of those of files.
	shaEnd   = []byte(`_sha256":"`)
	shaNames = [][]byte{[]byte(`"robots`), []byte(`"tdmrep`)}
)

// Add adds a line of the trail, which was verified.
func (c *Check) Add(line []byte, l trail.Link) {
	for rest := line; ; {
		// Within a string, the quotes of the name would be escaped.
		name, digits, found := bytes.Cut(rest, shaEnd)
		if !found {
			break
		}
		for kind, begins := range shaNames {
			if bytes.HasSuffix(name, begins) && len(digits) >= hexHashLen {
				c.addFile(digits[:hexHashLen], recordedFile{l.Seq, kind})
			}
		}
		rest = digits
	}
	start := line[:min(len(line), 100)]
	if !slices.ContainsFunc(fetchKinds, func(kind []byte) bool { return bytes.Contains(start, kind) }) {
		return
	}
	e, err := trail.Read(line)
	if err != nil || e.Fetched.IsZero() {
		return
	}
	ended := e.Fetched.UnixNano()
	f := c.fetchLine(e.Status, len(e.Hops), e.SHA256, e.Bytes, cache.FetchOutcome(e.FetchOutcome), e.LastURL(), e.UserAgent)
	f.seq = l.Seq
	c.fetches[ended] = append(c.fetches[ended], f)
}

// addFile adds a file by its hash.
func (c *Check) addFile(digits []byte, f recordedFile) {
	var sum [sha256.Size]byte
	if _, err := hex.Decode(sum[:], digits); err == nil && c.files[sum] == (recordedFile{}) {
		c.files[sum] = f
	}
}

// fetchLine returns the fetchLine of a line of the trail or of the index, without its seq.
func (c *Check) fetchLine(status, redirects int, sha string, size int64, outcome cache.FetchOutcome, url, userAgent string) fetchLine {
	if outcome != cache.FetchedRules && outcome != cache.FetchedNoFile {
		// The index does not tell failures from one another, and has no bytes that were rejected.
		outcome, sha, size = cache.FetchedUnreachable, "", 0
	}
	result := c.hash(fmt.Sprint(status, redirects, sha, size, outcome))
	return fetchLine{result: result, url: c.hashText(withoutQuery(url)), userAgent: c.hashText(userAgent)}
}

func (c *Check) hash(s string) uint64 { return maphash.String(c.seed, s) }

// withoutQuery returns a URL without its query, which lines of the trail may lack.
func withoutQuery(url string) string {
	url, _, _ = strings.Cut(url, "?")
	return url
}

// hashText hashes a string of the trail, which may be cut.
func (c *Check) hashText(s string) hashedText {
	if head, _, cut := trail.CutText(s); cut {
		return hashedText{c.hash(head), len(head)}
	}
	return hashedText{c.hash(s), 0}
}

// isSame reports whether a string of the index may be the one that was hashed.
func (c *Check) isSame(h hashedText, s string) bool {
	if h.most > 0 {
		s = s[:min(len(s), h.most)]
	}
	return h.hash == c.hash(s)
}

// A CheckResult says what Check.Compare has found.
type CheckResult struct {
	// Robots counts robots.txt files, and TDMRep counts tdmrep.json files.
	Robots, TDMRep FileCounts

	// Fetches is the number of lines of the index that say what the trail says.
	Fetches int

	// Unknown is the number of lines of the index about fetches that are not in the trail.
	Unknown int

	// Unindexed is the number of fetches in the trail without a line of the index that says the same.
	Unindexed int

	// Faults are about the first files and lines that are not as they were written, and More is the number of the others.
	Faults []error
	More   int
}

// FileCounts count files that records rest on.
type FileCounts struct {
	// Unchanged is the number of files whose bytes have the hash that records rest on.
	Unchanged int

	// Missing is the number of hashes without a file: it was removed.
	Missing int
}

func (r *CheckResult) fault(format string, args ...any) {
	if len(r.Faults) == maxFaults {
		r.More++
		return
	}
	r.Faults = append(r.Faults, fmt.Errorf(format, args...))
}

// Compare compares what was added with the files in dir. The error is of reading.
func (c *Check) Compare(dir string) (r CheckResult, err error) {
	bySeq := func(a, b [sha256.Size]byte) int { return cmp.Compare(c.files[a].seq, c.files[b].seq) }
	for _, sum := range slices.SortedFunc(maps.Keys(c.files), bySeq) {
		sha, counts := hex.EncodeToString(sum[:]), [...]*FileCounts{&r.Robots, &r.TDMRep}[c.files[sum].kind]
		_, err := Read(dir, sha)
		switch {
		case err == nil:
			counts.Unchanged++
		case errors.Is(err, fs.ErrNotExist):
			counts.Missing++
		case errors.Is(err, ErrDamaged):
			r.fault("%s: changed: the SHA-256 of its bytes is not its name, on which the record seq %d is based",
				gzipPath(dir, sha), c.files[sum].seq)
		default:
			return r, err
		}
	}
	for f, err := range Index(dir, "") {
		if errors.Is(err, fs.ErrNotExist) {
			break
		} else if err != nil {
			return r, err
		}
		c.compareFetch(&r, &f, dir)
	}
	for _, lines := range c.fetches {
		for _, line := range lines {
			if !line.indexed {
				r.Unindexed++
			}
		}
	}
	return r, nil
}

// compareFetch compares a line of the index with the lines of the trail about fetches that ended
// at the same time.
func (c *Check) compareFetch(r *CheckResult, f *Fetch, dir string) {
	lines := c.fetches[f.Fetched.UnixNano()]
	if len(lines) == 0 {
		r.Unknown++
		return
	}
	outcome := cache.FetchedUnreachable
	if f.Error == "" {
		outcome = cache.FetchOutcomeOf(&fetch.Result{
			Status: f.Status, TooManyRedirects: f.TooManyRedirects, RedirectDisallowed: f.RedirectDisallowed,
		})
	}
	got := c.fetchLine(f.Status, f.Redirects, f.SHA256, int64(f.Bytes), outcome, f.URL, f.UserAgent)
	for i, line := range lines {
		sameURL := c.isSame(line.url, withoutQuery(f.URL)) || !isPlain(f.URL)
		sameAgent := c.isSame(line.userAgent, f.UserAgent) || !isPlain(f.UserAgent)
		if line.result == got.result && sameURL && sameAgent {
			r.Fetches++
			lines[i].indexed = true
			return
		}
	}
	r.fault("%s: changed: the fetch that ended at %s differs from the record seq %d",
		indexPath(dir, f.Saved), f.Fetched.Format(time.RFC3339Nano), lines[0].seq)
}

// isPlain reports whether a string is in a line of a trail unchanged, not escaped, and truncated only
// if the line is long.
func isPlain(s string) bool {
	return len(s) < trail.MaxText && !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r > '~' })
}
