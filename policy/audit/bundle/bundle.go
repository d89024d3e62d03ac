// Package bundle writes and verifies bundles. A bundle is a zip file with some lines of an audit, and with proofs that the audit had
// them.
//
//	manifest.json         what was selected, and the SHA-256 of each other file
//	README.txt            what the bundle proves, and what not
//	report.html           the report of the records
//	records.jsonl         the records that were selected
//	configuration.jsonl   the events of the audit, from the start of the process that wrote the first record
//	robots/fetches.jsonl  the lines about the fetches of the files that they were decided by
//	robots/SHA256         robots.txt and tdmrep.json files by which the records were decided
//	lines.jsonl           all other lines between two checkpoints, with hidden values, if the bundle is complete
//	proofs.json           the hashes that join the lines to the roots of the checkpoints
//	checkpoints/SEQ       the checkpoints, named by the numbers of their last lines
//	checkpoints/keys      the public keys of the audit's writer
//	timestamps/SEQ.tsr    the responses of a time-stamp authority for the checkpoints
//	warc/content.warc.gz  what the archive has of the records
//
// The lines stand as they are in the audit, but values can be hidden (trail.Hide). Any number of goroutines may call the functions.
package bundle

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"robotsproxy/policy"
	"robotsproxy/policy/audit/trail"
	"robotsproxy/policy/labels"
	"robotsproxy/robots"
)

// The names of the files.
const (
	manifestName   = "manifest.json"
	readmeName     = "README.txt"
	reportName     = "report.html"
	recordsName    = "records.jsonl"
	eventsName     = "configuration.jsonl"
	fetchesName    = "robots/fetches.jsonl"
	robotsDir      = "robots/"
	linesName      = "lines.jsonl"
	proofsName     = "proofs.json"
	checkpointsDir = "checkpoints/"
	publicKeysName = "checkpoints/keys"
	stampsDir      = "timestamps/"
	stampExt       = ".tsr"
)

// ContentName is the name of the file with WARC records.
const ContentName = "warc/content.warc.gz"

// formatVersion is that of manifests.
const formatVersion = 1

// A Manifest says what a bundle has.
type Manifest struct {
	// Format is formatVersion.
	Format int `json:"format"`

	// Made is when the bundle was made, by a program of this version.
	Made    time.Time `json:"made"`
	Version string    `json:"version"`

	Selection Selection `json:"selection"`

	// Complete is the range of which the bundle has all lines; nil: other records of the selection may have been left out.
	Complete *Range `json:"complete,omitempty"`

	// Files are all other files, in the order of the zip file.
	Files []File `json:"files"`
}

// A File is a file of a bundle.
type File struct {
	Name   string `json:"name"`
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256"`
}

// A Selection says which records a bundle has: those that match all that is set.
type Selection struct {
	// Host is a name, or *.suffix, and Client the name of a client; HiddenClient if it is hidden.
	Host   string `json:"host,omitempty"`
	Client string `json:"client,omitempty"`

	// Labels are those that each record has, as labels.Set.
	Labels string `json:"labels,omitempty"`

	// Since and Until are when the requests arrived: at Since or later, and before Until.
	Since time.Time `json:"since,omitzero"`
	Until time.Time `json:"until,omitzero"`

	// IDs are those of records.
	IDs []string `json:"ids,omitempty"`

	// Hidden are the members whose values are hidden in these records: client, user_agent or url.
	Hidden []string `json:"hidden,omitempty"`
}

// String says in words what is selected.
func (s *Selection) String() string {
	var b strings.Builder
	b.WriteString("requests")
	for _, part := range []struct{ label, value string }{
		{"to", s.Host}, {"of the client", s.Client}, {"with the labels", s.Labels},
		{"from", rfc3339(s.Since)}, {"before", rfc3339(s.Until)},
		{"with the IDs", strings.Join(s.IDs, ", ")},
	} {
		if part.value != "" {
			fmt.Fprintf(&b, " %s %s", part.label, part.value)
		}
	}
	return b.String()
}

// rfc3339 returns a time as texts have it; "" for the zero time.
func rfc3339(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339)
}

