package bundle

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"robotsproxy/policy/audit/trail"
	"robotsproxy/policy/audit/tree"
)

// A usedTree is a tree with what the bundle has of it.
type usedTree struct {
	*tree.Tree

	// known are the checkpoints of the tree, one for each size, and used those of the bundle. Both are in the order of their lines.
	known, used []Note

	// leaves are the lines of the bundle, in their order.
	leaves leaves
}

// chooseCheckpoints chooses the checkpoints that cover the records and, for a complete bundle, its range.
func (b *builder) chooseCheckpoints() error {
	for _, t := range b.from.Trees {
		u := &usedTree{Tree: t}
		if err := u.addKnown(b.from.Notes); err != nil {
			return err
		}
		if u.cover(b.selected); len(u.used) == 0 {
			continue
		}
		b.trees = append(b.trees, u)
	}
	if !b.o.Complete {
		return nil
	}
	if len(b.trees) == 0 {
		return errors.New("no checkpoint covers the records: stop the proxy, or wait for its next checkpoint")
	}
	if len(b.trees) != 1 {
		return fmt.Errorf("a complete bundle needs all records in one tree with checkpoints, but they are in %d: choose another time",
			len(b.trees))
	}
	var err error
	b.manifest.Complete, err = b.trees[0].rangeOf(b.first, b.selected, b.inTime)
	return err
}

// addKnown finds the checkpoints of the tree among all. Of several of one size, it takes one with a time-stamp.
func (u *usedTree) addKnown(all []Note) error {
	bySize := map[int64]Note{}
	for _, n := range all {
		if n.First() != u.First() || n.Size > u.Size() || n.Size <= 0 {
			continue
		}
		root, err := u.Root(n.Size)
		if err != nil {
			return err
		}
		if before, ok := bySize[n.Size]; root == n.Root && (!ok || before.Response == nil) {
			n.Wanted = n.Wanted || before.Wanted
			bySize[n.Size] = n
		}
	}
	for _, size := range slices.Sorted(maps.Keys(bySize)) {
		u.known = append(u.known, bySize[size])
	}
	return nil
}

// bySeq compares the number of the last line of a checkpoint.
func bySeq(n Note, seq uint64) int { return cmp.Compare(n.Seq, seq) }

// cover uses for each record the first checkpoint that covers it, the first of them with a time-stamp, and the newest one.
func (u *usedTree) cover(records []selectedLine) {
	last := -1
	for _, n := range u.known {
		if n.Wanted && len(records) > 0 && n.Seq >= records[0].seq {
			u.use(n)
		}
	}
	for _, r := range records {
		i, _ := slices.BinarySearchFunc(u.known, r.seq, bySeq)
		if r.seq < u.First() || i == len(u.known) || i == last {
			continue
		}
		last = i
		u.use(u.known[i])
		u.use(u.known[len(u.known)-1])
		if s := slices.IndexFunc(u.known[i:], func(n Note) bool { return n.Response != nil }); s >= 0 {
			u.use(u.known[i+s])
		}
	}
}

// use adds a checkpoint to those of the bundle.
func (u *usedTree) use(n Note) {
	if i, found := slices.BinarySearchFunc(u.used, n.Seq, bySeq); !found {
		u.used = slices.Insert(u.used, i, n)
	}
}

// rangeOf returns the range of a complete bundle: it has all records, and all lines in the time of the selection that a checkpoint
// covers. first is the number of the trail's first line.
func (u *usedTree) rangeOf(first uint64, records []selectedLine, inTime Range) (*Range, error) {
	newest := u.known[len(u.known)-1]
	if end := coveredBefore(records, newest.Seq); !end.IsZero() {
		return nil, fmt.Errorf("a complete bundle needs a checkpoint after its last record: stop the proxy, or use --until %s",
			end.UTC().Format(time.RFC3339Nano))
	}
	r := &Range{1, newest.Seq}
	before, _ := slices.BinarySearchFunc(u.known, inTime.From, bySeq)
	if before > 0 && u.known[before-1].Seq+1 < first {
		// The lines after this checkpoint are not all there any more.
		before++
	}
	if before > 0 {
		r.From = u.known[before-1].Seq + 1
		u.use(u.known[before-1])
	}
	if r.From < max(first, u.First()) || r.From > records[0].seq {
		return nil, errors.New("the lines before the first record were removed, so the bundle cannot be complete: choose a later time")
	}
	if after, _ := slices.BinarySearchFunc(u.known, inTime.To, bySeq); after < len(u.known) {
		r.To = u.known[after].Seq
		u.use(u.known[after])
	}
	return r, nil
}

// coveredBefore returns the time before which all requests arrived that are up to a line; zero: all of them are.
func coveredBefore(records []selectedLine, seq uint64) (end time.Time) {
	for _, r := range records {
		if r.seq > seq && (end.IsZero() || r.arrived.Before(end)) {
			end = r.arrived
		}
	}
	return end
}

// addLeaf adds a line of the bundle to its tree.
func (b *builder) addLeaf(l trail.Link) {
	for _, u := range b.trees {
		if l.Seq >= u.First() && l.Seq < u.Next() {
			u.leaves = append(u.leaves, leaf{int64(l.Seq - u.First()), tree.LeafHash(l.Hash)})
			return
		}
	}
}
