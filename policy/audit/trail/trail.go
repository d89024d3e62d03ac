// Package trail is the format of the audit trail on disk, and reads it. A trail is a sequence
// of JSON objects, one a line. Each line has a number and the hash of the line before it
// ([AppendLink], [ReadLink]). The lines stand in segment files, which are rotated when they are
// full ([Segments]). An [Entry] is the content of a line. A [Reader] reads the lines, and
// [Verify] checks the hash chain.
//
// Package audit writes the trail. This package takes no lock, so that any process that may read
// the files can read them while they are written. It waits a moment to find whether the last
// line is torn or still being written.
//
// The chain proves that no line between the first and the last one present was changed, removed
// or moved. An [EventPruned] proves that the writer removed the lines before the first one. Only
// an [Anchor] that is kept elsewhere proves that the end was not cut off, and that the whole
// trail was not written anew.
//
// An error names the file, and the line if it concerns one line. Any number of goroutines may
// call the functions; a [Reader] is for one goroutine.
package trail

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"slices"
	"strconv"
	"strings"
)

// MaxLine bounds a line, in bytes without its line feed. Records are far shorter, since the
// writer bounds their strings.
const MaxLine = 1 << 20

const (
	// MaxText bounds each string of a line except the URL, in bytes in the line, with
	// escapes. Most User-Agents and rules have less than 200 bytes. Longer strings would fill
	// the segments, and older segments would be removed sooner.
	MaxText = 1 << 10
	// MaxURL bounds the path and query of a URL, in bytes as they were sent. In a line they are at
	// most five times as long, with url_base64.
	MaxURL = 64 << 10
	// MaxCut bounds what [AppendCut] appends, in bytes.
	MaxCut = len(cutBegins) + len("9223372036854775807") + len(cutEnds)
)

// These enclose the original length at the end of a string that was cut.
const (
	cutBegins = "…("
	cutEnds   = " bytes)"
)

// AppendCut marks the end of a string that was cut and had whole bytes before.
func AppendCut(b []byte, whole int) []byte {
	return append(strconv.AppendInt(append(b, cutBegins...), int64(whole), 10), cutEnds...)
}

// CutText splits a string that AppendCut has marked: head is the text before the mark, and
// whole the original length in bytes. A string that was never cut may end in the same way.
func CutText(s string) (head string, whole int, cut bool) {
	i := strings.LastIndex(s, cutBegins)
	if i < 0 {
		return s, len(s), false
	}
	digits, ended := strings.CutSuffix(s[i+len(cutBegins):], cutEnds)
	whole, err := strconv.Atoi(digits)
	if !ended || err != nil {
		return s, len(s), false
	}
	return s[:i], whole, true
}

// VersionMember marks the lines of this version. Their writer adds an [EventPruned] before it removes segments, so if the
// beginning of a trail with such lines is missing without that event, somebody else removed it. Lines of version 2 are of
// such a writer too, but have no salts ([Salter]). Lines of earlier versions do not have the member.
const VersionMember = `,"v":3`

// A Hash is the SHA-256 of a line. The first line of a trail has the zero Hash as its prev.
type Hash [sha256.Size]byte

func (h Hash) String() string { return hex.EncodeToString(h[:]) }

// A Link has the members that chain a line to the line before it.
type Link struct {
	// Seq is the number of the line, from 1.
	Seq uint64

	// Prev is the hash of the line before.
	Prev Hash

	// Hash is the SHA-256 of the line's bytes before the member hash.
	Hash Hash
}

// These are the errors of ReadLink.
var (
	ErrForm    = errors.New("not a line of the audit: it does not end with seq, prev and hash")
	ErrChanged = errors.New("changed: the hash does not match the bytes of the line")
)

const (
	seqName  = `,"seq":`
	prevName = `,"prev":"`
	hashName = `,"hash":"`

	hexHashLen    = 2 * sha256.Size
	hashMemberLen = len(hashName) + hexHashLen + len(`"`)
	prevMemberLen = len(prevName) + hexHashLen + len(`"`)

	// maxSalts bounds the member salts with the brace.
	maxSalts = len(saltsName) + membersCount*(len(`"robots_agent":"",`)+saltLen) + len(saltsEnd)
)

// MaxLink bounds what [AppendLink] and [Salter.AppendSalted] append to a line, in bytes, with the line feed.
const MaxLink = len(seqName) + len("18446744073709551615") + prevMemberLen + hashMemberLen + maxSalts + len("\n")

