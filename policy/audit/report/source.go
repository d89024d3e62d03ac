package report

import (
	"slices"

	"robotsproxy/policy/audit/trail"
)

// A source is what a report rests on.
type source struct {
	Name       string     `json:"-"`                // of one of several; "": there is one
	Trails     []strand   `json:"trails,omitempty"` // where there are several, each of them
	Files      list[file] `json:"files"`
	Lines      int64      `json:"lines"`
	Requests   int64      `json:"requests"`   // records of requests, before the filters
	Fetches    int64      `json:"fetches"`    // lines of fetches of robots.txt
	Events     int64      `json:"events"`     // lines that speak of the trail
	Lost       int64      `json:"lost"`       // records that could not be written, by these events
	Counted    int64      `json:"counted"`    // refusals that were counted and not recorded, likewise
	Unreadable int64      `json:"unreadable"` // lines that are no record
	Chain      chain      `json:"chain"`

	path string // of the file that is read
	file *file  // its row; beyond the list, one that nobody sees
}

// A file is one of a trail's.
type file struct {
	Name     string `json:"name"` // without its directory, or of several trails without what all have in common
	Lines    int64  `json:"lines"`
	FirstSeq uint64 `json:"first_seq"`
	LastSeq  uint64 `json:"last_seq"`
}

// A chain is how the lines hold together, as [trail.Verify] has it.
type chain struct {
	Held     bool   `json:"held"`              // every line was whole and followed from the one before
	FirstSeq uint64 `json:"first_seq"`         // above 1 where older files have been taken away; 0 of several trails
	Removed  bool   `json:"removed,omitempty"` // some were while the trail was read, before their turn
	Pruned   bool   `json:"pruned,omitempty"`  // the proxy removed the older files, as a line says
	Anchor   string `json:"anchor"`            // of the last line, where the chain held and has one
	Fault    *fault `json:"fault,omitempty"`   // the first
}

// A fault is where a chain does not hold: a [trail.Fault].
type fault struct {
	File   string `json:"file,omitempty"` // without its directory
	Line   int    `json:"line,omitempty"`
	Seq    uint64 `json:"seq,omitempty"`
	Kind   string `json:"kind"`
	Detail string `json:"detail"`
}

// unreadable is the kind of fault where the end of the trail was not reached.
const unreadable = "unreadable"

func newSource(name string) *source {
	return &source{Name: name, Files: list[file]{Most: maxFiles, Rows: []file{}}}
}

// line counts a line of a number, 0 where it has none.
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

// begin makes a file the one that is read.
func (s *source) begin(path string) {
	f := file{Name: s.called(path)}
	s.path, s.file = path, &f
	before := len(s.Files.Rows)
	if s.Files.add(f); len(s.Files.Rows) > before {
		s.file = &s.Files.Rows[before]
	}
}

// judge takes what was found of the chain, and the error that ended the reading, if one.
func (s *source) judge(res *trail.Result, found *trail.Fault, err error) {
	s.Chain = chain{Held: found == nil && err == nil, FirstSeq: res.First, Removed: res.Removed, Pruned: res.Pruned}
	switch {
	case found != nil:
		f := fault(*found)
		f.File = s.called(f.File)
		s.Chain.Fault = &f
	case err != nil:
		s.Chain.Fault = &fault{Kind: unreadable, Detail: err.Error()}
	case res.Lines > 0:
		s.Chain.Anchor = res.Anchor().String()
	}
}

// copy is the source as it is now known.
func (s *source) copy() source {
	c := *s
	c.Files.Rows = slices.Clone(c.Files.Rows)
	return c
}

// String is a fault in the words of audit verify.
func (f *fault) String() string {
	if f.Kind == unreadable {
		return f.Detail
	}
	return (*trail.Fault)(f).Error()
}
