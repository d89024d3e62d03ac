package snapshot

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/klauspost/compress/gzip"

	"robotsproxy/robots/fetch"
)

// These names are in the directory beside the snapshot files.
const (
	indexName = "index"
	newNames  = "new-*.tmp"
)

// maxPending is how many files and directories may wait for Flush; the disk is waited
// for at once for those beyond.
const maxPending = 4096

// errHash is of an answer that was damaged in memory or in a store.
var errHash = errors.New("the answer's bytes have another SHA-256 than the answer says")

// maxZips is how many files are compressed at once, each with about 1 MiB of memory.
const maxZips = 4

// A disk writes the files.
type disk struct {
	dir  string
	lazy atomic.Bool       // the disk is never waited for
	zips chan *gzip.Writer // holds maxZips writers; a nil one is still to be made

	lines sync.Mutex // held while a line is written: a torn one is seen before the next

	flushing sync.Mutex // held while the disk is waited for: a Flush waits for the one before

	mu      sync.Mutex // guards pending
	pending map[string]struct{}
}

// zips gives a channel for disk.zips.
func zips() chan *gzip.Writer {
	all := make(chan *gzip.Writer, maxZips)
	for range maxZips {
		all <- nil
	}
	return all
}

// mostOnDisk gives the space on the disk that n bytes take at most when they are compressed.
func mostOnDisk(n int) int64 { return onDisk(int64(n + n>>8 + 64)) }

// known reports whether the bytes of an answer are kept, and sets the time of their file
// to now. It removes a damaged file in their place; freed is the space that this file took.
func (d *disk) known(a *fetch.Result, now time.Time) (known bool, freed int64, err error) {
	for _, path := range paths(d.dir, a.SHA256) {
		info, err := os.Stat(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return false, freed, err
		}
		body, err := read(path)
		switch {
		case err == nil && bytes.Equal(body, a.Body):
			return true, freed, os.Chtimes(path, now, now) // the time of their last use
		case err != nil && !errors.Is(err, ErrDamaged):
			return false, freed, err
		case !hasHash(a.Body, a.SHA256):
			return false, freed, errHash
		}
		if err := os.Remove(path); err != nil {
			return false, freed, err
		}
		freed += onDisk(info.Size())
	}
	return false, freed, nil
}

// file writes the bytes of an answer, and gives the space on the disk that they take.
func (d *disk) file(a *fetch.Result, now time.Time) (size int64, err error) {
	if !hasHash(a.Body, a.SHA256) {
		return 0, errHash
	}
	path := octetsPath(d.dir, a.SHA256)
	if err := d.mkdir(filepath.Dir(path)); err != nil {
		return 0, err
	}
	tmp, err := os.CreateTemp(d.dir, newNames)
	if err != nil {
		return 0, err
	}
	if size, err = d.fill(tmp, a.Body, now); err == nil {
		err = os.Rename(tmp.Name(), path)
	}
	if err != nil {
		return 0, errors.Join(err, os.Remove(tmp.Name()))
	}
	return size, d.settle(path, filepath.Dir(path))
}

// fill compresses body into a temporary file, and closes it.
func (d *disk) fill(tmp *os.File, body []byte, now time.Time) (size int64, err error) {
	zip := <-d.zips
	if zip == nil {
		zip, _ = gzip.NewWriterLevel(tmp, gzip.BestSpeed) // fails for other levels alone
	} else {
		zip.Reset(tmp)
	}
	_, err = zip.Write(body)
	err = errors.Join(err, zip.Close())
	d.zips <- zip
	info, serr := tmp.Stat()
	if err = errors.Join(err, serr, tmp.Close()); err != nil {
		return 0, err
	}
	return onDisk(info.Size()), os.Chtimes(tmp.Name(), now, now) // by our clock, as all that is compared with it
}

// line adds a line, which begins with a line break, to the index of its day. It leaves
// the line break out if the line before is whole.
func (d *disk) line(line []byte, now time.Time) (added int64, err error) {
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
