package trail

import (
	"errors"
	"strconv"
	"strings"
)

// anchorDigits is how much of a hash an anchor has at least: 128 bits.
const anchorDigits = 32

// An Anchor names a line by its number and its hash. Kept where who writes the trail
// cannot change it, it shows later that the line, and all before it, are still as they
// were. The zero Anchor names none.
type Anchor struct {
	Seq  uint64
	Hash string // the first hex digits, 32 at least
}

func (a Anchor) String() string { return strconv.FormatUint(a.Seq, 10) + ":" + a.Hash }

var errAnchor = errors.New("no anchor, which is the number of a line, a colon, and the first 32 hex digits of its hash, or more of them")

// ParseAnchor reads what String gives.
func ParseAnchor(s string) (Anchor, error) {
	number, digits, _ := strings.Cut(s, ":")
	seq, err := strconv.ParseUint(number, 10, 64)
	digits = strings.ToLower(digits)
	if err != nil || seq == 0 || len(digits) < anchorDigits || len(digits) > hexHash || strings.Trim(digits, "0123456789abcdef") != "" {
		return Anchor{}, errAnchor
	}
	return Anchor{Seq: seq, Hash: digits}, nil
}

// names says whether the anchor is of a line with this hash.
func (a Anchor) names(h Hash) bool {
	return len(a.Hash) >= anchorDigits && strings.HasPrefix(h.String(), a.Hash)
}
