// Package notary signs checkpoints of the audit (package checkpoint), and writes them where they are kept: in a file of the
// state directory, in files that others hold, and with a time-stamp authority.
//
// How it fails: a checkpoint that cannot be made or written is made again some time later. Until then the place is overdue,
// which [Notary.Places] and [Notary.Warnings] say, and the log once an hour. Requests are not affected. A place that cannot be
// read at the start is not compared with the audit, which [Latest] reports.
package notary

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/sync/errgroup"

	"robotsproxy/policy/audit"
	"robotsproxy/policy/audit/checkpoint"
	"robotsproxy/policy/osfile"
)

const (
	// CheckpointsName is the file of all checkpoints in the state directory.
	CheckpointsName = "checkpoints"

	// StampsName is the directory of the responses of the time-stamp authority in the state directory.
	StampsName = "timestamps"
)

// Settings say how checkpoints are made, and where they are kept.
type Settings struct {
	// Keys has the keys that sign.
	Keys KeyFile

	// Origin is that of the checkpoints; "": it is the name of the first key.
	Origin string

	// Part ends the origin, such as the name of a run; "": nothing does.
	Part string

	// Every is the time between two checkpoints if there are new lines, and Lines the number of new lines after which a
	// checkpoint does not wait for that; 0: it waits.
	Every time.Duration
	Lines uint64

	// File has each checkpoint; "": it is kept in the state directory alone.
	File string

	// AnchorFile and TSA, the URL of a time-stamp authority, have a checkpoint each AnchorEvery; "": they have none.
	AnchorEvery time.Duration
	AnchorFile  string
	TSA         string

	// Replicas is the number of replicas whose checkpoints are exchanged.
	Replicas int
}

// origin returns the origin of the checkpoints that the keys sign.
func (s *Settings) origin(keys []checkpoint.Key) string {
	origin := s.Origin
	if origin == "" {
		origin = keys[0].Name()
	}
	if s.Part != "" {
		origin += "/" + s.Part
	}
	return origin
}

// KnownOrigin returns the origin of the checkpoints under the Settings; "": the key is not there, or cannot be read.
func (s *Settings) KnownOrigin() string {
	keys, err := s.Keys.read()
	if err != nil && s.Origin == "" {
		return ""
	}
	return s.origin(keys)
}

// CurrentOrigin returns the origin of the checkpoints under the Settings. It makes a missing key, see KeyFile.
func (s *Settings) CurrentOrigin() (string, error) {
	keys, err := s.Keys.open(s.Origin)
	if err != nil {
		return "", err
	}
	return s.origin(keys), nil
}

// An Exchange gives each replica the checkpoints of the others. Any number of goroutines may use it.
type Exchange interface {
	// ShareCheckpoint gives the others a note.
	ShareCheckpoint(ctx context.Context, note []byte) error

	// Checkpoints returns some of the notes that were shared after the one that last names, first "". If next is last, there are
	// no more.
	Checkpoints(ctx context.Context, last string) (notes [][]byte, next string, err error)
}

// Options are the parameters of New. All but Exchange are required.
type Options struct {
	// Dir is the state directory.
	Dir string

	// Settings returns the active Settings.
	Settings func() Settings

	// Audit is the audit of which the checkpoints are.
	Audit *audit.Log

	// Exchange shares checkpoints with other replicas; nil: there are none.
	Exchange Exchange

	// Client returns the active client for the time-stamp authority. After a reload it is another one.
	Client func() http.RoundTripper
	Log    *slog.Logger
}

// A Notary makes the checkpoints of one audit. Any number of goroutines may use it.
type Notary struct {
	o      Options
	places []*place

	// exchanged says which notes of others the Notary has. Only the place of the exchange uses it.
	exchanged exchanged

	// signing is locked while a checkpoint is made.
	signing sync.Mutex

	// mu guards newest, the last checkpoint that was made. No file is read or written under it.
	mu     sync.Mutex
	newest signed
}

// A signed checkpoint is one with its note.
type signed struct {
	checkpoint.Checkpoint
	text []byte
}

// New returns a Notary, which makes no checkpoint before Run.
func New(o Options) *Notary {
	n := &Notary{o: o, exchanged: exchanged{newest: map[string]uint64{}}}
	n.places = n.newPlaces()
	return n
}

