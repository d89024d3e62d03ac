package auditcmd

import (
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/mod/sumdb/note"

	"robotsproxy/cmd/internal/cli"
	"robotsproxy/cmd/internal/daemon"
	"robotsproxy/cmd/internal/notary"
	"robotsproxy/policy/audit/bundle"
	"robotsproxy/policy/audit/checkpoint"
	"robotsproxy/policy/audit/coverage"
	"robotsproxy/policy/audit/trail"
	"robotsproxy/policy/audit/tree"
	"robotsproxy/policy/audit/tsa"
)

// knownCheckpoints are the checkpoints of all audits that are verified together.
type knownCheckpoints struct {
	held []coverage.Held

	// notes are the signed notes of held for a bundle, with their time-stamps. Unless keyless says that no key is known, a known key has
	// signed each.
	notes   []bundle.Note
	keyless bool

	// onlySigned says that a checkpoint counts only if a key of --key has signed it.
	onlySigned bool

	// named are the files of --checkpoint that have had none of an audit so far.
	named map[string]bool

	// replicas has the checkpoints in the state directories, by their origins.
	replicas map[string][]coverage.Held
}

// readCheckpoints reads the checkpoints of audits.
func (v *verification) readCheckpoints(audits []auditFiles) (*knownCheckpoints, error) {
	k := &knownCheckpoints{onlySigned: v.keys != nil, named: map[string]bool{}, replicas: map[string][]coverage.Held{}}
	keys := v.keys
	if keys == nil {
		keys = append(ownKeys(audits), v.retired...)
		k.keyless = len(keys) == 0
	}
	seen := map[string]bool{}
	read := func(file string) error {
		at := daemon.AbsolutePath(file)
		if file == "" || seen[at] {
			return nil
		}
		seen[at] = true
		before := len(k.held)
		if err := k.addFile(file, keys); err != nil {
			return err
		}
		if slices.ContainsFunc(audits, func(at auditFiles) bool { return at.checkpoints == file }) {
			for _, h := range k.held[before:] {
				k.replicas[h.Origin] = append(k.replicas[h.Origin], h)
			}
		}
		return nil
	}
	for _, file := range v.checkpoints {
		k.named[file] = true
		if err := read(file); err != nil {
			return nil, err
		}
	}
	for _, at := range audits {
		for _, file := range append(slices.Clone(at.elsewhere), at.checkpoints) {
			if err := read(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return nil, err
			}
		}
		if at.stamps != "" && !seen[at.stamps] {
			seen[at.stamps] = true
			if err := k.addStamped(at.stamps, keys, v.tsaRoots); err != nil {
				return nil, err
			}
		}
	}
	return k, nil
}

// ownKeys returns the keys of the state directories that can be read.
func ownKeys(audits []auditFiles) keyLists {
	var all keyLists
	for _, at := range audits {
		if keys, err := (notary.KeyFile{Path: at.key}).Verifiers(); err == nil {
			all = append(all, keys)
		}
	}
	return all
}

// keyLists are the keys of several lists.
type keyLists []note.Verifiers

// Verifier implements [note.Verifiers].
func (l keyLists) Verifier(name string, hash uint32) (found note.Verifier, err error) {
	err = &note.UnknownVerifierError{Name: name, KeyHash: hash}
	for _, keys := range l {
		if found, err = keys.Verifier(name, hash); err == nil {
			return found, nil
		}
	}
	return nil, err
}

// unmatched returns an error for each file of --checkpoint that has no checkpoint of the audits.
func (k *knownCheckpoints) unmatched() (err error) {
	for _, file := range slices.Sorted(maps.Keys(k.named)) {
		var origins []string
		for _, h := range k.held {
			if h.Holder == file {
				origins = append(origins, h.Origin)
			}
		}
		why := "it has none"
		if slices.Sort(origins); origins != nil {
			why = "it has those of " + strings.Join(slices.Compact(origins), ", ")
		}
		err = errors.Join(err, fmt.Errorf("%s has no checkpoint that can be compared with this audit: %s", file, why))
	}
	return err
}

// A coverageCheck compares an audit with its trees and with all checkpoints that are known.
type coverageCheck struct {
	*coverage.Check
	trees []coverage.File
	known *knownCheckpoints

	// state is the file of checkpoints in the state directory, and stamps the directory of the time-stamps there.
	state, stamps string
	part          bool
	coverage.Result

	// Lines is the number of lines of the audit.
	Lines int
}

// newCoverageCheck opens the trees of an audit. The caller closes the check.
func newCoverageCheck(at auditFiles, known *knownCheckpoints) (c *coverageCheck, err error) {
	c = &coverageCheck{known: known, state: at.checkpoints, stamps: at.stamps, part: at.part}
	if at.file != "" && !at.part {
		if c.trees, err = openTrees(at.file); err != nil {
			c.close()
			return nil, err
		}
	}
	c.Check = coverage.New(c.trees, slices.Clone(known.held), known.onlySigned)
	if at.origin != "" {
		c.Origins[at.origin] = true
	}
	return c, nil
}

