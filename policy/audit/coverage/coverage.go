// Package coverage compares the lines of a trail with its trees (package tree) and with its checkpoints (package checkpoint),
// and says how many lines each holder of checkpoints covers.
//
// A line is covered by a checkpoint if it is in the tree whose root the checkpoint has. Whoever cannot change the checkpoint
// can then neither change the line nor remove it without a trace.
package coverage

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"robotsproxy/policy/audit/checkpoint"
	"robotsproxy/policy/audit/trail"
	"robotsproxy/policy/audit/tree"
)

// A Held is a checkpoint that is kept somewhere.
type Held struct {
	checkpoint.Checkpoint

	// Holder says where it is kept.
	Holder string

	// Signed reports that a known key has signed it.
	Signed bool

	// Since is the time that a verified time-stamp states; zero: there is none.
	Since time.Time

	// result says whether the root is that of the tree, and lines is then the number of lines of the trail that it covers.
	result result
	lines  int
}

// A result is that of the comparison of a checkpoint with the tree.
type result uint8

const (
	// notCompared: lines that it needs are neither there nor in a tree.
	notCompared result = iota
	sameRoot
	otherRoot
)

// at returns the time from which the checkpoint is known to exist.
func (h *Held) at() time.Time {
	if h.Since.IsZero() {
		return h.Time
	}
	return h.Since
}

// doubt returns a note for an error if no known key has signed the checkpoint.
func (h *Held) doubt() string {
	if h.Signed {
		return ""
	}
	return " (no known key has signed this checkpoint, so anybody may have written it)"
}

// A Check compares one trail. Add all its lines, and then call Compare. It is for one goroutine.
type Check struct {
	trees []*growingTree
	held  []*Held

	// unsigned is the number of checkpoints that do not count.
	unsigned int

	// Origins are those of the trail's checkpoints, as its lines say.
	Origins map[string]bool

	// err is the first fault.
	err error
}

// A growingTree is a tree that grows with the lines.
type growingTree struct {
	*tree.Comparison

	// path is that of its file; "": it has none.
	path string

	// held are the checkpoints of this tree by their last line.
	held map[uint64][]*Held

	// lines is how many of its lines were there, and ended says that one is neither there nor in the file.
	lines int
	ended bool
}

// maxTrees bounds the trees that are made, because strangers may write into a file that several proxies share.
const maxTrees = 100

func signedFirst(a, b *Held) int {
	switch {
	case a.Signed == b.Signed:
		return 0
	case a.Signed:
		return -1
	}
	return 1
}

// A File is the file of a tree.
type File struct {
	Path string
	Tree *tree.Tree
}

// New returns a Check with the trees of the trail and its checkpoints, and those of others, which it sorts. Of several trees
// that begin with the same line, the first one counts. The trees must stay open. onlySigned says that a checkpoint counts only
// if it is Signed.
func New(trees []File, held []Held, onlySigned bool) *Check {
	c := &Check{Origins: map[string]bool{}}
	byFirst := map[uint64]*growingTree{}
	follow := func(f *growingTree) *growingTree {
		if byFirst[f.First()] == nil {
			byFirst[f.First()] = f
			c.trees = append(c.trees, f)
		}
		return byFirst[f.First()]
	}
	for _, t := range trees {
		follow(&growingTree{Comparison: t.Tree.Compare(), path: t.Path, held: map[uint64][]*Held{}})
	}
	// Strangers cannot fill the bound before those that are signed.
	slices.SortStableFunc(held, func(a, b Held) int { return signedFirst(&a, &b) })
	for i := range held {
		h := &held[i]
		if onlySigned && !h.Signed {
			c.unsigned++
			continue
		}
		if byFirst[h.First()] == nil && len(c.trees) >= maxTrees && !h.Signed {
			c.unsigned++
			continue
		}
		f := follow(&growingTree{Comparison: tree.NewComparison(h.First()), held: map[uint64][]*Held{}})
		f.held[h.Seq] = append(f.held[h.Seq], h)
		c.held = append(c.held, h)
	}
	return c
}

// eventKind is near the beginning of an event. A string of strangers has no quotation marks that are not escaped.
var eventKind = []byte(`,"kind":"` + trail.KindEvent + `"`)

// Add adds a line of the trail, which was verified, in order.
func (c *Check) Add(line []byte, l trail.Link) {
	if bytes.Contains(line[:min(len(line), 100)], eventKind) {
		if e, err := trail.Read(line); err == nil && e.Origin != "" {
			c.Origins[e.Origin] = true
		}
	}
	for _, f := range c.trees {
		if c.err == nil && l.Seq >= f.First() && !f.ended {
			c.err = f.add(l)
		}
	}
}

// add adds a line, and before it those that are only in the file.
func (t *growingTree) add(l trail.Link) error {
	for t.Next() < l.Seq && !t.ended {
		if err := t.skip(); err != nil {
			return err
		}
	}
	if t.ended || t.Next() > l.Seq {
		return nil
	}
	if err := t.Comparison.Add(l.Hash); err != nil {
		return t.fault(l.Seq, err)
	}
	t.lines++
	t.compare()
	return nil
}