// Run makes and writes the checkpoints that are due until ctx ends.
func (n *Notary) Run(ctx context.Context) error {
	var g errgroup.Group
	for _, p := range n.places {
		g.Go(func() error { return p.run(ctx) })
	}
	return g.Wait()
}

// Finish writes the checkpoint of the last lines to the files, and logs an error. Call it after Run, when the audit is closed.
func (n *Notary) Finish() {
	for _, p := range n.places {
		if p.atStop {
			p.finish()
		}
	}
}

// Newest returns the note of the newest checkpoint; nil: none was made yet.
func (n *Notary) Newest() []byte { return n.last().text }

// last returns the last checkpoint that was made.
func (n *Notary) last() signed {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.newest
}

// sign returns the checkpoint of all lines that the audit has now. It is in the file of the state directory when sign returns
// without an error.
func (n *Notary) sign() (signed, error) {
	n.signing.Lock()
	defer n.signing.Unlock()
	head, err := n.o.Audit.Head()
	if err != nil {
		return signed{}, err
	}
	s := n.o.Settings()
	keys, err := s.Keys.open(s.Origin)
	if err != nil {
		return signed{}, err
	}
	now := time.Now().Truncate(time.Second)
	c := checkpoint.Checkpoint{Origin: s.origin(keys), Size: head.Size, Root: head.Root, Seq: head.Seq, Time: now}
	if last := n.last(); c.Origin == last.Origin && c.Seq == last.Seq {
		return last, nil
	}
	signers := make([]note.Signer, len(keys))
	for i, k := range keys {
		signers[i] = k
	}
	text, err := c.Sign(signers...)
	if err == nil {
		err = appendNote(filepath.Join(n.o.Dir, CheckpointsName), text)
	}
	if err != nil {
		return signed{}, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.newest = signed{c, text}
	return n.newest, nil
}

// A Place is where checkpoints are kept.
type Place struct {
	// Name is "state", "file", "anchor", "tsa" or "store".
	Name string

	// At is the path of a file, a URL, or "the shared store".
	At string

	// Newest is when the newest checkpoint there was made; zero: it is not known.
	Newest time.Time

	// Err is why a checkpoint that is due was not written; nil: none is overdue.
	Err error
}

// Places returns the places that the Settings name.
func (n *Notary) Places() (all []Place) {
	s := n.o.Settings()
	for _, p := range n.places {
		if found := p.current(); found.At == p.at(&s) && found.At != "" {
			all = append(all, found)
		} else if at := p.at(&s); at != "" {
			all = append(all, Place{Name: p.name, At: at})
		}
	}
	return all
}

// Warnings says for each place that is overdue what the operator should know.
func (n *Notary) Warnings() (all []string) {
	for _, p := range n.Places() {
		if p.Err == nil {
			continue
		}
		since := "none was written there yet"
		if !p.Newest.IsZero() {
			since = "the newest one there is of " + p.Newest.UTC().Format(time.RFC3339)
		}
		all = append(all, fmt.Sprintf("a checkpoint of the audit is overdue at %s, %s: %v", p.At, since, p.Err))
	}
	return all
}

// Latest returns the newest checkpoint of each place that has one of an audit: the files of the Settings, the state directory
// dir, and e, unless it is nil. They have the origin of the Settings and a signature of their keys, and were made after begun, when
// the audit began: earlier ones are of another audit. It is called before the audit is opened. If a place cannot be
// read, Latest returns the checkpoints of the others and an error.
func Latest(s Settings, dir string, e Exchange, begun time.Time) (all []checkpoint.Checkpoint, err error) {
	keys, err := s.Keys.read()
	if err != nil {
		return nil, err
	}
	origin := s.origin(keys)
	for _, file := range []string{filepath.Join(dir, CheckpointsName), s.File, s.AnchorFile} {
		found := make(chan checkpoint.Checkpoint, 1)
		read := func() error { found <- newestIn(file, origin, keys); return nil }
		if hangs := new(osfile.Watch).Do(osfile.MaxWrite, read); hangs != nil {
			err = errors.Join(err, fmt.Errorf("%s: %w", file, hangs))
		} else if c := <-found; c.Time.After(begun) {
			all = append(all, c)
		}
	}
	if e == nil {
		return all, err
	}
	shared, away := newestShared(e, origin, keys, begun)
	if shared.Size > 0 {
		all = append(all, shared)
	}
	return all, errors.Join(err, away)
}
