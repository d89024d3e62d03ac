package audit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"robotsproxy/policy/audit/checkpoint"
	"robotsproxy/policy/audit/trail"
	"robotsproxy/policy/audit/tree"
	"robotsproxy/policy/osfile"
)

const (
	// growDelay is the time between two additions to the tree.
	growDelay = time.Second
	// maxLeaves bounds the hashes in memory that wait for the tree. Beyond it they are read from the files again.
	maxLeaves = 64 << 10
	// leavesAtOnce is how many leaves are made of lines that are read from the files, and written together.
	leavesAtOnce = 4 << 10
)

// A leafQueue has the hashes of the last lines, those that wait for the tree. The zero leafQueue is empty.
type leafQueue struct {
	// first is the number of the line with the first hash.
	first  uint64
	hashes []trail.Hash
}

// add adds the hash of the line seq, which follows the last one.
func (q *leafQueue) add(seq uint64, h trail.Hash) {
	if len(q.hashes) >= maxLeaves {
		q.hashes = q.hashes[:0]
	}
	if len(q.hashes) == 0 {
		q.first = seq
	}
	q.hashes = append(q.hashes, h)
}

// take removes and returns the hashes of the lines up to last. first is the number of the line with the first of them.
func (q *leafQueue) take(last uint64) (first uint64, hashes []trail.Hash) {
	if len(q.hashes) == 0 || last < q.first {
		return 0, nil
	}
	n := min(int(last-q.first)+1, len(q.hashes))
	first, hashes = q.first, q.hashes[:n:n]
	q.first, q.hashes = q.first+uint64(n), append([]trail.Hash(nil), q.hashes[n:]...)
	return first, hashes
}

// A Head describes the tree of a trail after the line Seq.
type Head struct {
	// Size is the number of leaves, and Root the root of the tree.
	Size int64
	Root tlog.Hash
	Seq  uint64
}

// A treeWriter keeps the tree of a trail (package tree). It adds a line when the disk has it, so that a tree that is longer
// than the trail shows that lines were cut off. Any number of goroutines may use it.
type treeWriter struct {
	log *Log

	// path is that of the tree; "": the trail is not a regular file, and has none.
	path string

	// mu guards what follows. Log.mu may be locked under it, but not the reverse.
	mu   osfile.Mutex
	disk osfile.Watch

	// tree is nil until it is open.
	tree *tree.Tree

	// torn says that open has removed leaves, whose lines must be added before they are pruned.
	torn bool

	// failed says that the last addition has failed, and was logged.
	failed bool

	// closed says that close was called. last is the Head then, or err why it is not known.
	closed bool
	last   Head
	err    error
}

// open opens the tree of the trail that ends with the line last, and compares the two, and Options.Latest. It returns the
// number of the last line that was in the tree, and an event if they differ. The Log is not shared yet.
func (w *treeWriter) open(last trail.Link) (end uint64, e *event) {
	w.path = tree.Path(w.log.opened.File)
	for _, c := range w.log.opened.Latest {
		if c.Seq > max(last.Seq, end) {
			end, e = c.Seq, cutEvent(last.Seq+1, c.Seq)
		}
	}
	t, err := tree.Open(w.path)
	if err != nil {
		// grow makes a tree, or reports the error.
		return end, e
	}
	w.tree = t
	if t.First() > last.Seq+1 {
		// This is no tree of the trail.
		w.setAside()
		return end, e
	}
	next, other := compareTree(w.log.opened.File, last, t)
	found := t.NextNonzero()
	if w.log.options.Load().Sync == SyncNone {
		// The disk may have had the leaves before the lines.
		found = min(found, last.Seq+1)
	}
	if other == nil {
		other = w.compareLatest(last, next)
	}
	switch {
	case other != nil:
		w.setAside()
		return max(end, found-1), other
	case found-1 > last.Seq:
		// The leaves of the missing lines stay.
		if next = found; found-1 > end {
			e = cutEvent(last.Seq+1, found-1)
		}
	}
	if next = min(next, found); next < t.Next() {
		w.truncate(next)
		w.torn = true
	}
	return max(end, found-1), e
}

// compareLatest compares the tree with Options.Latest. It returns an event if they differ. next is as in hasRoot.
func (w *treeWriter) compareLatest(last trail.Link, next uint64) *event {
	for _, c := range w.log.opened.Latest {
		if c.First() == w.tree.First() && c.Seq <= last.Seq && !w.hasRoot(c, next) {
			return changedEvent(c.Seq, fmt.Sprintf(
				"or one before it is not the line of which a checkpoint was made at %s", c.Time.UTC().Format(time.RFC3339)))
		}
	}
	return nil
}

