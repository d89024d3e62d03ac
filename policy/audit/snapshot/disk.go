package snapshot

import (
	"bytes"
	"cmp"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/klauspost/compress/gzip"

	"robotsproxy/policy/osfile"
	"robotsproxy/robots/fetch"
)

// tempPattern is that of the names of temporary files.
const tempPattern = "new-*.tmp"

// maxPending bounds the files and directories that wait for Flush. For others, the disk is waited
// for at once.
const maxPending = 4096

// errHash is the error for an answer that was damaged in memory or in a store.
var errHash = errors.New("the bytes of the response do not match its SHA-256")

// maxGzipWriters is how many files are compressed at once, each with about 1 MiB of memory.
const maxGzipWriters = 4

// A disk writes the files.
type disk struct {
	dir string

	// noSync says that no method waits for the disk.
	noSync atomic.Bool

	// gzipWriters holds maxGzipWriters writers; nil stands for one that was not made yet.
	gzipWriters chan *gzip.Writer

	// indexMu is held while a line is written, so that a torn line is noticed before the next one.
	indexMu sync.Mutex

	// flushing is held while flush waits for the disk, so that each flush waits for the previous one.
	flushing sync.Mutex

	// mu guards what follows.
	mu      sync.Mutex
	pending map[string]struct{}

	// awaiting is the number of paths for which flush waits now; those that fail become pending again.
	awaiting int
}

// newGzipWriters returns a channel for disk.gzipWriters.
func newGzipWriters() chan *gzip.Writer {
	all := make(chan *gzip.Writer, maxGzipWriters)
	for range maxGzipWriters {
		all <- nil
	}
	return all
}

// maxOnDisk returns the most space on the disk that n bytes take when they are compressed.
func maxOnDisk(n int) int64 { return onDisk(int64(n + n>>8 + 64)) }

// isStored reports whether the bytes of an answer are stored, and if so sets the time of their
// file to now. If a file is damaged, isStored removes it; freed is the space that it took.
func (d *disk) isStored(a *fetch.Result, now time.Time) (known bool, freed int64, err error) {
	for _, path := range possiblePaths(d.dir, a.SHA256) {
		info, err := os.Stat(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return false, freed, err
		}
		body, err := readFile(path)
		switch {
		case err == nil && bytes.Equal(body, a.Body):
			// The time of the file is that of its last use.
			return true, freed, os.Chtimes(path, now, now)
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

// writeFile writes the bytes of an answer, and returns the space on the disk that they take.
func (d *disk) writeFile(a *fetch.Result, now time.Time) (size int64, err error) {
	if !hasHash(a.Body, a.SHA256) {
		return 0, errHash
	}
	path := gzipPath(d.dir, a.SHA256)
	if err := d.mkdir(filepath.Dir(path)); err != nil {
		return 0, err
	}
	tmp, err := os.CreateTemp(d.dir, tempPattern)
	if err != nil {
		return 0, err
	}
	if size, err = d.compress(tmp, a.Body, now); err == nil {
		err = os.Rename(tmp.Name(), path)
	}
	if err != nil {
		return 0, errors.Join(err, os.Remove(tmp.Name()))
	}
	return size, d.syncLater(path, filepath.Dir(path))
}

// compress compresses body into a temporary file, and closes it.
func (d *disk) compress(tmp *os.File, body []byte, now time.Time) (size int64, err error) {
	zip := <-d.gzipWriters
	if zip == nil {
		// This fails only for other levels.
		zip, _ = gzip.NewWriterLevel(tmp, gzip.BestSpeed)
	} else {
		zip.Reset(tmp)
	}
	_, err = zip.Write(body)
	err = errors.Join(err, zip.Close())
	d.gzipWriters <- zip
	info, serr := tmp.Stat()
	if err = errors.Join(err, serr, tmp.Close()); err != nil {
		return 0, err
	}
	// The time is one of this machine's clock, as those that are compared with it. The disk may be another machine's.
	return onDisk(info.Size()), os.Chtimes(tmp.Name(), now, now)
}

// appendIndex adds a line, which begins with a line feed, to the index of the day. It leaves the
// line feed out if the last line is complete.
func (d *disk) appendIndex(line []byte, now time.Time) (added int64, err error) {
	d.indexMu.Lock()
	defer d.indexMu.Unlock()
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
		if !osfile.EndsWithinLine(file, info.Size()) {
			line = line[1:]
		}
		// Readers see all of one write, or a torn line.
		_, err = file.Write(line)
	}
	if err = errors.Join(err, file.Close()); err != nil {
		return 0, err
	}
	dir := ""
	if info.Size() == 0 {
		dir = filepath.Dir(path)
	}
	return int64(len(line)), d.syncLater(path, dir)
}

// mkdir makes a directory, and d.dir above it if that was removed.
func (d *disk) mkdir(path string) error {
	if _, err := os.Stat(path); err == nil {
		return nil
	}
	if err := os.MkdirAll(path, 0o700); err != nil {
		return err
	}
	return d.syncLater("", d.dir)
}

// syncLater makes the next flush wait for a file that was written, and for the directory in which
// its name is new ("": none). If too many are pending, syncLater waits itself.
func (d *disk) syncLater(file, dir string) error {
	if d.noSync.Load() || d.addPending(file, dir) {
		return nil
	}
	return errors.Join(syncPath(file), syncPath(dir))
}

// addPending adds paths for the next flush. It reports false if there are too many.
func (d *disk) addPending(paths ...string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.pending)+d.awaiting+len(paths) > maxPending {
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

// flush waits until the disk has what is pending.
func (d *disk) flush() error {
	d.flushing.Lock()
	defer d.flushing.Unlock()
	d.mu.Lock()
	pending := d.pending
	d.pending, d.awaiting = nil, len(pending)
	d.mu.Unlock()
	var first error
	for path := range pending {
		err := syncPath(path)
		// The file may have been removed meanwhile.
		if err == nil || errors.Is(err, fs.ErrNotExist) {
			delete(pending, path)
			continue
		}
		first = cmp.Or(first, err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.awaiting = 0
	if len(pending) > 0 {
		maps.Copy(pending, d.pending)
		d.pending = pending
	}
	return first
}

// syncPath waits until the disk has a file or directory; it does nothing for "".
func syncPath(path string) error {
	if path == "" {
		return nil
	}
	return osfile.Sync(path)
}
