package filestore

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	mathrand "math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"robotsproxy/cmd/internal/seal"
	"robotsproxy/robots/cache"
)

const (
	// subdirectories is how many subdirectories the files are in, so that a write need not look at all files.
	subdirectories = 64

	// maxFiles is how many files a subdirectory has: all together 16,384.
	maxFiles = 256

	// maxBytes is how many bytes the files of a subdirectory have: all together 128 MiB. Of the largest entries one fits.
	maxBytes = 2 << 20

	// tempKept is how long a file is kept that a process has perhaps not finished.
	tempKept = time.Hour

	// maxAhead is how far in the future the time of a file may be, as by the clock of a file server. A file further in the
	// future was written while the clock was wrong, and would count as the newest one for long.
	maxAhead = time.Hour
)

const (
	entryExt   = ".entry"
	tempPrefix = "new-"
	tempExt    = ".tmp"
)

// A directory has the files. Its methods wait for the disk.
type directory string

// open opens the directory. It does not follow a symbolic link in its place, and an os.Root follows none that leads out of
// it.
func (d directory) open() (*os.Root, error) {
	info, err := os.Lstat(string(d))
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return nil, fmt.Errorf("%s: not a directory", string(d))
	}
	return os.OpenRoot(string(d))
}

// read returns the entry of a key, which may have expired; nil: there is none. It removes a damaged file.
func (d directory) read(key string) (seal.Value, error) {
	root, err := d.open()
	if isMissing(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer root.Close()
	path := pathOf(key)
	// A file with one byte more than the longest entry has a wrong checksum.
	v, err := readStart(root, path, seal.Bytes+cache.MaxSaved+1)
	switch {
	case isMissing(err):
		return nil, nil
	case errors.Is(err, errNotRegular) || err == nil && !v.IsWhole(key):
		return nil, root.Remove(path)
	}
	return v, err
}

var errNotRegular = errors.New("not a regular file")

// readStart returns up to most bytes from the beginning of a regular file.
func readStart(root *os.Root, path string, most int64) (seal.Value, error) {
	info, err := root.Lstat(path)
	if err != nil {
		return nil, err
	}
	// Opening a FIFO would hang.
	if !info.Mode().IsRegular() {
		return nil, errNotRegular
	}
	file, err := root.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return io.ReadAll(io.LimitReader(file, most))
}

// write replaces the entry of a key, or removes it if v has expired. Then it tidies the entry's subdirectory, and another
// one at random, so that expired files also go where nothing is written any more.
func (d directory) write(key string, v seal.Value, now time.Time) error {
	root, err := d.open()
	if isMissing(err) {
		// Another process may have made the directory meanwhile.
		if err = os.Mkdir(string(d), 0o700); err == nil || errors.Is(err, fs.ErrExist) {
			root, err = d.open()
		}
	}
	if err != nil {
		return err
	}
	defer root.Close()
	path := pathOf(key)
	if v.Until() <= now.Unix() {
		if err := root.Remove(path); !isMissing(err) {
			return err
		}
		return nil
	}
	if err := replace(root, path, v); err != nil {
		return err
	}
	if err := errors.Join(tidy(root, filepath.Dir(path), now), tidy(root, subdirectory(byte(mathrand.Uint32())), now)); err != nil {
		return fmt.Errorf("remove old files: %w", err)
	}
	return nil
}

// replace writes a file under another name, and then gives it its own.
func replace(root *os.Root, path string, v seal.Value) error {
	dir := filepath.Dir(path)
	if err := root.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	temp := filepath.Join(dir, tempPrefix+rand.Text()+tempExt)
	err := root.WriteFile(temp, v, 0o600)
	if err == nil {
		err = root.Rename(temp, path)
	}
	if err != nil {
		_ = root.Remove(temp)
	}
	return err
}

// A file is a file of a subdirectory that may be of use.
type file struct {
	name    string
	size    int64
	written time.Time
}

// tidy removes the files of a subdirectory that are of no use and, beyond the limits, the oldest ones. Another process may
// do the same at the same time, so no failure to remove a file is an error.
func tidy(root *os.Root, subdirectory string, now time.Time) error {
	dir, err := root.OpenRoot(subdirectory)
	if isMissing(err) {
		return nil
	}
	if err != nil {
		return err
	}
	defer dir.Close()
	names, err := namesIn(dir)
	if err != nil {
		return err
	}
	var kept []file
	var total int64
	for _, name := range names {
		f := file{name: name}
		if !f.isUseful(dir, now) {
			_ = dir.Remove(name)
			continue
		}
		kept = append(kept, f)
		total += f.size
	}
	slices.SortFunc(kept, func(a, b file) int { return a.written.Compare(b.written) })
	for ; len(kept) > maxFiles || total > maxBytes; kept = kept[1:] {
		_ = dir.Remove(kept[0].name)
		total -= kept[0].size
	}
	return nil
}

// namesIn returns the names in a subdirectory. If there are very many, it leaves some out, which stay until the next time.
func namesIn(dir *os.Root) ([]string, error) {
	list, err := dir.Open(".")
	if err != nil {
		return nil, err
	}
	defer list.Close()
	names, err := list.Readdirnames(4 * maxFiles)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return names, err
}

// isUseful reports whether a file is an entry that has not expired, or may still become one. It sets the size and the time.
func (f *file) isUseful(dir *os.Root, now time.Time) bool {
	info, err := dir.Lstat(f.name)
	if err != nil || !info.Mode().IsRegular() {
		return false
	}
	f.size, f.written = info.Size(), info.ModTime()
	switch {
	case f.written.After(now.Add(maxAhead)):
		return false
	case strings.HasSuffix(f.name, tempExt):
		return now.Sub(f.written) < tempKept
	}
	start, err := readStart(dir, f.name, seal.Bytes)
	return err == nil && len(start) == seal.Bytes && start.Until() > now.Unix()
}

// pathOf returns the path of a key's entry in the directory.
func pathOf(key string) string {
	sum := sha256.Sum256([]byte(key))
	return filepath.Join(subdirectory(sum[0]), hex.EncodeToString(sum[:])+entryExt)
}

// subdirectory returns the name of the subdirectory for a byte.
func subdirectory(b byte) string { return hex.EncodeToString([]byte{b % subdirectories}) }

// isMissing reports whether err means that there is no such file.
func isMissing(err error) bool { return errors.Is(err, fs.ErrNotExist) }
