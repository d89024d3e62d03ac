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

	"github.com/klauspost/compress/gzip"

	"robotsproxy/robots"
)

// MinPrefix is how many digits of a SHA-256 name a snapshot at least.
const MinPrefix = 8

// What is wrong with what was asked for, or with what was found.
var (
	ErrName      = fmt.Errorf("no SHA-256: %d to %d hex digits are wanted", MinPrefix, hexHash)
	ErrAmbiguous = errors.New("several snapshots begin so")
	ErrDamaged   = errors.New("damaged: its bytes have another SHA-256 than its name")
)

const (
	hexHash  = 2 * sha256.Size
	plainEnd = ".txt" // ends the names of files that older versions wrote
	zipEnd   = ".gz"  // follows plainEnd in the names of others
)

// octetsPath gives the file for the bytes of a hash, compressed.
func octetsPath(dir, sha string) string { return plainPath(dir, sha) + zipEnd }

// plainPath gives the file in which older versions wrote the bytes of a hash, not compressed.
func plainPath(dir, sha string) string {
	return filepath.Join(dir, sha[:2], sha[2:]+plainEnd)
}

// paths gives the files that may have the bytes of a hash.
func paths(dir, sha string) []string {
	return []string{octetsPath(dir, sha), plainPath(dir, sha)}
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
		case sha != "" && sha != name:
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

// hashOf gives the hash that a file is named after, by its directory and name.
func hashOf(dir, name string) (sha string, ok bool) {
	rest, ok := strings.CutSuffix(strings.TrimSuffix(name, zipEnd), plainEnd)
	sha = dir + rest
	return sha, ok && len(dir) == 2 && len(sha) == hexHash && isHex(sha)
}

// Octets gives the bytes of a SHA-256, in full and lower case, as they were fetched. The
// error is ErrDamaged if the file has bytes with another hash.
func Read(dir, sha string) (octets []byte, err error) {
	if len(sha) != hexHash || !isHex(sha) {
		return nil, ErrName
	}
	for _, path := range paths(dir, sha) {
		octets, rerr := read(path)
		if rerr == nil && !hasHash(octets, sha) {
			rerr = ErrDamaged
		}
		if rerr == nil {
			return octets, nil
		}
		if err == nil || errors.Is(err, fs.ErrNotExist) {
			err = rerr
		}
	}
	return nil, err
}

func hasHash(octets []byte, sha string) bool {
	sum := sha256.Sum256(octets)
	return hex.EncodeToString(sum[:]) == sha
}

// read gives the bytes of a file, decompressed if its name says so. The error is ErrDamaged
// if they cannot be decompressed.
func read(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	var octets []byte
	r := io.Reader(file)
	if strings.HasSuffix(path, zipEnd) {
		r, err = gzip.NewReader(file)
	}
	if err == nil {
		octets, err = io.ReadAll(io.LimitReader(r, robots.MaxBytes+1)) // one more has another hash
	}
	if _, disk := errors.AsType[*fs.PathError](err); err != nil && !disk {
		err = ErrDamaged
	}
	return octets, err
}