// skip adds the next line as the file has it.
func (t *growingTree) skip() error {
	seq := t.Next()
	err := t.Skip()
	if err == io.EOF {
		t.ended = true
		return nil
	}
	if err != nil {
		return t.fault(seq, err)
	}
	t.compare()
	return nil
}

// fault returns the error of a line that does not fit the file.
func (t *growingTree) fault(seq uint64, err error) error {
	switch {
	case errors.Is(err, tree.ErrLine):
		return fmt.Errorf("seq %d is not the line that the tree in %s has: the line, or the tree, was replaced", seq, t.path)
	case errors.Is(err, tree.ErrInner):
		return fmt.Errorf("%s is damaged: at seq %d, the tree does not fit its own leaves", t.path, seq)
	}
	return fmt.Errorf("%s: %w", t.path, err)
}

// compare compares the checkpoints of the last line with the root.
func (t *growingTree) compare() {
	for _, h := range t.held[t.Next()-1] {
		if h.result, h.lines = otherRoot, t.lines; h.Root == t.Root() {
			h.result = sameRoot
		}
	}
}

// A Holder has checkpoints of the trail.
type Holder struct {
	Name string

	// Lines is the number of lines of the trail that its checkpoints cover, the newest of which is of the line Seq, and At its
	// time. Proved reports that somebody proves that time.
	Lines  int
	Seq    uint64
	At     time.Time
	Proved bool

	// Signed reports that a known key has signed the newest one.
	Signed bool

	// byTree has the lines that are covered by the first line of the tree.
	byTree map[uint64]int
}

// A Result is what the checkpoints of a trail without a fault cover.
type Result struct {
	// Holders are those that have a checkpoint of the trail, in the order in which New got them.
	Holders []Holder

	// Unproved is the number of checkpoints of the trail whose lines are neither there nor in a tree.
	Unproved int

	// Unsigned is the number of checkpoints that do not count, since no known key has signed them.
	Unsigned int

	// Others are the origins of checkpoints of other audits.
	Others []string
}

// Compare compares the trees and the checkpoints with the lines, of which res is the result. part says that later lines may
// be elsewhere. Call it once, after the last Add. The error is the first fault.
func (c *Check) Compare(res *trail.Result, part bool) (Result, error) {
	for _, f := range c.trees {
		for c.err == nil && !f.ended {
			c.err = f.skip()
		}
		if end := f.Next() - 1; c.err == nil && f.path != "" && end > res.Last.Seq && !part {
			c.err = fmt.Errorf("%s has the line seq %d, which is missing: the end was cut off, or another audit is in its place",
				f.path, end)
		}
	}
	if c.err != nil {
		return Result{}, c.err
	}
	for _, h := range c.held {
		if h.result == sameRoot {
			// Earlier versions did not write the origin.
			c.Origins[h.Origin] = true
		}
	}
	if err := c.contradiction(); err != nil {
		return Result{}, err
	}
	r := Result{Unsigned: c.unsigned}
	others := map[string]bool{}
	for _, h := range c.held {
		switch at := h.at().UTC().Format(time.RFC3339); {
		case h.result == sameRoot:
			r.add(h)
		case !c.Origins[h.Origin]:
			others[h.Origin] = true
		case h.result == otherRoot:
			return Result{}, fmt.Errorf("%s: seq %d, or a line before it, is not the line of which %s made a checkpoint at %s%s",
				h.Holder, h.Seq, h.Origin, at, h.doubt())
		case h.Seq > res.Last.Seq && !part:
			return Result{}, fmt.Errorf("%s: seq %d, of which %s made a checkpoint at %s, is missing: the end was cut off, "+
				"or another audit is in its place%s", h.Holder, h.Seq, h.Origin, at, h.doubt())
		default:
			r.Unproved++
		}
	}
	r.Others = slices.Sorted(maps.Keys(others))
	return r, nil
}

// add adds a checkpoint with the same root as the tree.
func (r *Result) add(h *Held) {
	i := slices.IndexFunc(r.Holders, func(of Holder) bool { return of.Name == h.Holder })
	if i < 0 {
		i = len(r.Holders)
		r.Holders = append(r.Holders, Holder{Name: h.Holder, byTree: map[uint64]int{}})
	}
	of := &r.Holders[i]
	of.Lines += max(0, h.lines-of.byTree[h.First()])
	of.byTree[h.First()] = max(h.lines, of.byTree[h.First()])
	if h.Seq >= of.Seq {
		of.Seq, of.At, of.Proved, of.Signed = h.Seq, h.at(), !h.Since.IsZero(), h.Signed
	}
}

// contradiction returns an error if two checkpoints of an origin of the trail cannot both be of one audit.
func (c *Check) contradiction() error {
	type key struct {
		origin string
		seq    uint64
		size   int64
	}
	roots := map[key]*Held{}
	for _, h := range c.held {
		if !c.Origins[h.Origin] {
			continue
		}
		k := key{h.Origin, h.Seq, h.Size}
		if before := roots[k]; before != nil && before.Root != h.Root {
			holders := strings.Join(slices.Compact([]string{before.Holder, h.Holder}), " and ")
			return fmt.Errorf("two checkpoints of %s contradict each other: they are of the line seq %d, in %s%s",
				h.Origin, h.Seq, holders, h.doubt())
		}
		roots[k] = h
	}
	return nil
}