// openTrees opens the trees of the audit in a file. There may be none.
func openTrees(file string) (all []coverage.File, err error) {
	path := tree.Path(file)
	ext := filepath.Ext(path)
	// The pattern is valid, since the name is escaped.
	older, _ := filepath.Glob(escapeGlob(strings.TrimSuffix(path, ext)) + "-*" + ext)
	for _, path := range append([]string{path}, older...) {
		if path != tree.Path(file) && !isSegment(tree.Path(file), path) {
			continue
		}
		t, err := tree.OpenToRead(path)
		switch {
		case err == nil:
			all = append(all, coverage.File{Path: path, Tree: t})
		case !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, tree.ErrForm):
			return all, err
		}
	}
	return all, nil
}

// isSegment reports whether a path is that of a tree that was kept when another one began.
func isSegment(path, segment string) bool {
	ext := filepath.Ext(path)
	number := strings.TrimSuffix(strings.TrimPrefix(segment, strings.TrimSuffix(path, ext)+"-"), ext)
	first, err := strconv.ParseUint(number, 10, 64)
	return err == nil && trail.SegmentPath(path, first) == segment
}

// escapeGlob returns the pattern that matches a path alone.
func escapeGlob(path string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(path)
}

// add adds a checkpoint, and its note with the time-stamp, if it has one.
func (k *knownCheckpoints) add(h coverage.Held, n bundle.Note) {
	k.held = append(k.held, h)
	if h.Signed || k.keyless {
		n.Checkpoint, n.Wanted = h.Checkpoint, k.named[h.Holder]
		k.notes = append(k.notes, n)
	}
}

// addFile adds the checkpoints in a file.
func (k *knownCheckpoints) addFile(file string, keys note.Verifiers) error {
	if info, err := os.Stat(file); err == nil && !info.Mode().IsRegular() {
		return fmt.Errorf("%s: not a regular file", file)
	}
	text, err := cli.ReadFile(file, maxCheckpoints)
	if err != nil {
		return err
	}
	for _, n := range checkpoint.Notes(text) {
		if h, ok := open(n, file, keys); ok {
			k.add(h, bundle.Note{Text: n})
		}
	}
	return nil
}

// maxCheckpoints is how many bytes of a file with checkpoints are read: those of a million.
const maxCheckpoints = 512 << 20

// open opens a note that a holder has. ok is false if it is no checkpoint of an audit. One whose signature does not fit, as after a
// crash, or since somebody has changed it, is not Signed.
func open(text []byte, holder string, keys note.Verifiers) (h coverage.Held, ok bool) {
	c, err := checkpoint.Open(text, keys)
	signed := err == nil
	if _, damaged := errors.AsType[*note.InvalidSignatureError](err); damaged {
		c, err = checkpoint.Open(text, nil)
	}
	if err != nil && !errors.Is(err, checkpoint.ErrUntrusted) {
		return h, false
	}
	return coverage.Held{Checkpoint: c, Holder: holder, Signed: signed}, true
}

// addStamped adds the checkpoints that have a time-stamp in dir. roots are the certificates of trusted authorities; nil: the signatures
// of time-stamps are not verified.
func (k *knownCheckpoints) addStamped(dir string, keys note.Verifiers, roots *x509.CertPool) error {
	all, err := tsa.List(dir)
	for _, r := range all {
		if r.Anchor.Seq > 0 {
			continue
		}
		h, ok := open(r.Text, dir, keys)
		if !ok {
			continue
		}
		response, err := os.ReadFile(r.Path)
		if err != nil {
			return err
		}
		at, err := tsa.Verify(response, r.Text, roots)
		switch {
		case err == nil:
			h.Since = at
		case roots != nil || !errors.Is(err, tsa.ErrUntrusted):
			return fmt.Errorf("%s: %w", r.Path, err)
		}
		k.add(h, bundle.Note{Text: r.Text, Response: response, Stamped: at})
	}
	return err
}

// compare compares all lines, of which res is the result.
func (c *coverageCheck) compare(res *trail.Result) (err error) {
	c.Lines = res.Lines
	if c.Result, err = c.Compare(res, c.part); err != nil {
		return err
	}
	for _, h := range c.Holders {
		delete(c.known.named, h.Name)
	}
	return nil
}

func (c *coverageCheck) close() {
	for _, t := range c.trees {
		t.Tree.Close()
	}
}

// Best returns the holder whose checkpoints say most: one who is not the state directory, and covers the most lines; nil: no
// line is covered.
func (c *coverageCheck) Best() (best *coverage.Holder) {
	for i := range c.Holders {
		h := &c.Holders[i]
		if best == nil || c.IsOwn(best) && !c.IsOwn(h) || c.IsOwn(best) == c.IsOwn(h) && h.Lines > best.Lines {
			best = h
		}
	}
	return best
}

// IsOwn reports whether only the state directory vouches for the checkpoints of a holder.
func (c *coverageCheck) IsOwn(h *coverage.Holder) bool {
	return c.state != "" && isSameFile(h.Name, c.state) || h.Name == c.stamps && !h.Proved
}

// Rest returns the number of lines that the best holder does not cover.
func (c *coverageCheck) Rest() int {
	if best := c.Best(); best != nil {
		return max(0, c.Lines-best.Lines)
	}
	return c.Lines
}
