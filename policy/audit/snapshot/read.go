package snapshot

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"robotsproxy/robots"
)

// MinPrefix is how many digits of a SHA-256 name a snapshot at least.
const MinPrefix = 8

// What is wrong with what was asked for, or with what was found.
var (
	ErrName      = fmt.Errorf("no SHA-256: %d to %d hex digits are wanted", MinPrefix, hexHash)
	ErrAmbiguous = errors.New("several snapshots begin so")
	ErrDamaged   = errors.New("damaged: its octets have another SHA-256 than its name")
)

const (
	hexHash   = 2 * sha256.Size
	octetsEnd = ".txt"
)

// octetsPath is where the octets of a hash are.
func octetsPath(dir, sha string) string {
	return filepath.Join(dir, sha[:2], sha[2:]+octetsEnd)
}

func isHex(s string) bool { return strings.Trim(s, "0123456789abcdef") == "" }

// Find gives the whole SHA-256 of the snapshot whose own begins with the digits
// given, in either case: ErrName, fs.ErrNotExist or ErrAmbiguous where there is no
// one such.
func Find(dir, digits string) (sha string, err error) {
	digits = strings.ToLower(digits)
	if len(digits) < MinPrefix || len(digits) > hexHash || !isHex(digits) {
		return "", ErrName
	}
	entries, err := os.ReadDir(filepath.Join(dir, digits[:2]))
	if err != nil {
		return "", err
	}
	for _, e := range entries {
		name, ok := hashOf(digits[:2], e.Name())
		switch {
		case !ok || !strings.HasPrefix(name, digits):
		case sha != "":
			return "", ErrAmbiguous
		default:
			sha = name
		}
	}
	if sha == "" {
		return "", fs.ErrNotExist
	}
	return sha, nil
}

// hashOf gives the hash that a file in a directory of octets is named after.
func hashOf(dir, name string) (sha string, ok bool) {
	rest, ok := strings.CutSuffix(name, octetsEnd)
	sha = dir + rest
	return sha, ok && len(dir) == 2 && len(sha) == hexHash && isHex(sha)
}

// Octets gives the octets of a SHA-256, in full and lower case, and sees to it that
// they have it: ErrDamaged if not.
func Octets(dir, sha string) ([]byte, error) {
	if len(sha) != hexHash || !isHex(sha) {
		return nil, ErrName
	}
	file, err := os.Open(octetsPath(dir, sha))
	if err != nil {
		return nil, err
	}
	defer file.Close()
	octets, err := io.ReadAll(io.LimitReader(file, robots.MaxBytes+1)) // one more has another hash
	if err != nil {
		return nil, err
	}
	if sum := sha256.Sum256(octets); hex.EncodeToString(sum[:]) != sha {
		return nil, ErrDamaged
	}
	return octets, nil
}
