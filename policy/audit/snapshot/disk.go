package snapshot

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"robotsproxy/robots/fetch"
)

// What stands in the directory beside the octets.
const (
	indexName = "index"
	newNames  = "new-*.tmp"
)

// maxPending is how many files and directories may wait for Flush; the disk is waited
// for at once for those beyond.
const maxPending = 4096

// errHash is of an answer that was damaged in memory or in a store.
var errHash = errors.New("the SHA-256 of the answer is not that of its octets")

// A disk writes the files.
type disk struct {
	dir  string
	lazy atomic.Bool // the disk is never waited for

	lines sync.Mutex // held while a line is written: a torn one is seen before the next

	flushing sync.Mutex // held while the disk is waited for: a Flush waits for the one before

	mu      sync.Mutex // guards pending
	pending map[string]struct{}
}

// keep writes an answer's octets, and its line. It gives how many octets more are in
// the directory.
func (d *disk) keep(a *fetch.Answer, now time.Time) (added int64, err error) {
	if a.SHA256 != "" {
		if added, err = d.octets(a, now); err != nil {
			return added, err
		}
	}
	n, err := d.line(fetchOf(a, now), now)
	return added + n, err
}

// octets writes those of an answer, where they are not there.
func (d *disk) octets(a *fetch.Answer, now time.Time) (added int64, err error) {
	if sum := sha256.Sum256(a.Body); hex.EncodeToString(sum[:]) != a.SHA256 {
		return 0, errHash
	}
	path := octetsPath(d.dir, a.SHA256)
	was, err := os.ReadFile(path)
	if err == nil && bytes.Equal(was, a.Body) {
		return 0, os.Chtimes(path, now, now) // what they are kept for begins anew
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return 0, err
	}
	if err := d.mkdir(filepath.Dir(path)); err != nil {
		return 0, err
	}
	tmp, err := os.CreateTemp(d.dir, newNames)
	if err != nil {
		return 0, err
	}
	if err = fill(tmp, a.Body, now); err == nil {
		err = os.Rename(tmp.Name(), path)
	}
	if err != nil {
		return 0, errors.Join(err, os.Remove(tmp.Name()))
	}
	return int64(len(a.Body) - len(was)), d.settle(path, filepath.Dir(path))
}

// fill writes a temporary file and closes it.
func fill(tmp *os.File, octets []byte, now time.Time) error {
	_, err := tmp.Write(octets)
	if err = errors.Join(err, tmp.Close()); err != nil {
		return err
	}
	return os.Chtimes(tmp.Name(), now, now) // by our clock, as all that is compared with it
}

// line adds a line to the index of its day.
func (d *disk) line(f Fetch, now time.Time) (added int64, err error) {
	line, err := appendLine([]byte{'\n'}, f)
	if err != nil {
		return 0, err
	}
	d.lines.Lock()
	defer d.lines.Unlock()
	path := indexPath(d.dir, now)
	if err := d.mkdir(filepath.Dir(path)); err != nil {
		return 0, err
	}
	file, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return 0, err
	}
	info, err := file.Stat()
	if err == nil {
		if !torn(file, info.Size()) {
			line = line[1:]
		}
		_, err = file.Write(line) // one write: readers see all of it, or a torn line
	}
	if err = errors.Join(err, file.Close()); err != nil {
		return 0, err
	}
	dir := ""
	if info.Size() == 0 {
		dir = filepath.Dir(path)
	}
	return int64(len(line)), d.settle(path, dir)
}

// torn says whether a file of this size ends within a line, as after a crash.
func torn(file *os.File, size int64) bool {
	var last [1]byte
	_, err := file.ReadAt(last[:], size-1)
	return size > 0 && err == nil && last[0] != '\n'
}

// mkdir makes a directory of ours, and d.dir above it where that was taken away.
func (d *disk) mkdir(path string) error {
	if _, err := os.Stat(path); err == nil {
		return nil
	}
	if err := os.MkdirAll(path, 0o700); err != nil {
		return err
	}
	return d.settle("", d.dir)
}

// settle has the disk waited for: for a file that was written, and for the directory
// in which its name is new; "": there is none.
func (d *disk) settle(file, dir string) error {
	if d.lazy.Load() || d.later(file, dir) {
		return nil
	}
	return errors.Join(syncPath(file), syncPath(dir))
}

// later leaves paths to Flush; false: too many are already.
func (d *disk) later(paths ...string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.pending)+len(paths) > maxPending {
		return false
	}
	if d.pending == nil {
		d.pending = make(map[string]struct{})
	}
	for _, path := range paths {
		if path != "" {
			d.pending[path] = struct{}{}
		}
	}
	return true
}

// flush waits for the disk to have what is pending.
func (d *disk) flush() error {
	d.flushing.Lock()
	defer d.flushing.Unlock()
	d.mu.Lock()
	pending := d.pending
	d.pending = nil
	d.mu.Unlock()
	var first error
	for path := range pending {
		err := syncPath(path)
		if err == nil || errors.Is(err, fs.ErrNotExist) { // pruned meanwhile
			continue
		}
		d.later(path)
		first = cmp.Or(first, err)
	}
	return first
}

// syncPath waits for the disk to have a file or directory; "": for nothing.
func syncPath(path string) error {
	if path == "" {
		return nil
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}
