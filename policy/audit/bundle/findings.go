package bundle

import (
	"bytes"
	"cmp"
	_ "embed"
	"slices"
	"strings"
	"text/template"
	"time"

	"robotsproxy/policy/audit/checkpoint"
	"robotsproxy/policy/audit/trail"
	"robotsproxy/policy/explain/humanize"
)

// Findings sum up a bundle. Write and Verify return them.
type Findings struct {
	Manifest

	// Records is the number of records, and Hidden that of those with hidden values. Unfinished of them are requests that began, and
	// have no record. From and To are when the first and the last request arrived.
	Records, Hidden, Unfinished int
	From, To                    time.Time

	// Covered is the number of records that a checkpoint covers, and UncoveredSince when the first of the others arrived.
	Covered        int
	UncoveredSince time.Time

	// UncoveredLines is the number of events and fetches that no checkpoint covers.
	UncoveredLines int

	// Stamped is the number of records that a checkpoint with a time-stamp covers, and StampedBy the last of the times that show it.
	Stamped   int
	StampedBy time.Time

	// Events and Fetches are the numbers of the other lines that are shown.
	Events, Fetches int

	// BlockedOnly says that for a while the audit has got records of refused requests alone (audit.include).
	BlockedOnly bool

	// Judged is the number of records whose decision was made again, with the same result.
	Judged int

	// Held is the number of checkpoints from elsewhere that the bundle agrees with.
	Held int

	// Snapshots is the number of robots.txt and tdmrep.json files, and Missing that of those that records name, and that are not
	// there.
	Snapshots, Missing int

	// Checkpoints are those of the bundle, in the order of their lines.
	Checkpoints []Verified

	// Others is the number of lines of a complete bundle whose values are hidden. OfHost of them are records of requests to the host:
	// their client, time or ID is not selected.
	Others, OfHost int

	// ClientNames are the clients that the records name, and OtherHosts is the number of hosts that only the other lines of a complete
	// bundle name. Write alone knows them, and counts at most maxNames of each.
	ClientNames []string
	OtherHosts  int

	// HasContent says that the bundle has WARC records, and Captures has the body_sha256 of the records, by the IDs of WARC records
	// that they name.
	HasContent bool
	Captures   map[string]string
}

// maxNames bounds the names that Findings count.
const maxNames = 10_000

// addRecord counts a record, or the beginning of a request without one.
func (f *Findings) addRecord(e *trail.Entry) {
	f.Records++
	if e.Hidden() {
		f.Hidden++
	}
	if e.Kind == trail.KindBegun {
		f.Unfinished++
	}
	if f.From.IsZero() || e.Time.Before(f.From) {
		f.From = e.Time
	}
	if e.Time.After(f.To) {
		f.To = e.Time
	}
	if e.WARC.ID != "" {
		if f.Captures == nil {
			f.Captures = map[string]string{}
		}
		f.Captures[e.WARC.ID] = e.BodySHA256
	}
}

// addLine counts a line of a file that is not a record.
func (f *Findings) addLine(file string, e *trail.Entry) {
	switch file {
	case eventsName:
		f.Events++
		f.BlockedOnly = f.BlockedOnly || e.Include == "blocked"
	case fetchesName:
		f.Fetches++
	case linesName:
		f.Others++
	}
}

// covering returns the first checkpoint that covers a line. ok is false if none does.
func (f *Findings) covering(seq uint64) (checkpoint int, ok bool) {
	i, _ := slices.BinarySearchFunc(f.Checkpoints, seq, func(c Verified, seq uint64) int { return cmp.Compare(c.Seq, seq) })
	return i, i < len(f.Checkpoints) && f.Checkpoints[i].First() <= seq
}

// cover counts the records that the checkpoints cover.
func (f *Findings) cover(records []selectedLine) {
	// stamped has for each checkpoint the first of its tree from there on that has a time-stamp.
	stamped := make([]*Verified, len(f.Checkpoints))
	for i := range slices.Backward(f.Checkpoints) {
		switch c := &f.Checkpoints[i]; {
		case !c.Stamped.IsZero():
			stamped[i] = c
		case i+1 < len(stamped) && stamped[i+1] != nil && stamped[i+1].First() == c.First():
			stamped[i] = stamped[i+1]
		}
	}
	for _, r := range records {
		i, covered := f.covering(r.seq)
		if !covered {
			if f.UncoveredSince.IsZero() || r.arrived.Before(f.UncoveredSince) {
				f.UncoveredSince = r.arrived
			}
			continue
		}
		f.Covered++
		if c := stamped[i]; c != nil {
			f.Stamped++
			if c.Stamped.After(f.StampedBy) {
				f.StampedBy = c.Stamped
			}
		}
	}
}

// A Verified is a checkpoint of a bundle. Its root is that of the bundle's lines.
type Verified struct {
	checkpoint.Checkpoint

	// Signed says that a known key has signed it.
	Signed bool

	// Stamped is the time that a time-stamp states; zero: there is none. Proved says that a trusted authority has signed it.
	Stamped time.Time
	Proved  bool
}

//go:embed readme.tmpl
var readmeText string

// readme returns the README of a bundle.
func (f *Findings) readme() ([]byte, error) {
	t, err := template.New("").Funcs(template.FuncMap{
		"count": humanize.Count, "number": humanize.Number, "day": rfc3339, "printable": humanize.Printable,
		"join": func(all []string) string { return strings.Join(all, ", ") },
	}).Parse(readmeText)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	err = t.Execute(&b, f)
	return b.Bytes(), err
}

// Uncovered returns the number of records that no checkpoint covers.
func (f *Findings) Uncovered() int { return f.Records - f.Covered }

// Newest returns the newest checkpoint; nil: there is none.
func (f *Findings) Newest() *Verified {
	if len(f.Checkpoints) == 0 {
		return nil
	}
	return &f.Checkpoints[len(f.Checkpoints)-1]
}

// ends returns when the checkpoints at the ends of the range of a complete bundle were made; zero: it begins with the audit.
func (f *Findings) ends() (from, to time.Time) {
	for _, c := range f.Checkpoints {
		switch c.Seq {
		case f.Complete.From - 1:
			from = c.Time
		case f.Complete.To:
			to = c.Time
		}
	}
	return from, to
}

// Between says between which checkpoints a bundle is complete: "up to 2026-11-29T10:00:00Z" if there is none before.
func (f *Findings) Between() string {
	from, to := f.ends()
	if from.IsZero() {
		return "up to " + rfc3339(to)
	}
	return "from " + rfc3339(from) + " to " + rfc3339(to)
}

// IsShort reports whether the range of a complete bundle has not the whole time that the selection names.
func (f *Findings) IsShort() bool {
	from, to := f.ends()
	return !f.Selection.Since.IsZero() && f.Selection.Since.Before(from) || f.Selection.Until.After(to)
}