// hasRoot reports whether the tree has the root of a checkpoint. The leaves of the lines from the line next on may be
// incomplete, so they are made of the lines if need be.
func (w *treeWriter) hasRoot(c checkpoint.Checkpoint, next uint64) bool {
	if w.tree.Next() > c.Seq {
		if root, err := w.tree.Root(c.Size); err == nil && root == c.Root {
			return true
		}
	}
	again := w.tree.Compare()
	for again.Next() < min(next, c.Seq+1) {
		if again.Skip() != nil {
			break
		}
	}
	for l, err := range trail.Links(w.log.opened.File, again.Next()) {
		if err != nil || l.Seq != again.Next() || l.Seq > c.Seq || again.Add(l.Hash) != nil {
			break
		}
	}
	// If lines are missing, the checkpoint cannot be compared.
	return again.Next() != c.Seq+1 || again.Root() == c.Root
}

// truncate removes leaves, which grow makes again. If that fails, grow opens the tree anew. The Log is not shared yet.
func (w *treeWriter) truncate(next uint64) {
	if err := w.tree.Truncate(next); err != nil {
		w.tree.Close()
		w.tree = nil
	}
}

// compareTree compares the end of a tree with the lines of the trail at path. It returns an event if they differ. Otherwise next
// is the first of the compared lines: a crash may have left any part of their leaves, of which at most leavesAtOnce were not
// on the disk, so they have to be made again.
func compareTree(path string, last trail.Link, t *tree.Tree) (next uint64, e *event) {
	next = t.Next()
	least := t.First()
	if end := min(t.Next(), last.Seq+1); end > least+leavesAtOnce {
		least = end - leavesAtOnce
	}
	isOther := func(l trail.Link) bool {
		leaf, err := t.Leaf(l.Seq)
		return err == nil && leaf != (tlog.Hash{}) && leaf != tree.LeafHash(l.Hash)
	}
	other := "is not the line that the tree of the audit has"
	for line, err := range trail.Backward(path, trail.MaxLine) {
		l, malformed := trail.ReadLink(line.Text)
		if err != nil || malformed == nil && l.Seq < least {
			break
		}
		if malformed != nil || l.Seq >= t.Next() {
			continue
		}
		if isOther(l) {
			return next, changedEvent(l.Seq, other)
		}
		next = l.Seq
	}
	if next <= least {
		return next, nil
	}
	// The others are in the segment before. After an error, they are not made again.
	earlier := next
	for l, err := range trail.Links(path, least) {
		if err != nil || l.Seq >= next {
			break
		}
		if isOther(l) {
			return next, changedEvent(l.Seq, other)
		}
		earlier = min(earlier, l.Seq)
	}
	return earlier, nil
}

// setAside renames the tree to a name with the number of its first line, which it returns. The caller holds w.mu, or has w alone.
func (w *treeWriter) setAside() (name string, err error) {
	name = trail.SegmentPath(w.path, w.tree.First())
	if _, err := os.Lstat(name); err == nil {
		if name, err = unusedName(name, "replaced"); err != nil {
			return "", err
		}
	}
	err = w.tree.Close()
	w.tree = nil
	return name, errors.Join(err, os.Rename(w.path, name))
}

// run adds lines to the tree until ctx ends.
func (w *treeWriter) run(ctx context.Context) error {
	if w.path == "" {
		return nil
	}
	tick := time.NewTicker(growDelay)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			w.grow()
		}
	}
}

// grow adds the lines that the disk has, and returns the Head of the tree. After close it returns the last one. It logs the
// first of several errors, and returns each.
func (w *treeWriter) grow() (Head, error) {
	if err := w.mu.Lock(&w.disk); err != nil {
		return Head{}, err
	}
	defer w.mu.Unlock()
	if w.closed || w.path == "" {
		return w.last, w.err
	}
	err := w.add()
	if err != nil && !w.failed {
		w.log.opened.Log.Error("audit tree not written", "file", w.path, "error", err)
	} else if err == nil && w.failed {
		w.log.opened.Log.Info("audit tree written again", "file", w.path)
	}
	if w.failed = err != nil; w.failed {
		return Head{}, err
	}
	return Head{w.tree.Size(), w.tree.CurrentRoot(), w.tree.Next() - 1}, nil
}

// add adds the lines that the disk has. The caller holds w.mu.
func (w *treeWriter) add() error {
	l := w.log
	last := l.synced.Load()
	if l.options.Load().Sync == SyncNone {
		last = l.written.Load()
	}
	l.mu.Lock()
	first, hashes := l.leaves.take(last)
	l.mu.Unlock()
	if len(hashes) == 0 {
		first = last + 1
	}
	if w.tree == nil || w.tree.Next() < first {
		if err := w.catchUp(first); err != nil {
			return err
		}
	}
	if len(hashes) == 0 {
		return nil
	}
	return w.append(hashes)
}

