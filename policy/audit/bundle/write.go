package bundle

import (
	"archive/zip"
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"robotsproxy/policy/audit/checkpoint"
	"robotsproxy/policy/audit/trail"
	"robotsproxy/policy/audit/tree"
)

// A Source has what a bundle is made of.
type Source struct {
	// Open opens the trail, from its first line on.
	Open func() (*trail.Reader, error)

	// Trees are those of the trail, and stay open.
	Trees []*tree.Tree

	// Notes are checkpoints of the trail, and others.
	Notes []Note

	// Keys are public keys of the trail's writer, a line each; "": they are unknown.
	Keys string

	// Snapshot returns the bytes of a robots.txt or tdmrep.json. The error wraps fs.ErrNotExist if they are not kept any more.
	Snapshot func(sha256 string) ([]byte, error)

	// Report reads lines, and returns their report as a page of HTML.
	Report func(lines io.Reader) (page []byte, err error)

	// Content writes the WARC records with these IDs as gzip members, and if all is set also the requests and the metadata that
	// belong to them; nil: the bundle has none.
	Content func(w io.Writer, ids map[string]bool, all bool) error
}

// A Note is a checkpoint as a signed note.
type Note struct {
	checkpoint.Checkpoint
	Text []byte

	// Response is that of a time-stamp authority for Text, and Stamped the time in it; nil: there is none.
	Response []byte
	Stamped  time.Time

	// Wanted says that the bundle has the checkpoint even if others cover the same records.
	Wanted bool
}

// Options say what Write writes.
type Options struct {
	Selection

	// Complete says that the bundle also has all other lines between two checkpoints.
	Complete bool

	// Made and Version are those of the Manifest.
	Made    time.Time
	Version string
}

// ErrNone is the error of Write if no record was selected.
var ErrNone = errors.New("no record matches")

// Write writes a bundle. It reads the trail several times, and verifies its chain.
func Write(w io.Writer, from *Source, o *Options) (*Findings, error) {
	b := &builder{
		from: from, o: o, zip: zip.NewWriter(w),
		snapshots: map[string]bool{}, fetches: map[fetchKey]bool{}, captures: map[string]bool{},
		clients: map[string]bool{}, hosts: map[string]bool{},
		manifest: Manifest{Format: formatVersion, Made: o.Made.UTC(), Version: o.Version, Selection: o.Selection},
	}
	if o.Client != "" && o.isHidden("client") {
		b.manifest.Selection.Client = HiddenClient
	}
	for _, step := range []func() error{
		b.selectRecords, b.chooseCheckpoints, b.writeLines, b.writeHidden, b.writeProofs, b.writeSnapshots, b.writeContent, b.finish,
	} {
		if err := step(); err != nil {
			return nil, err
		}
	}
	return &b.found, nil
}

// A builder writes one bundle.
type builder struct {
	from     *Source
	o        *Options
	zip      *zip.Writer
	manifest Manifest

	// first is the number of the trail's first line, and events are those of the events. Both selected and events are in the order of
	// the trail.
	first    uint64
	selected []selectedLine
	events   []uint64

	// inTime has the first and the last record in the time of the selection.
	inTime Range

	// snapshots has the SHA-256 of the files that the records name, fetches their fetches, and captures the IDs of WARC records.
	snapshots map[string]bool
	fetches   map[fetchKey]bool
	captures  map[string]bool

	// missing has the IDs of the selection without a record so far.
	missing map[string]bool

	// clients are those that the records name, and hosts those that only other lines name.
	clients, hosts map[string]bool

	// trees are those with a checkpoint of the bundle.
	trees []*usedTree
	found Findings
}

// A selectedLine is the record of a request, or another line about one.
type selectedLine struct {
	seq     uint64
	arrived time.Time
}

// A fetchKey identifies a fetch.
type fetchKey struct {
	url     string
	fetched int64
}

