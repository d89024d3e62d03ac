package snapshot

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/klauspost/compress/gzip"

	"robotsproxy/policy/osfile"
	"robotsproxy/robots"
)

// MinPrefix is the least number of digits of a SHA-256 that name a snapshot.
const MinPrefix = 8

// These are the errors of Find and Read.
var (
	ErrName      = fmt.Errorf("not a SHA-256: use %d to %d hex digits", MinPrefix, hexHashLen)
	ErrAmbiguous = errors.New("several snapshots begin with these digits")
	ErrDamaged   = errors.New("damaged: the SHA-256 of its bytes is not its name")
)

const (
	hexHashLen = 2 * sha256.Size
	plainExt   = ".txt" // extension of files that older versions wrote
	gzipExt    = ".gz"  // follows plainExt in the names of other files
)

// gzipPath returns the path of the compressed bytes with this hash.
func gzipPath(dir, sha string) string { return plainPath(dir, sha) + gzipExt }

// plainPath returns the path at which older versions wrote the bytes with this hash, not
// compressed.
func plainPath(dir, sha string) string {
	return filepath.Join(dir, sha[:2], sha[2:]+plainExt)
}

// possiblePaths returns the paths that may have the bytes with this hash.
func possiblePaths(dir, sha string) []string {
	return []string{gzipPath(dir, sha), plainPath(dir, sha)}
}

func isHex(s string) bool { return strings.Trim(s, "0123456789abcdef") == "" }

// Find returns the SHA-256 of the snapshot that begins with the digits, in either case. The error
// is ErrName, fs.ErrNotExist or ErrAmbiguous.
func Find(dir, digits string) (sha string, err error) {
	digits = strings.ToLower(digits)
	if len(digits) < MinPrefix || len(digits) > hexHashLen || !isHex(digits) {
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

// hashOf returns the hash after which a file is named, by its directory and name.
func hashOf(dir, name string) (sha string, ok bool) {
	rest, ok := strings.CutSuffix(strings.TrimSuffix(name, gzipExt), plainExt)
	sha = dir + rest
	return sha, ok && len(dir) == 2 && len(sha) == hexHashLen && isHex(sha)
}

// Read returns the bytes with a SHA-256, in full and lower case, as they were fetched. The error
// is ErrDamaged if the file has bytes with another hash.
func Read(dir, sha string) (body []byte, err error) {
	if len(sha) != hexHashLen || !isHex(sha) {
		return nil, ErrName
	}
	for _, path := range possiblePaths(dir, sha) {
		body, rerr := readFile(path)
		if rerr == nil && !hasHash(body, sha) {
			rerr = ErrDamaged
		}
		if rerr == nil {
			return body, nil
		}
		if err == nil || errors.Is(err, fs.ErrNotExist) {
			err = rerr
		}
	}
	return nil, err
}

func hasHash(body []byte, sha string) bool {
	sum := sha256.Sum256(body)
	return hex.EncodeToString(sum[:]) == sha
}

// readFile returns the bytes of a file, decompressed if its name says so. The error is ErrDamaged
// if they cannot be decompressed.
func readFile(path string) ([]byte, error) {
	file, err := osfile.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	var body []byte
	r := io.Reader(file)
	if strings.HasSuffix(path, gzipExt) {
		r, err = gzip.NewReader(file)
	}
	if err == nil {
		// If a file is longer, its hash differs.
		body, err = io.ReadAll(io.LimitReader(r, robots.MaxBytes+1))
	}
	if _, disk := errors.AsType[*fs.PathError](err); err != nil && !disk {
		err = ErrDamaged
	}
	return body, err
}

// A file has the bytes with a hash, or the index of a day.
type file struct {
	path string

	// sha is the hash; "": it is a file of the index.
	sha string

	// used is when a decision last rested on it, to the day; for the index, the end of the day.
	used time.Time

	// size is how many bytes it takes on the disk; for the index, its length.
	size int64
}

// Size returns how many bytes all files of a snapshot directory take on the disk. The error is the
// first of several.
func Size(dir string) (total int64, first error) {
	for f, err := range files(dir) {
		if err != nil && first == nil {
			first = err
		}
		total += f.size
	}
	return total, first
}

// files lists all files that may be removed. An error concerns one directory or file.
func files(root string) iter.Seq2[file, error] {
	return func(yield func(file, error) bool) {
		all, err := days(root)
		if err != nil && !yield(file{}, err) {
			return
		}
		for _, d := range all {
			path := indexPath(root, d)
			info, err := os.Stat(path)
			if err == nil && !yield(file{path, "", d.Add(day), info.Size()}, nil) {
				return
			}
		}
		dirs, err := os.ReadDir(root)
		if err != nil && !errors.Is(err, fs.ErrNotExist) && !yield(file{}, err) {
			return
		}
		for _, d := range dirs {
			dir := d.Name()
			if len(dir) != 2 || !isHex(dir) {
				continue
			}
			entries, err := os.ReadDir(filepath.Join(root, dir))
			if err != nil && !errors.Is(err, fs.ErrNotExist) && !yield(file{}, err) {
				return
			}
			for _, e := range entries {
				sha, ok := hashOf(dir, e.Name())
				info, err := e.Info()
				if !ok || err != nil || !info.Mode().IsRegular() {
					// The file is no snapshot, or was removed.
					continue
				}
				if !yield(file{filepath.Join(root, dir, e.Name()), sha, info.ModTime(), onDisk(info.Size())}, nil) {
					return
				}
			}
		}
	}
}

// blockSize is the unit in which file systems allocate space, in bytes. A file counts as
// whole blocks, and as at least one.
const blockSize = 4 << 10

// onDisk returns the space on the disk that a file of size bytes takes.
func onDisk(size int64) int64 {
	return max(1, (size+blockSize-1)/blockSize) * blockSize
}
