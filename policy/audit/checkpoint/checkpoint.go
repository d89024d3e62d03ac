// Package checkpoint is the format of signed checkpoints of an audit: statements that an audit had certain lines at a time.
//
// A checkpoint is a signed note (C2SP signed-note) with the text of a log's checkpoint (C2SP tlog-checkpoint), so that other
// tools read it too:
//
//	robotsproxy/proxy-1
//	4910
//	CsUYapGGPo4dkMgIAUqom/Xajj7h2fB2MPA3j2jxq2I=
//	seq 4910
//	time 2026-11-27T19:00:00Z
//
//	— robotsproxy/proxy-1 Az3grlgt…
//
// These are the origin, the number of leaves in the tree of the audit's lines (package tree), the root of that tree, and two
// extension lines: the number of the last line, and when the checkpoint was made. The first line in the tree has the number
// seq − leaves + 1, which is not 1 if the tree was begun anew.
//
// Any number of goroutines may call the functions.
package checkpoint

import (
	"encoding/base64"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
)

// A Checkpoint says which lines an audit had at a time.
type Checkpoint struct {
	// Origin names the audit: one replica's, or that of one run.
	Origin string

	// Size is the number of lines in the tree, and Root its root.
	Size int64
	Root tlog.Hash

	// Seq is the number of the last line in the tree.
	Seq uint64

	// Time is when the checkpoint was made, in seconds.
	Time time.Time
}

// First returns the number of the first line in the tree.
func (c Checkpoint) First() uint64 { return c.Seq - uint64(c.Size) + 1 }

const (
	seqName  = "seq "
	timeName = "time "
)

// Sign returns the checkpoint as a note that each of the keys has signed.
func (c Checkpoint) Sign(keys ...note.Signer) ([]byte, error) {
	text := fmt.Sprintf("%s\n%d\n%s\n%s%d\n%s%s\n", c.Origin, c.Size, c.Root, seqName, c.Seq, timeName, c.Time.UTC().Format(time.RFC3339))
	if again, err := parse(text); err != nil || again.Origin != c.Origin {
		return nil, fmt.Errorf("checkpoint of %q: %w", c.Origin, errForm)
	}
	return note.Sign(&note.Note{Text: text}, keys...)
}

// These are the errors of Open.
var (
	errForm = errors.New("not a checkpoint of an audit")

	// ErrUntrusted is for a note that none of the known keys has signed.
	ErrUntrusted = errors.New("not signed by a trusted key")
)

// Open returns the checkpoint in a signed note. If none of the known keys has signed it, the error is ErrUntrusted, and the
// Checkpoint is what the note states. A signature of a known key that does not fit is a [*note.InvalidSignatureError].
func Open(text []byte, known note.Verifiers) (c Checkpoint, err error) {
	if known == nil {
		known = note.VerifierList()
	}
	n, err := note.Open(text, known)
	unverified, isUnverified := errors.AsType[*note.UnverifiedNoteError](err)
	switch {
	case isUnverified:
		n, err = unverified.Note, ErrUntrusted
	case err != nil:
		return Checkpoint{}, err
	}
	c, malformed := parse(n.Text)
	if malformed != nil {
		return Checkpoint{}, malformed
	}
	return c, err
}

// parse reads the text of a note. It ignores extension lines that it does not know.
func parse(text string) (c Checkpoint, err error) {
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	if len(lines) < 3 || lines[0] == "" {
		return c, errForm
	}
	c.Origin = lines[0]
	size, err := parseNumber(lines[1])
	if err != nil || size == 0 || size > 1<<62 {
		return c, errForm
	}
	c.Size = int64(size)
	root, err := base64.StdEncoding.Strict().DecodeString(lines[2])
	if err != nil || len(root) != tlog.HashSize {
		return c, errForm
	}
	c.Root = tlog.Hash(root)
	for _, line := range lines[3:] {
		if text, found := strings.CutPrefix(line, seqName); found && c.Seq == 0 {
			c.Seq, err = parseNumber(text)
		} else if text, found := strings.CutPrefix(line, timeName); found && c.Time.IsZero() {
			c.Time, err = time.Parse(time.RFC3339, text)
		}
		if err != nil || line == "" {
			return c, errForm
		}
	}
	if c.Time.IsZero() || c.Seq < size {
		return c, errForm
	}
	return c, nil
}

// parseNumber reads a decimal number without leading zeroes.
func parseNumber(text string) (uint64, error) {
	n, err := strconv.ParseUint(text, 10, 64)
	if err == nil && strconv.FormatUint(n, 10) != text {
		err = errForm
	}
	return n, err
}

// notePattern matches a note: lines of text, an empty line, and lines of signatures. A line that does not look like a signature
// ends it, so that nobody spoils a note by what they append to the file.
var notePattern = regexp.MustCompile(`(?m:^)(?:[^\n—][^\n]*\n)+\n` +
	`(?:— [^\s+]+ (?:[A-Za-z0-9+/]{4}){2,}(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?\n){1,16}`)

// Notes returns the notes in a file. Other lines may stand between them if an empty line follows. A note that is cut off at
// the end of the file is not returned, or without a signature.
func Notes(file []byte) [][]byte { return notePattern.FindAll(file, -1) }