// AppendLink completes the line that begins at b[start:]: a JSON object with at least one
// member and without its closing brace. It appends the members seq, prev and hash, the brace
// and a line feed, and returns the hash of the line.
func AppendLink(b []byte, start int, seq uint64, prev Hash) ([]byte, Hash) {
	b = appendSeqPrev(b, seq, prev)
	hash := Hash(sha256.Sum256(b[start:]))
	return append(appendHash(b, hash), "}\n"...), hash
}

func appendSeqPrev(b []byte, seq uint64, prev Hash) []byte {
	b = strconv.AppendUint(append(b, seqName...), seq, 10)
	b = hex.AppendEncode(append(b, prevName...), prev[:])
	return append(b, '"')
}

func appendHash(b []byte, hash Hash) []byte {
	return append(hex.AppendEncode(append(b, hashName...), hash[:]), '"')
}

// ReadLink returns the Link of a line, given without its line feed. The error is ErrForm, or
// ErrChanged if the hash is not that of the line. With ErrChanged, the Link has the values that
// the line states.
func ReadLink(line []byte) (Link, error) {
	l, _, err := readLink(line)
	return l, err
}

// readLink is ReadLink, and also returns the number of values that were erased.
func readLink(line []byte) (l Link, erased int, err error) {
	l, body, salts, ok := splitLink(line)
	if !ok {
		return Link{}, 0, ErrForm
	}
	hash, erased, ok := saltedHash(body, salts)
	if !ok || hash != l.Hash {
		return l, 0, ErrChanged
	}
	if !isVersioned(body) {
		// In lines of earlier versions, a value is what it says.
		erased = 0
		if salts != nil {
			err = ErrChanged
		}
	}
	return l, erased, err
}

// isVersioned reports whether the bytes before the hash are those of a line of this version.
func isVersioned(body []byte) bool {
	return bytes.HasSuffix(bytes.TrimRight(body[:len(body)-prevMemberLen], "0123456789"), []byte(VersionMember+seqName))
}

// splitLink returns the Link of a line, the bytes before its hash, and its salts.
func splitLink(line []byte) (l Link, body, salts []byte, ok bool) {
	body, hash, prev, salts, ok := cutLink(line)
	if !ok || !decodeHash(&l.Hash, hash) || !decodeHash(&l.Prev, prev) {
		return Link{}, nil, nil, false
	}
	l.Seq, ok = seqBefore(body[:len(body)-prevMemberLen])
	if !ok || line[0] != '{' {
		return Link{}, nil, nil, false
	}
	return l, body, salts, true
}

// seqOf returns the number of a line without reading its hashes; ok is false if it is not a line of a trail.
func seqOf(line []byte) (seq uint64, ok bool) {
	body, _, _, _, ok := cutLink(line)
	if !ok {
		return 0, false
	}
	return seqBefore(body[:len(body)-prevMemberLen])
}

// cutLink cuts the members after seq from a line: the digits of its hash and of prev, and its salts. body is what stands
// before the hash.
func cutLink(line []byte) (body, hash, prev, salts []byte, ok bool) {
	rest, salts := cutSalts(line)
	if salts == nil {
		if rest, ok = bytes.CutSuffix(line, []byte("}")); !ok {
			return nil, nil, nil, nil, false
		}
	}
	body, hash, ok = cutHash(rest, hashName, hashMemberLen)
	if !ok {
		return nil, nil, nil, nil, false
	}
	_, prev, ok = cutHash(body, prevName, prevMemberLen)
	return body, hash, prev, salts, ok
}

// seqBefore returns the number in the member seq at the end of b.
func seqBefore(b []byte) (seq uint64, ok bool) {
	digits := len(b)
	for digits > 0 && b[digits-1] >= '0' && b[digits-1] <= '9' {
		digits--
	}
	seq, err := strconv.ParseUint(string(b[digits:]), 10, 64)
	return seq, err == nil && seq > 0 && b[digits] != '0' && bytes.HasSuffix(b[:digits], []byte(seqName))
}

// cutHash cuts a member of size bytes with the digits of a hash from the end of a line.
func cutHash(line []byte, name string, size int) (rest, digits []byte, ok bool) {
	if len(line) < size {
		return line, nil, false
	}
	rest, member := line[:len(line)-size], line[len(line)-size:]
	value, named := bytes.CutPrefix(member, []byte(name))
	digits, ended := bytes.CutSuffix(value, []byte(`"`))
	return rest, digits, named && ended
}

// decodeHash reads the digits of a hash, which are lower case, as AppendLink writes them.
func decodeHash(h *Hash, digits []byte) bool {
	_, err := hex.Decode(h[:], digits)
	return err == nil && !slices.ContainsFunc(digits, func(c byte) bool { return c >= 'A' && c <= 'F' })
}