// append adds leaves to the tree. A crash leaves at most leavesAtOnce of them incomplete.
func (w *treeWriter) append(lines []trail.Hash) error {
	for some := range slices.Chunk(lines, leavesAtOnce) {
		operation := w.disk.Begin(osfile.MaxSync)
		err := w.tree.Append(some)
		if err == nil {
			err = w.tree.Sync()
		}
		operation.End()
		if err != nil {
			return err
		}
	}
	return nil
}

// catchUp adds the lines before the line next, which are in the files. If some are not, it begins a new tree after them.
func (w *treeWriter) catchUp(next uint64) (err error) {
	if w.tree == nil {
		t, err := tree.Open(w.path)
		switch {
		case errors.Is(err, tree.ErrForm):
			if _, err := moveAway(w.path, "unchained"); err != nil {
				return err
			}
		case err != nil && !errors.Is(err, fs.ErrNotExist):
			return err
		}
		w.tree = t
	}
	// A segment may be rotated, compressed or removed meanwhile.
	const tries = 3
	for range tries {
		if err = w.addLines(next); !errors.Is(err, fs.ErrNotExist) {
			break
		}
	}
	return err
}

// addLines is catchUp for a tree that is open, if there is one. The error is fs.ErrNotExist if a segment was rotated, compressed
// or removed meanwhile.
func (w *treeWriter) addLines(next uint64) error {
	var hashes []trail.Hash
	// end returns the number of the line that follows those in the tree and in hashes.
	end := func() uint64 {
		if w.tree == nil {
			return 1
		}
		return w.tree.Next() + uint64(len(hashes))
	}
	flush := func() error {
		if len(hashes) == 0 {
			return nil
		}
		err := w.append(hashes)
		hashes = hashes[:0]
		return err
	}
	// skipTo begins a new tree with the line seq, if those before it are not there.
	skipTo := func(seq uint64) error {
		if err := flush(); err != nil {
			return err
		}
		if _, err := trail.FindLink(w.log.opened.File, end()); err == nil && end() < seq {
			return fs.ErrNotExist
		}
		return w.begin(seq)
	}
	for l, err := range trail.Links(w.log.opened.File, end()) {
		if err != nil {
			return err
		}
		if l.Seq >= next {
			break
		}
		switch {
		case l.Seq < end():
			// Verification finds lines in another order.
			continue
		case w.tree == nil || l.Seq > end():
			if err := skipTo(l.Seq); err != nil {
				return err
			}
		}
		if hashes = append(hashes, l.Hash); len(hashes) == leavesAtOnce {
			if err := flush(); err != nil {
				return err
			}
		}
	}
	if err := flush(); err != nil || w.tree != nil && end() == next {
		return err
	}
	return skipTo(next)
}

// begin begins a new tree with the line first.
func (w *treeWriter) begin(first uint64) (err error) {
	missing, aside := uint64(1), ""
	if w.tree != nil {
		missing = w.tree.Next()
		if aside, err = w.setAside(); err != nil {
			return err
		}
		aside = filepath.Base(aside)
	}
	if w.tree, err = tree.Create(w.path, first); err != nil {
		return err
	}
	if missing < first {
		w.log.addEvent(&event{
			Event: trail.EventTree, FirstSeq: missing, LastSeq: first - 1, File: aside,
			Detail: fmt.Sprintf("a new tree begins with the line seq %d, since the lines before it are not there", first),
		})
	}
	return nil
}

// close adds the last lines and closes the tree. The Log is closed.
func (w *treeWriter) close() error {
	if w.path == "" {
		return nil
	}
	last, err := w.grow()
	if errors.Is(err, osfile.ErrHangs) {
		return err
	}
	if err := w.mu.Lock(&w.disk); err != nil {
		return err
	}
	defer w.mu.Unlock()
	w.last, w.err, w.closed = last, err, true
	if w.tree != nil {
		err = errors.Join(err, w.tree.Close())
	}
	return err
}

// errNoTree is the error of Head for a trail that is not a regular file.
var errNoTree = errors.New("audit: only an audit in a file has a tree")

// Head waits until the disk has all lines, and returns the Head of their tree. With SyncNone, it waits for those of the active
// segment. After Close it returns the last Head.
func (l *Log) Head() (Head, error) {
	if l.tree.path == "" {
		return Head{}, errNoTree
	}
	l.probe(true)
	h, err := l.tree.grow()
	if err = cmp.Or(l.writeError(), err); err != nil || l.options.Load().Sync != SyncNone {
		return h, err
	}
	return h, l.syncAside()
}
