package bundle

import (
	"archive/zip"
	"cmp"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"robotsproxy/policy/audit/checkpoint"
	"robotsproxy/policy/audit/trail"
	"robotsproxy/policy/audit/tree"
	"robotsproxy/policy/audit/tsa"
)

// Trust is what the verifier of a bundle trusts.
type Trust struct {
	// Keys are public keys; nil: those in the bundle, which prove nothing by themselves.
	Keys note.Verifiers

	// Roots are the certificates of time-stamp authorities; nil: the signatures of time-stamps are not verified.
	Roots *x509.CertPool

	// Held are checkpoints that the verifier has from elsewhere. None may contradict the bundle.
	Held []checkpoint.Checkpoint

	// Judge makes the decision of a record again, from a robots.txt and its status, and a tdmrep.json; nil: there is none. The error
	// says what differs.
	Judge func(e *trail.Entry, robots []byte, status int, tdmrep []byte) error
}

// Verify verifies the bundle in a zip file of size bytes. The error is the first fault. It does not verify the content: see Content.
func Verify(r io.ReaderAt, size int64, trust *Trust) (*Findings, error) {
	z, err := zip.NewReader(r, size)
	if err != nil {
		return nil, fmt.Errorf("not a bundle: %w", err)
	}
	v := &verifier{
		trust: trust, size: size, files: map[string]*zip.File{}, used: map[string]bool{}, ids: map[string]bool{},
		snapshots: map[string]bool{}, texts: map[string][]byte{}, missing: map[string]bool{}, statuses: map[fetchKey]int{},
	}
	for _, step := range []func() error{
		func() error { return v.open(z) }, v.readSnapshots, v.readLines, v.compareSnapshots, v.readProofs, v.findOthers,
	} {
		if err := step(); err != nil {
			return nil, err
		}
	}
	return &v.found, nil
}

// A verifier verifies one bundle.
type verifier struct {
	trust *Trust
	size  int64
	files map[string]*zip.File
	found Findings

	// used has the names of the files that were read for their content.
	used map[string]bool

	// lines are all lines, by their numbers.
	lines []trail.Link

	// records are the records, and ids the IDs of their requests.
	records []selectedLine
	ids     map[string]bool

	// snapshots has the names of the robots.txt and tdmrep.json files, with true for those that a record names. texts has the content of
	// some, of size bytes together.
	snapshots map[string]bool
	texts     map[string][]byte
	textBytes int

	// missing are those that records name, and that are not there.
	missing map[string]bool

	// statuses are those of the fetches.
	statuses map[fetchKey]int
}

