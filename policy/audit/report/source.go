package report

import (
	"path"
	"path/filepath"
	"slices"

	"robotsproxy/policy/audit/trail"
)

// A source describes the trail on which a report is based.
type source struct {
	// Name is that of the trail, if there are several.
	Name string `json:"-"`

	// Trails are all trails, if there are several.
	Trails []trailSource `json:"trails,omitempty"`
	Files  list[file]    `json:"files"`
	lineCounts
	Chain chain `json:"chain"`

	// path is that of the file that is read.
	path string

	// file is its row; if the list is full, one that is not in it.
	file *file
}

// lineCounts count the lines of a trail.
type lineCounts struct {
	Lines int64 `json:"lines"`

	// Requests is the number of records of requests, whatever the filters.
	Requests int64 `json:"requests"`

	// Fetches is the number of lines about fetches of robots.txt, and TDMRep that of tdmrep.json.
	Fetches int64 `json:"fetches"`
	TDMRep  int64 `json:"tdmrep_fetches"`

	// Events is the number of lines about the trail.
	Events int64 `json:"events"`

	// Lost is the number of records that could not be written, and Counted that of refusals that were counted instead of
	// recorded, by these events.
	Lost    int64 `json:"lost"`
	Counted int64 `json:"counted"`

	// Unreadable is the number of lines that cannot be parsed.
	Unreadable int64 `json:"unreadable"`
}

// merge adds the counts of another trail.
func (c *lineCounts) merge(o *lineCounts) {
	c.Lines += o.Lines
	c.Requests += o.Requests
	c.Fetches += o.Fetches
	c.TDMRep += o.TDMRep
	c.Events += o.Events
	c.Lost = addCapped(c.Lost, o.Lost)
	c.Counted = addCapped(c.Counted, o.Counted)
	c.Unreadable += o.Unreadable
}

// A file is a segment of a trail.
type file struct {
	// Name is that of the file without its directory; if there are several trails, without the directory that all have in
	// common.
	Name     string `json:"name"`
	Lines    int64  `json:"lines"`
	FirstSeq uint64 `json:"first_seq"`
	LastSeq  uint64 `json:"last_seq"`
}

// A chain is the result of [trail.Verify].
type chain struct {
	// Held reports that every line is complete and follows the one before.
	Held bool `json:"held"`

	// FirstSeq is above 1 if older segments were removed. It and LastSeq are 0 for several trails.
	FirstSeq uint64 `json:"first_seq"`
	LastSeq  uint64 `json:"last_seq"`

	// Removed reports that segments were removed while the trail was read.
	Removed bool `json:"removed,omitempty"`

	// Pruned reports that an event says that the proxy removed the older segments.
	Pruned bool `json:"pruned,omitempty"`

	// Anchor is that of the last line, if the chain holds.
	Anchor string `json:"anchor"`

	// Fault is the first fault. Its File has no directory.
	Fault *trail.Fault `json:"fault,omitempty"`
}

// unreadable is the kind of a fault where the trail could not be read to its end.
const unreadable = "unreadable"

func newSource(name string) *source {
	return &source{Name: name, Files: list[file]{Most: maxFiles, Rows: []file{}}}
}

// line counts a line with a seq, or 0 if it has none.
func (s *source) line(path string, seq uint64) {
	if s.file == nil || path != s.path {
		s.begin(path)
	}
	s.Lines++
	s.file.Lines++
	if seq == 0 {
		return
	}
	s.file.LastSeq = seq
	if s.file.FirstSeq == 0 {
		s.file.FirstSeq = seq
	}
}

// begin begins a new file.
func (s *source) begin(path string) {
	f := file{Name: s.fileName(path)}
	s.path, s.file = path, &f
	before := len(s.Files.Rows)
	if s.Files.add(f); len(s.Files.Rows) > before {
		s.file = &s.Files.Rows[before]
	}
}

// setChain stores the result of verification, and the error that ended the reading, if any.
func (s *source) setChain(res *trail.Result, found *trail.Fault, err error) {
	s.Chain = chain{Held: found == nil && err == nil, FirstSeq: res.First, LastSeq: res.Last.Seq, Removed: res.Removed, Pruned: res.Pruned}
	switch {
	case found != nil:
		f := *found
		f.File = s.fileName(f.File)
		s.Chain.Fault = &f
	case err != nil:
		s.Chain.Fault = &trail.Fault{Kind: unreadable, Detail: err.Error()}
	case res.Lines > 0:
		s.Chain.Anchor = res.Anchor().String()
	}
}

// fault returns the fault as audit verify prints it; "": the chain holds.
func (c *chain) fault() string {
	switch {
	case c.Fault == nil:
		return ""
	case c.Fault.Kind == unreadable:
		return shown(c.Fault.Detail)
	}
	return shown(c.Fault.Error())
}

// mergeSources sums several sources. Their chain holds if each of them does; its fault is the
// first fault of the first chain that does not.
func mergeSources(all []*source) source {
	if len(all) == 1 {
		s := *all[0]
		s.Files.Rows = slices.Clone(s.Files.Rows)
		return s
	}
	sum := source{Files: list[file]{Most: maxFiles, Rows: []file{}}, Chain: chain{Held: true}}
	for _, s := range all {
		files := int64(len(s.Files.Rows)) + s.Files.Others
		sum.Trails = append(sum.Trails, trailSource{clip(s.Name), files, s.lineCounts, s.Chain})
		for _, f := range s.Files.Rows {
			sum.Files.add(f)
		}
		sum.Files.Others += s.Files.Others
		sum.merge(&s.lineCounts)
		sum.Chain.Held = sum.Chain.Held && s.Chain.Held
		sum.Chain.Removed = sum.Chain.Removed || s.Chain.Removed
		if sum.Chain.Fault == nil {
			sum.Chain.Fault = s.Chain.Fault
		}
	}
	return sum
}

// fileName returns the name of a segment: its own name, after the directories of the trail if
// the trail is one of several.
func (s *source) fileName(file string) string {
	if s.Name == "" {
		return filepath.Base(file)
	}
	return path.Join(path.Dir(filepath.ToSlash(s.Name)), filepath.Base(file))
}

// A trailSource is one of several trails.
type trailSource struct {
	Name  string `json:"name"`
	Files int64  `json:"files"`
	lineCounts
	Chain chain `json:"chain"`
}
