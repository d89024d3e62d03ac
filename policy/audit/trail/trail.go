// Package trail is the form that the audit has on disk, and how it is read: JSON
// objects, one a line, each of which names its number and the hash of the line
// before it ([Seal], [ReadLink]); files that are set aside when they are full
// ([Files]); what a line says ([Entry]). A [Reader] gives the lines, [Verify] holds
// them against the chain.
//
// It is not the writer, which is package audit, and takes no lock: whoever may read
// the files may read them while they are written. A last line that is not whole yet
// is told from a torn one by waiting a moment.
//
// A chain shows that no line between the first and the last that are there was
// changed, taken out or moved. An [EventPruned] shows that the writer removed the lines
// before the first. That the end was not cut off, or the whole not written anew, only an
// [Anchor] kept elsewhere can show.
//
// How it fails: an error names the file, and the place of the line where it is one
// line's. Functions may be called by any number of goroutines, a [Reader] is one
// goroutine's.
package trail

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"strconv"
	"strings"
)

// MaxLine bounds a line, in bytes without its line feed. Records stay far below it:
// all their strings are bounded when they are written.
const MaxLine = 1 << 20

const (
	// MaxText bounds each string of a line but the URL, in bytes in the line, with
	// escapes. Most User-Agents and rules have under 200. Longer strings would fill the
	// files, and push older lines out of them.
	MaxText = 1 << 10
	// MaxURL bounds the path and query of a URL, in bytes before they are escaped, which
	// makes them at most three times as long.
	MaxURL = 64 << 10
	// MaxCut bounds what [AppendCut] writes, in bytes.
	MaxCut = len(cutBegins) + len("9223372036854775807") + len(cutEnds)
)

// A string that is cut ends in its whole length between these two.
const (
	cutBegins = "…("
	cutEnds   = " bytes)"
)

// AppendCut ends a string that is cut, and had whole bytes before.
func AppendCut(b []byte, whole int) []byte {
	return append(strconv.AppendInt(append(b, cutBegins...), int64(whole), 10), cutEnds...)
}

// CutText takes apart a string that AppendCut has ended: head is what is left of it, and
// whole the length that it had. A string that was never cut may end in the same way.
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

// Version is the member that marks the lines of a writer that adds an [EventPruned] before
// it removes files. If the beginning of a trail with such lines is missing without that
// event, somebody else has removed it. Lines of earlier versions do not have the member.
const VersionMember = `,"v":2`

// A Hash is the SHA-256 of a line; the zero Hash stands before the first.
type Hash [sha256.Size]byte

func (h Hash) String() string { return hex.EncodeToString(h[:]) }

// A Link is what chains a line.
type Link struct {
	Seq  uint64 // the line's number, from 1
	Prev Hash   // of the line before
	Hash Hash   // of the line's octets before the member hash
}

// What is wrong with a line by itself.
var (
	ErrForm    = errors.New("no line of a trail: it does not end with seq, prev and hash")
	ErrChanged = errors.New("changed: its hash is not that of its octets")
)

const (
	seqName  = `,"seq":`
	prevName = `,"prev":"`
	hashName = `,"hash":"`

	hexHash = 2 * sha256.Size
	hashEnd = len(hashName) + hexHash + len(`"}`)
	prevEnd = len(prevName) + hexHash + len(`"`)
)

// MaxSeal bounds what [Seal] adds to a line, in bytes, the line feed included.
const MaxLink = len(seqName) + len("18446744073709551615") + prevEnd + hashEnd + len("\n")

// Seal ends the line that begins at b[start:], an object with a member at least
// and without its closing brace, as number seq after a line of the hash prev, and
// gives its own.
func AppendLink(b []byte, start int, seq uint64, prev Hash) ([]byte, Hash) {
	b = strconv.AppendUint(append(b, seqName...), seq, 10)
	b = appendHex(append(b, prevName...), &prev)
	b = append(b, '"')
	hash := Hash(sha256.Sum256(b[start:]))
	b = appendHex(append(b, hashName...), &hash)
	return append(b, "\"}\n"...), hash
}

// appendHex is hex.AppendEncode, which looks up each digit: of four octets at a time it
// spreads the eight half octets, each into an octet, and makes digits of all at once.
func appendHex(b []byte, h *Hash) []byte {
	const ones = 0x0101010101010101
	for i := 0; i < len(h); i += 4 {
		x := uint64(binary.BigEndian.Uint32(h[i:]))
		x = (x | x<<16) & 0x0000ffff0000ffff
		x = (x | x<<8) & 0x00ff00ff00ff00ff
		x = (x | x<<4) & 0x0f0f0f0f0f0f0f0f
		letter := (x + ones*6) >> 4 & ones // where the digit is one
		b = binary.BigEndian.AppendUint64(b, x+ones*'0'+letter*('a'-'0'-10))
	}
	return b
}

// ReadLink reads what chains a line, given without its line feed, and holds it
// against the line's octets: ErrForm or ErrChanged. With ErrChanged the Link is what
// the line says of itself.
func ReadLink(line []byte) (Link, error) {
	l, body, ok := link(line)
	switch {
	case !ok:
		return Link{}, ErrForm
	case Hash(sha256.Sum256(body)) != l.Hash:
		return l, ErrChanged
	}
	return l, nil
}

// link reads what chains a line, and what its hash is of.
func link(line []byte) (l Link, body []byte, ok bool) {
	body, ok = cutHash(line, hashName, `"}`, hashEnd, &l.Hash)
	rest := body
	if ok {
		rest, ok = cutHash(rest, prevName, `"`, prevEnd, &l.Prev)
	}
	if !ok {
		return Link{}, nil, false
	}
	digits := len(rest)
	for digits > 0 && '0' <= rest[digits-1] && rest[digits-1] <= '9' {
		digits--
	}
	seq, err := strconv.ParseUint(string(rest[digits:]), 10, 64)
	if err != nil || seq == 0 || rest[digits] == '0' || !bytes.HasSuffix(rest[:digits], []byte(seqName)) || line[0] != '{' {
		return Link{}, nil, false
	}
	l.Seq = seq
	return l, body, true
}

// cutHash takes a member with a hash from the end of a line.
func cutHash(line []byte, name, end string, octets int, h *Hash) (rest []byte, ok bool) {
	if len(line) < octets {
		return line, false
	}
	rest, member := line[:len(line)-octets], line[len(line)-octets:]
	value, named := bytes.CutPrefix(member, []byte(name))
	value, ended := bytes.CutSuffix(value, []byte(end))
	if !named || !ended {
		return line, false
	}
	_, err := hex.Decode(h[:], value)
	return rest, err == nil && !bytes.ContainsAny(value, "ABCDEF") // of several spellings Seal writes one
}