// HiddenClient is the Client of a Selection whose client is hidden.
const HiddenClient = "(hidden)"

// hideable are the names for Selection.Hidden, with the members of a line.
var hideable = map[string][]string{
	"client": {"client"}, "labels": {"labels"}, "user_agent": {"user_agent", "robots_agent", "tdmrep_agent"},
	"url": {"url", "url_base64", "body_sha256"},
}

// HideableNames returns the names for Selection.Hidden.
func HideableNames() []string { return slices.Sorted(maps.Keys(hideable)) }

// isHidden reports whether the value of a member is hidden.
func (s *Selection) isHidden(member string) bool {
	return slices.ContainsFunc(s.Hidden, func(name string) bool { return slices.Contains(hideable[name], member) })
}

// A filter is a Selection whose host was parsed.
type filter struct {
	*Selection

	// hosts is nil if the selection has all hosts, and ids if it has all IDs.
	hosts *policy.HostPatterns
	ids   map[string]bool
}

// filter returns the filter of a selection, and an error if it selects everything, or its host is not in its only form.
func (s *Selection) filter() (f filter, err error) {
	if s.Host == "" && s.Client == "" && s.Labels == "" && len(s.IDs) == 0 {
		return f, errors.New("no host, client, label or ID is selected")
	}
	f.Selection = s
	if s.Host != "" {
		host, err := NormalHost(s.Host)
		if err == nil && host != s.Host {
			err = fmt.Errorf("the host %.100q is not in the form %.100q", s.Host, host)
		}
		if err == nil {
			f.hosts, err = policy.NewHostPatterns([]string{host})
		}
		if err != nil {
			return f, err
		}
	}
	for _, id := range s.IDs {
		if f.ids == nil {
			f.ids = make(map[string]bool, len(s.IDs))
		}
		f.ids[id] = true
	}
	return f, nil
}

// NormalHost returns the only form in which a Selection has a host, or *.suffix.
func NormalHost(pattern string) (string, error) {
	name, isSuffix := strings.CutPrefix(pattern, "*.")
	host, err := robots.ParseHost(name)
	if err == nil && isSuffix {
		host = "*." + host
	}
	return host, err
}

// selects reports whether the selection has a record.
func (f *filter) selects(e *trail.Entry) bool {
	return f.selectsIfClient(e) && (f.Client == "" || e.Client == f.Client)
}

// selectsIfClient reports whether the selection has a record if the client, which may be hidden, is that of the selection.
func (f *filter) selectsIfClient(e *trail.Entry) bool {
	return f.inTime(e) && (f.hosts == nil || f.isOfHost(e)) && (f.ids == nil || f.ids[e.ID]) &&
		labels.Set(e.Labels).Has(labels.Set(f.Labels))
}

// isOfHost reports whether a line is about a request to the host of the selection.
func (f *filter) isOfHost(e *trail.Entry) bool { return f.hosts != nil && f.hosts.Has(hostOf(e)) }

// hostOf returns the host of a request. A malformed request has it only in its URL.
func hostOf(e *trail.Entry) string {
	if e.Host != "" {
		return e.Host
	}
	scheme, authority, _, _ := robots.SplitURL(e.URL)
	if o, err := robots.ParseOrigin(scheme, authority); err == nil {
		return o.Host
	}
	name, _, _ := strings.Cut(authority[strings.LastIndex(authority, "@")+1:], ":")
	return strings.ToLower(name)
}

// isRequest reports whether a line is about a request: its record, or a connection for it.
func isRequest(e *trail.Entry) bool { return e.IsRequest() || e.Kind == trail.KindContact }

// inTime reports whether a request arrived within the time of the selection.
func (f *filter) inTime(e *trail.Entry) bool {
	return !e.Time.Before(f.Since) && (f.Until.IsZero() || e.Time.Before(f.Until))
}

// A Range is the lines From to To, both included. It begins after the last line of a checkpoint, or with the tree, and ends with the
// last line of a checkpoint.
type Range struct {
	From uint64 `json:"from"`
	To   uint64 `json:"to"`
}

// has reports whether a line is in the range.
func (r *Range) has(seq uint64) bool { return r != nil && r.From <= seq && seq <= r.To }