// each calls use for each line of the trail.
func (b *builder) each(use func(line []byte, l trail.Link) error) error {
	r, err := b.from.Open()
	if err != nil {
		return err
	}
	defer r.Close()
	var failed error
	_, err = trail.Verify(r, trail.VerifyOptions{Each: func(line []byte, l trail.Link) {
		if failed == nil {
			failed = use(line, l)
		}
	}})
	return errors.Join(failed, err)
}

// writeLine writes a line with commitments in place of the hidden values; nil: nothing is hidden.
func writeLine(w io.Writer, line []byte, isHidden func(member string) bool) error {
	if isHidden != nil {
		e, err := trail.Read(line)
		if err == nil && e.Version < 3 && e.Client+e.URL+e.UserAgent != "" {
			err = fmt.Errorf("seq %d: nothing can be hidden in lines of format version 2 and earlier: choose a later time", e.Seq)
		}
		if err == nil {
			line, _, err = trail.Hide(line, func(member string, _ []byte) bool { return isHidden(member) })
		}
		if err != nil {
			return err
		}
	}
	_, err := w.Write(append(slices.Clip(line), '\n'))
	return err
}

// selectRecords finds the records of the selection, the requests of which no record was written, and the events.
func (b *builder) selectRecords() error {
	f, err := b.o.filter()
	if err != nil {
		return err
	}
	b.missing = maps.Clone(f.ids)
	// shown is the number of the events up to the last record, and begun has the requests without a record so far.
	shown, begun := 0, map[string]trail.Entry{}
	err = b.each(func(line []byte, l trail.Link) error {
		b.first = cmp.Or(b.first, l.Seq)
		e, err := trail.Read(line)
		switch {
		case err != nil:
			return err
		case isShown(&e):
			if e.Event == trail.EventStart && len(b.selected)+len(begun) == 0 {
				b.events = b.events[:0]
			}
			b.events = append(b.events, l.Seq)
		case e.Kind == trail.KindBegun && f.selects(&e):
			begun[e.ID] = e
		case isRequest(&e) && f.inTime(&e):
			b.inTime.From, b.inTime.To = cmp.Or(b.inTime.From, l.Seq), l.Seq
			if f.selects(&e) {
				delete(begun, e.ID)
				b.add(&e)
				shown = len(b.events)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, e := range begun {
		b.add(&e)
		b.inTime.From, b.inTime.To = min(cmp.Or(b.inTime.From, e.Seq), e.Seq), max(b.inTime.To, e.Seq)
		shown = len(b.events)
	}
	if b.selected == nil {
		return ErrNone
	}
	for _, id := range b.o.IDs {
		if b.missing[id] {
			return fmt.Errorf("%w the ID %.100q", ErrNone, id)
		}
	}
	slices.SortFunc(b.selected, func(x, y selectedLine) int { return cmp.Compare(x.seq, y.seq) })
	b.events = b.events[:shown]
	return nil
}

// add adds a record, or the beginning of a request without one, with what it names.
func (b *builder) add(e *trail.Entry) {
	delete(b.missing, e.ID)
	b.selected = append(b.selected, selectedLine{e.Seq, e.Time})
	b.found.addRecord(e)
	b.addReferences(e)
	if e.Client != "" && !e.HiddenClient() && !b.o.isHidden("client") && len(b.clients) < maxNames {
		b.clients[e.Client] = true
	}
}

// isShown reports whether an event is one that a bundle shows: it names no client and no host.
func isShown(e *trail.Entry) bool {
	switch e.Event {
	case "", trail.EventCounted, trail.EventBackOffEnded, trail.EventPaused, trail.EventResumed, trail.EventCoolDown:
		return false
	}
	return true
}

// addReferences adds the files, the fetches and the capture that a record names.
func (b *builder) addReferences(e *trail.Entry) {
	for _, f := range []struct {
		url, sha string
		fetched  time.Time
	}{{e.RobotsURL, e.RobotsSHA256, e.RobotsFetched}, {e.TDMRepURL, e.TDMRepSHA256, e.TDMRepFetched}} {
		if f.sha != "" {
			b.snapshots[f.sha] = true
		}
		if f.url != "" {
			b.fetches[fetchKey{f.url, f.fetched.UnixNano()}] = true
		}
	}
	if e.WARC.ID != "" && b.from.Content != nil {
		b.captures[e.WARC.ID] = true
	}
}

// A counter counts the bytes that are written to it.
type counter int64

func (c *counter) Write(p []byte) (int, error) {
	*c += counter(len(p))
	return len(p), nil
}

// writeFile adds a file to the zip file, and to the manifest. write writes its content.
func (b *builder) writeFile(name string, write func(w io.Writer) error) error {
	h := zip.FileHeader{Name: name, Method: zip.Deflate, Modified: b.manifest.Made}
	if name == ContentName {
		// It is compressed already.
		h.Method = zip.Store
	}
	out, err := b.zip.CreateHeader(&h)
	if err != nil {
		return err
	}
	sum, size := sha256.New(), counter(0)
	if err := write(io.MultiWriter(out, sum, &size)); err != nil {
		return err
	}
	b.manifest.Files = append(b.manifest.Files, File{name, int64(size), hex.EncodeToString(sum.Sum(nil))})
	return nil
}

// writeText adds a file with a text.
func (b *builder) writeText(name string, text []byte) error {
	return b.writeFile(name, func(w io.Writer) error {
		_, err := w.Write(text)
		return err
	})
}

// fileOf returns the name of the file that has a line; "": the bundle does not have it.
func (b *builder) fileOf(line []byte, seq uint64) string {
	_, isSelected := slices.BinarySearchFunc(b.selected, seq, func(s selectedLine, seq uint64) int { return cmp.Compare(s.seq, seq) })
	_, isEvent := slices.BinarySearch(b.events, seq)
	switch {
	case isSelected:
		return recordsName
	case isEvent:
		return eventsName
	case b.isFetch(line):
		return fetchesName
	case b.manifest.Complete.has(seq):
		return linesName
	}
	return ""
}

// maxKind is more than the number of bytes up to the name of the kind in a line that has one.
const maxKind = 64

var kindName = []byte(`,"kind":"`)

// isFetch reports whether a line is about a fetch that a record names.
func (b *builder) isFetch(line []byte) bool {
	if !bytes.Contains(line[:min(len(line), maxKind)], kindName) {
		return false
	}
	e, err := trail.Read(line)
	return err == nil && e.IsFetch() && b.fetches[fetchKey{e.LastURL(), e.Fetched.UnixNano()}]
}

// writeLines writes the records, the lines about the configuration and the fetches, and the report of all of them. It adds the
// leaves of all lines of the bundle.
func (b *builder) writeLines() error {
	var isHidden func(member string) bool
	if len(b.o.Hidden) > 0 {
		isHidden = b.o.isHidden
	}
	lines, out := io.Pipe()
	var page []byte
	var failed error
	var reading sync.WaitGroup
	reading.Go(func() {
		page, failed = b.from.Report(lines)
		// If the report ends early, the next write returns why.
		lines.CloseWithError(failed)
	})
	var config, fetches bytes.Buffer
	err := b.writeFile(recordsName, func(records io.Writer) error {
		to := map[string]io.Writer{recordsName: records, eventsName: &config, fetchesName: &fetches}
		return b.each(func(line []byte, l trail.Link) error {
			name := b.fileOf(line, l.Seq)
			if name == "" {
				return nil
			}
			b.addLeaf(l)
			if name == linesName {
				b.found.Others++
				return nil
			}
			e, err := trail.Read(line)
			if err != nil {
				return err
			}
			b.found.addLine(name, &e)
			return writeLine(io.MultiWriter(to[name], out), line, isHidden)
		})
	})
	out.CloseWithError(err)
	reading.Wait()
	if err := cmp.Or(err, failed); err != nil {
		return err
	}
	return errors.Join(b.writeText(eventsName, config.Bytes()), b.writeText(fetchesName, fetches.Bytes()), b.writeText(reportName, page))
}

// writeHidden writes the other lines of a complete bundle, with all values hidden.
func (b *builder) writeHidden() error {
	if b.manifest.Complete == nil {
		return nil
	}
	f, err := b.o.filter()
	if err != nil {
		return err
	}
	return b.writeFile(linesName, func(w io.Writer) error {
		return b.each(func(line []byte, l trail.Link) error {
			if b.fileOf(line, l.Seq) != linesName {
				return nil
			}
			if e, err := trail.Read(line); err == nil && e.Host != "" && !f.isOfHost(&e) && len(b.hosts) < maxNames {
				b.hosts[e.Host] = true
			}
			return writeLine(w, line, func(string) bool { return true })
		})
	})
}

// writeProofs writes the proofs, the checkpoints and the keys.
func (b *builder) writeProofs() error {
	proofs := Proofs{Trees: []TreeProof{}}
	for _, u := range b.trees {
		nodes, err := nodesFor(u.Tree, u.leaves, u.used)
		if err != nil {
			return err
		}
		proof := TreeProof{First: u.First(), Nodes: nodes}
		for _, n := range u.used {
			proof.Checkpoints = append(proof.Checkpoints, n.Seq)
			if err := b.writeNote(&n); err != nil {
				return err
			}
		}
		proofs.Trees = append(proofs.Trees, proof)
	}
	b.found.cover(b.selected)
	text, err := json.MarshalIndent(proofs, "", " ")
	if len(text) > maxSmall {
		err = fmt.Errorf("the proofs need more than %d MiB: choose a shorter time", maxSmall>>20)
	}
	if err == nil {
		err = b.writeText(proofsName, append(text, '\n'))
	}
	if err == nil && b.from.Keys != "" {
		err = b.writeText(publicKeysName, []byte(b.from.Keys))
	}
	return err
}

// writeNote writes a checkpoint and its time-stamp.
func (b *builder) writeNote(n *Note) error {
	name := strconv.FormatUint(n.Seq, 10)
	b.found.Checkpoints = append(b.found.Checkpoints, Verified{Checkpoint: n.Checkpoint, Stamped: n.Stamped})
	err := b.writeText(checkpointsDir+name, n.Text)
	if err == nil && n.Response != nil {
		err = b.writeText(stampsDir+name+stampExt, n.Response)
	}
	return err
}

// writeSnapshots writes the robots.txt and tdmrep.json files.
func (b *builder) writeSnapshots() error {
	for _, sha := range slices.Sorted(maps.Keys(b.snapshots)) {
		text, err := b.from.Snapshot(sha)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			b.found.Missing++
			continue
		case err == nil:
			b.found.Snapshots++
			err = b.writeText(robotsDir+sha, text)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// writeContent writes the WARC records. Where values are hidden, those of requests and metadata are left out, since they have them.
func (b *builder) writeContent() error {
	if len(b.captures) == 0 {
		return nil
	}
	b.found.HasContent = true
	return b.writeFile(ContentName, func(w io.Writer) error { return b.from.Content(w, b.captures, len(b.o.Hidden) == 0) })
}

// finish writes the README and the manifest, and ends the zip file.
func (b *builder) finish() error {
	b.found.Manifest, b.found.ClientNames, b.found.OtherHosts = b.manifest, slices.Sorted(maps.Keys(b.clients)), len(b.hosts)
	text, err := b.found.readme()
	if err != nil {
		return err
	}
	if err := b.writeText(readmeName, text); err != nil {
		return err
	}
	text, err = b.manifest.marshal()
	if err == nil {
		err = b.writeText(manifestName, text)
	}
	return errors.Join(err, b.zip.Close())
}