// eachLine calls use for each line of a file, which there need not be. Their hashes are verified.
func (v *verifier) eachLine(name string, use func(e *trail.Entry) error) error {
	if v.files[name] == nil {
		return nil
	}
	in, err := v.openFile(name)
	if err != nil {
		return err
	}
	defer in.Close()
	lines := newLines(in)
	n, before := 0, uint64(0)
	for lines.Scan() {
		n++
		l, err := trail.ReadLink(lines.Bytes())
		var e trail.Entry
		if err == nil {
			e, err = trail.Read(lines.Bytes())
		}
		if err == nil && l.Seq <= before {
			err = errors.New("the lines are not in their order")
		}
		if err == nil {
			before = l.Seq
			v.lines = append(v.lines, l)
			v.found.addLine(name, &e)
			err = use(&e)
		}
		if err != nil {
			return fmt.Errorf("%s:%d: %w", name, n, err)
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("%s:%d: %w", name, n+1, err)
	}
	return nil
}

// readLines verifies the hashes of all lines, and that each line is in the file where it belongs.
func (v *verifier) readLines() error {
	s, err := v.found.Selection.filter()
	if err != nil {
		return fmt.Errorf("%s: %w", manifestName, err)
	}
	err = errors.Join(
		v.eachLine(eventsName, func(e *trail.Entry) error { return unless(isShown(e), "not an event that a bundle shows") }),
		v.eachLine(fetchesName, func(e *trail.Entry) error {
			v.statuses[fetchKey{e.LastURL(), e.Fetched.UnixNano()}] = e.Status
			return unless(e.IsFetch(), "not about a fetch")
		}),
		v.eachLine(recordsName, func(e *trail.Entry) error {
			if !isRequest(e) && e.Kind != trail.KindBegun {
				return errors.New("not the record of a request")
			}
			if !s.selects(e) && !(e.HiddenClient() && s.selectsIfClient(e)) {
				return fmt.Errorf("not one that %s selects", manifestName)
			}
			if len(e.WARC.ID) > maxID || len(e.ID) > maxID {
				return fmt.Errorf("an ID of more than %d bytes", maxID)
			}
			v.records, v.ids[e.ID] = append(v.records, selectedLine{e.Seq, e.Time}), true
			v.found.addRecord(e)
			return v.judge(e)
		}),
		v.eachLine(linesName, func(e *trail.Entry) error {
			if len(e.Salts) > 0 {
				return errors.New("a line whose values are not hidden")
			}
			isRecord := isRequest(e)
			if isRecord && s.isOfHost(e) {
				v.found.OfHost++
			}
			// A request that began is a record if it has no other.
			isRecord = isRecord || e.Kind == trail.KindBegun && !v.ids[e.ID]
			return unless(!isRecord || !s.selects(e), "a record that the selection has")
		}),
	)
	slices.SortFunc(v.lines, func(a, b trail.Link) int { return cmp.Compare(a.Seq, b.Seq) })
	for i := 1; i < len(v.lines) && err == nil; i++ {
		if seq := v.lines[i].Seq; seq == v.lines[i-1].Seq {
			err = fmt.Errorf("seq %d is in the bundle twice", seq)
		}
	}
	return cmp.Or(err, unless(err != nil || len(v.records) > 0, "the bundle has no record"))
}

// unless returns an error with a text if something does not hold.
func unless(holds bool, text string) error {
	if holds {
		return nil
	}
	return errors.New(text)
}

// readProofs computes the roots of the checkpoints from the lines.
func (v *verifier) readProofs() error {
	text, err := v.read(proofsName)
	if err != nil {
		return err
	}
	var proofs Proofs
	if err := json.Unmarshal(text, &proofs); err != nil {
		return fmt.Errorf("%s: %w", proofsName, err)
	}
	if r := v.found.Complete; r != nil {
		if len(proofs.Trees) != 1 {
			return fmt.Errorf("%s: a complete bundle has one tree, this one has %d", proofsName, len(proofs.Trees))
		}
		if err := v.verifyRange(r, &proofs.Trees[0]); err != nil {
			return err
		}
	}
	keys := v.trust.Keys
	if keys == nil && v.files[publicKeysName] != nil {
		if text, err = v.read(publicKeysName); err == nil {
			keys, err = checkpoint.ParsePublic(text)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", publicKeysName, err)
		}
	}
	next := uint64(0)
	for i := range proofs.Trees {
		t := &proofs.Trees[i]
		if t.First < next {
			return fmt.Errorf("%s: the trees are not in their order", proofsName)
		}
		if n := len(t.Checkpoints); n > 0 {
			next = t.Checkpoints[n-1] + 1
		}
		if err := v.verifyTree(t, keys); err != nil {
			return err
		}
	}
	v.found.cover(v.records)
	for _, l := range v.lines {
		if _, covered := v.found.covering(l.Seq); !covered {
			v.found.UncoveredLines++
		}
	}
	v.found.UncoveredLines -= v.found.Uncovered()
	last := v.lines[len(v.lines)-1].Seq
	return unless(v.found.Complete == nil || last <= v.found.Newest().Seq, "a line of a complete bundle is covered by no checkpoint")
}

// verifyTree verifies the checkpoints of a tree.
func (v *verifier) verifyTree(t *TreeProof, keys note.Verifiers) error {
	var all []Verified
	for i, seq := range t.Checkpoints {
		if i > 0 && seq <= t.Checkpoints[i-1] {
			return fmt.Errorf("%s: the checkpoints are not in their order", proofsName)
		}
		c, err := v.verifyNote(seq, keys)
		if err != nil {
			return err
		}
		if c.Seq != seq || c.First() != t.First {
			return fmt.Errorf("%s%d: covers the lines %d to %d, but %s says %d to %d",
				checkpointsDir, seq, c.First(), c.Seq, proofsName, t.First, seq)
		}
		all = append(all, c)
	}
	if all == nil {
		return nil
	}
	last := all[len(all)-1].Seq
	find := rootFinder{nodes: t.Nodes, known: map[Subtree]tlog.Hash{}}
	for _, l := range v.lines {
		if l.Seq >= t.First && l.Seq <= last {
			find.leaves = append(find.leaves, leaf{int64(l.Seq - t.First), tree.LeafHash(l.Hash)})
		}
	}
	for _, c := range all {
		isBefore := v.found.Complete != nil && c.Seq+1 == v.found.Complete.From
		if !isBefore && (len(find.leaves) == 0 || find.leaves[0].index >= c.Size) {
			return fmt.Errorf("%s%d: covers no line of the bundle", checkpointsDir, c.Seq)
		}
		root, err := find.root(c.Size)
		if err != nil {
			return err
		}
		if root != c.Root {
			return fmt.Errorf("%s%d: a line of the bundle is not the one that this checkpoint has", checkpointsDir, c.Seq)
		}
	}
	v.found.Checkpoints = append(v.found.Checkpoints, all...)
	return v.compareHeld(&find, &all[len(all)-1])
}

// verifyNote verifies the signature and the time-stamp of a checkpoint.
func (v *verifier) verifyNote(seq uint64, keys note.Verifiers) (found Verified, err error) {
	name := strconv.FormatUint(seq, 10)
	text, err := v.read(checkpointsDir + name)
	if err != nil {
		return found, err
	}
	found.Checkpoint, err = checkpoint.Open(text, keys)
	found.Signed = err == nil
	if err != nil && (keys != nil || !errors.Is(err, checkpoint.ErrUntrusted)) {
		return found, fmt.Errorf("%s%s: %w", checkpointsDir, name, err)
	}
	stamp := stampsDir + name + stampExt
	if v.files[stamp] == nil {
		return found, nil
	}
	response, err := v.read(stamp)
	if err != nil {
		return found, err
	}
	found.Stamped, err = tsa.Verify(response, text, v.trust.Roots)
	found.Proved = err == nil && v.trust.Roots != nil
	if err != nil && (v.trust.Roots != nil || !errors.Is(err, tsa.ErrUntrusted)) {
		return found, fmt.Errorf("%s: %w", stamp, err)
	}
	return found, nil
}

// verifyRange verifies that the bundle has all lines of a range, which ends with one checkpoint, and begins after another one or
// with the tree.
func (v *verifier) verifyRange(r *Range, t *TreeProof) error {
	// Before a tree that begins later there are other lines.
	isFirst := r.From == 1 && t.First == 1
	if !slices.Contains(t.Checkpoints, r.To) || !isFirst && !slices.Contains(t.Checkpoints, r.From-1) || r.From < t.First || r.From > r.To {
		return fmt.Errorf("%s: the lines %d to %d are not those between two checkpoints", manifestName, r.From, r.To)
	}
	next := r.From
	for _, l := range v.lines {
		if l.Seq == next && next <= r.To {
			next++
		}
	}
	if next <= r.To {
		return fmt.Errorf("the bundle is not complete: it has no line seq %d", next)
	}
	for _, record := range v.records {
		if !r.has(record.seq) {
			return fmt.Errorf("%s: seq %d is not one of the lines %d to %d, which are complete", recordsName, record.seq, r.From, r.To)
		}
	}
	return nil
}

// findOthers returns an error if the bundle has a file that nothing names.
func (v *verifier) findOthers() error {
	for name := range v.files {
		if !v.used[name] && !slices.Contains([]string{readmeName, reportName, publicKeysName, ContentName}, name) {
			return fmt.Errorf("%q is not a file of a bundle", name)
		}
	}
	return nil
}

// compareHeld compares a tree with the checkpoints of the same audit that the verifier has.
func (v *verifier) compareHeld(find *rootFinder, newest *Verified) error {
	for _, h := range v.trust.Held {
		if h.Origin != newest.Origin || h.First() != newest.First() || h.Size > newest.Size {
			continue
		}
		// The bundle may lack what is needed to compute it.
		root, err := find.root(h.Size)
		if err == nil && root != h.Root {
			return fmt.Errorf("another checkpoint of %s, up to seq %d, contradicts the bundle: lines were changed", rfc3339(h.Time), h.Seq)
		}
		if err == nil {
			v.found.Held++
		}
	}
	return nil
}

// readSnapshots verifies the names of the robots.txt and tdmrep.json files.
func (v *verifier) readSnapshots() error {
	for name := range v.files {
		sha, is := strings.CutPrefix(name, robotsDir)
		if !is || name == fetchesName {
			continue
		}
		text, err := v.read(name)
		if err != nil {
			return err
		}
		if sum := sha256.Sum256(text); hex.EncodeToString(sum[:]) != sha {
			return fmt.Errorf("%q: its SHA-256 is not its name", name)
		}
		v.snapshots[sha] = false
		v.found.Snapshots++
	}
	v.found.HasContent = v.files[ContentName] != nil
	return nil
}

// compareSnapshots verifies that records name the files.
func (v *verifier) compareSnapshots() error {
	for sha, isNamed := range v.snapshots {
		if !isNamed {
			return fmt.Errorf("%q: no record names it", robotsDir+sha)
		}
	}
	return nil
}

// snapshot returns a file that a record names. ok is false if the bundle does not have it.
func (v *verifier) snapshot(sha string) (text []byte, ok bool, err error) {
	if sha == "" {
		return nil, true, nil
	}
	if _, ok := v.snapshots[sha]; !ok {
		if !v.missing[sha] {
			v.missing[sha] = true
			v.found.Missing++
		}
		return nil, false, nil
	}
	v.snapshots[sha] = true
	if text, ok := v.texts[sha]; ok {
		return text, true, nil
	}
	if text, err = v.read(robotsDir + sha); err != nil {
		return nil, false, err
	}
	if v.textBytes += len(text); v.textBytes > maxSmall {
		clear(v.texts)
		v.textBytes = len(text)
	}
	v.texts[sha] = text
	return text, true, nil
}

// judge makes the decision of a record again, if a file decided, and the bundle has it.
func (v *verifier) judge(e *trail.Entry) error {
	robots, hasRobots, err := v.snapshot(e.RobotsSHA256)
	tdmrep, hasTDMRep, errTDMRep := v.snapshot(e.TDMRepSHA256)
	if err := cmp.Or(err, errTDMRep); err != nil {
		return err
	}
	if v.trust.Judge == nil || e.RobotsSHA256+e.TDMRepSHA256 == "" || !hasRobots || !hasTDMRep || e.HiddenURL() {
		return nil
	}
	status := http.StatusNotFound
	if robots != nil {
		status = cmp.Or(v.statuses[fetchKey{e.RobotsURL, e.RobotsFetched.UnixNano()}], http.StatusOK)
	}
	v.found.Judged++
	return v.trust.Judge(e, robots, status, tdmrep)
}
