package trail

import (
	"errors"
	"strconv"
	"strings"
)

// anchorDigits is the least number of hex digits in an Anchor: 128 bits.
const anchorDigits = 32

// An Anchor identifies a line by its number and hash. If it is kept where the writer of the
// trail cannot change it, it proves later that this line and all lines before it have not
// changed. The zero Anchor identifies no line.
type Anchor struct {
	Seq uint64

	// Hash has the first hex digits of the hash, at least 32.
	Hash string
}

// Anchor returns the Anchor of the line; the zero Anchor for the zero Link.
func (l Link) Anchor() Anchor {
	if l.Seq == 0 {
		return Anchor{}
	}
	return Anchor{Seq: l.Seq, Hash: l.Hash.String()[:anchorDigits]}
}

func (a Anchor) String() string { return strconv.FormatUint(a.Seq, 10) + ":" + a.Hash }

var errAnchor = errors.New("not an anchor: use the number of a line, a colon, and at least the first 32 hex digits of its hash")

// ParseAnchor parses the result of [Anchor.String].
func ParseAnchor(s string) (Anchor, error) {
	number, digits, _ := strings.Cut(s, ":")
	seq, err := strconv.ParseUint(number, 10, 64)
	digits = strings.ToLower(digits)
	if err != nil || seq == 0 || len(digits) < anchorDigits || len(digits) > hexHashLen || strings.Trim(digits, "0123456789abcdef") != "" {
		return Anchor{}, errAnchor
	}
	return Anchor{Seq: seq, Hash: digits}, nil
}

// Matches reports whether the anchor is of a line with this hash.
func (a Anchor) Matches(h Hash) bool {
	return len(a.Hash) >= anchorDigits && strings.HasPrefix(h.String(), a.Hash)
}
