package audit

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"robotsproxy/policy/audit/trail"
	"robotsproxy/policy/osfile"
)

// ErrInUse is the error of Open for a file that another process writes.
var ErrInUse = errors.New("another process writes the file")

var (
	errNoFIFO    = errors.New("audit.fifo is set, and this is no FIFO")
	errIrregular = errors.New("not a regular file: write records to a file, to standard output (-), or to a FIFO with audit.fifo")
)

// lockName ends the name of the lock file. It stays the same when segments are rotated. The
// active segment is locked as well, because somebody may delete the lock file.
const lockName = ".lock"

// An activeSegment is the segment that is written, and the lock file beside it. Only sync may
// be called at the same time as another method.
type activeSegment struct {
	path string

	// regular reports that it is a regular file; standard output or a FIFO is neither locked nor rotated.
	regular bool

	// lock is the lock file; nil: it has to be locked.
	lock *os.File

	// firstSeq is the seq of the first line.
	firstSeq uint64

	// size is in bytes.
	size int64

	// lost reports that the file was removed or replaced, and no other was opened yet. movedTo is the name to which the
	// file that replaced it was moved, and movedSize the size of that file in bytes.
	lost      bool
	movedTo   string
	movedSize int64

	// mu guards what follows, so that sync does not use a closed file.
	mu sync.Mutex

	// file is nil if it has to be opened.
	file *os.File

	// nameSynced reports that the disk has the name of the file.
	nameSynced bool
}

// open opens the file at path, or the FIFO if fifo is set, and returns the last Link of its chain. It moves what is not a
// line of the chain to other files, and returns an event for each, and one if the last line was
// changed.
func (s *activeSegment) open(path string, fifo bool) (last trail.Link, events []*event, err error) {
	if path == "-" {
		s.file = os.Stdout
		return last, nil, nil
	}
	s.path = path
	info, err := os.Stat(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return last, nil, err
	}
	switch exists := err == nil; {
	case fifo && (!exists || info.Mode().Type() != fs.ModeNamedPipe):
		return last, nil, fmt.Errorf("%s: %w", path, errNoFIFO)
	case fifo:
		// A FIFO without a reader is an error.
		s.file, err = os.OpenFile(path, os.O_APPEND|os.O_WRONLY|syscall.O_NONBLOCK, 0)
		return last, nil, err
	case exists && !info.Mode().IsRegular():
		return last, nil, fmt.Errorf("%s: %w", path, errIrregular)
	}
	s.regular = true
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	if err := s.takeLock(); err != nil {
		return last, nil, err
	}
	if err := s.openFile(0); err != nil {
		return last, nil, err
	}
	if last, events, err = s.resume(); err != nil {
		return last, nil, fmt.Errorf("%s: %w", path, err)
	}
	return last, events, nil
}

// takeLock locks the lock file, unless it is locked already and was not deleted.
func (s *activeSegment) takeLock() error {
	name := s.path + lockName
	if s.lock != nil {
		if _, ok := osfile.Named(s.lock, name); ok {
			return nil
		}
		s.lock.Close()
		s.lock = nil
	}
	f, err := osfile.OpenFile(name, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	if err := s.flock(f); err != nil {
		return err
	}
	s.lock = f
	return nil
}

// flock locks a file until it is closed. If that fails, it closes the file.
func (s *activeSegment) flock(f *os.File) error {
	err := osfile.TryLock(f)
	if err == nil {
		return nil
	}
	if errors.Is(err, osfile.ErrLocked) {
		err = ErrInUse
	}
	return errors.Join(fmt.Errorf("%s: %w", s.path, err), f.Close())
}

// openFile opens the file at s.path, and creates it if there is none.
func (s *activeSegment) openFile(flag int) error {
	file, err := osfile.OpenFile(s.path, flag|os.O_APPEND|os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	if err := s.flock(file); err != nil {
		return err
	}
	// No other process changes the size now.
	info, err := file.Stat()
	if err != nil {
		return errors.Join(err, file.Close())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.file, s.size, s.nameSynced = file, info.Size(), false
	return nil
}

// resume finds the end of the chain.
func (s *activeSegment) resume() (last trail.Link, events []*event, err error) {
	// changed reports that the last line does not match its hash.
	changed := false
	if s.size > 0 {
		var end int64
		var e *event
		last, end, err = trail.LastLink(s.file, s.size)
		changed = errors.Is(err, trail.ErrChanged)
		switch {
		case errors.Is(err, trail.ErrNoChain):
			e, err = s.restart()
			events = append(events, e)
		case (err == nil || changed) && end < s.size:
			e, err = s.cutTail(end)
			events = append(events, e)
		}
		if err != nil && !errors.Is(err, trail.ErrChanged) {
			return last, nil, err
		}
	}
	if s.size == 0 {
		last, err = trail.LastSegmentLink(s.path)
		if changed = errors.Is(err, trail.ErrChanged); err != nil && !changed {
			return last, nil, fmt.Errorf("read the previous file: %w", err)
		}
	}
	if changed {
		events = append(events, changedEvent(last.Seq, unlikeItsHash))
	}
	s.firstSeq = last.Seq + 1
	if s.size > 0 {
		s.firstSeq = s.readFirstSeq(last.Seq)
	}
	return last, events, nil
}

// readFirstSeq returns the seq of the first line in the file, or otherwise if that line has none.
func (s *activeSegment) readFirstSeq(otherwise uint64) uint64 {
	line, err := trail.FirstLine(io.NewSectionReader(s.file, 0, s.size))
	if err != nil {
		return otherwise
	}
	l, err := trail.ReadLink(line)
	if err != nil {
		return otherwise
	}
	return l.Seq
}

// restart moves the whole file away, since no chain is in it, and opens a new one.
func (s *activeSegment) restart() (*event, error) {
	name, err := moveAway(s.path, "unchained")
	if err != nil {
		return nil, err
	}
	e := &event{
		Event: "unchained", Detail: "the file did not end with a line of the chain, and was renamed unchanged",
		File: filepath.Base(name), FileBytes: s.size,
	}
	if err := s.closeFile(); err != nil {
		return nil, err
	}
	return e, s.openFile(os.O_EXCL)
}

// cutTail moves the bytes from end on to another file.
func (s *activeSegment) cutTail(end int64) (*event, error) {
	name, err := unusedName(s.path, "torn")
	if err != nil {
		return nil, err
	}
	f, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	sum := sha256.New()
	n, err := io.Copy(io.MultiWriter(f, sum), io.NewSectionReader(s.file, end, s.size-end))
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		os.Remove(name)
		return nil, err
	}
	if err := osfile.Truncate(s.file, end); err != nil {
		return nil, err
	}
	s.size = end
	return &event{
		Event: "torn", Detail: "the incomplete line at the end was moved to another file",
		File: filepath.Base(name), FileBytes: n, SHA256: hex.EncodeToString(sum.Sum(nil)),
	}, nil
}

// write appends to the file.
func (s *activeSegment) write(b []byte) (int, error) {
	n, err := s.file.Write(b)
	s.size += int64(n)
	return n, err
}

// checkInPlace checks that the file still has its name and its size, so that readers find
// what is written. If it does not, checkInPlace opens a new file and returns an event.
func (s *activeSegment) checkInPlace() (*event, error) {
	if !s.regular || s.file != nil && s.isIntact() {
		return nil, nil
	}
	s.lost = s.lost || s.file != nil
	if err := s.closeFile(); err != nil {
		return nil, err
	}
	// The lock comes first, since another process may write the file there now.
	if err := s.takeLock(); err != nil {
		return nil, err
	}
	if info, err := os.Stat(s.path); err == nil {
		name, err := moveAway(s.path, "replaced")
		if err != nil {
			return nil, err
		}
		s.movedTo, s.movedSize = filepath.Base(name), info.Size()
	} else if !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if err := s.openFile(0); err != nil || !s.lost {
		return nil, err
	}
	e := &event{
		Event:  "replaced",
		Detail: "the file was removed, replaced or changed while the proxy wrote to it: the lines since its beginning are missing",
		File:   s.movedTo, FileBytes: s.movedSize,
	}
	s.lost, s.movedTo, s.movedSize = false, "", 0
	return e, nil
}

// isIntact reports whether the file still has its name and the written size.
func (s *activeSegment) isIntact() bool {
	size, ok := osfile.Named(s.file, s.path)
	return ok && size == s.size
}

// rotate renames the full segment, and opens a new one, whose first line has the seq first.
func (s *activeSegment) rotate(first uint64) error {
	full := trail.SegmentPath(s.path, s.firstSeq)
	if _, err := os.Lstat(full); err == nil {
		return fmt.Errorf("%s: %w", full, fs.ErrExist)
	}
	if err := os.Rename(s.path, full); err != nil {
		return err
	}
	s.firstSeq, s.size = first, 0
	// An error says nothing new: all lines are written.
	s.closeFile()
	return s.openFile(os.O_EXCL)
}

// sync waits until the disk has the file, and its name if that is new.
func (s *activeSegment) sync() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.file == nil || !s.regular {
		return nil
	}
	err := s.file.Sync()
	if err == nil && !s.nameSynced {
		err = osfile.Sync(filepath.Dir(s.path))
	}
	s.nameSynced = s.nameSynced || err == nil
	return err
}

// closeFile closes the file.
func (s *activeSegment) closeFile() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	file := s.file
	if s.file = nil; file == nil || file == os.Stdout {
		return nil
	}
	return file.Close()
}

// close closes the file and releases the lock.
func (s *activeSegment) close() error {
	err := s.closeFile()
	if s.lock != nil {
		err = errors.Join(err, s.lock.Close())
	}
	s.lock = nil
	return err
}

// moveAway renames a file to an unused name, which tells why.
func moveAway(path, why string) (name string, err error) {
	if name, err = unusedName(path, why); err != nil {
		return "", err
	}
	return name, os.Rename(path, name)
}

// unusedName returns a name that no file has: path with the reason why and the time.
func unusedName(path, why string) (string, error) {
	base := path + "." + why + "-" + time.Now().UTC().Format("20060102T150405Z")
	name := base
	for n := 2; n < 1000; n++ {
		if _, err := os.Lstat(name); errors.Is(err, fs.ErrNotExist) {
			return name, nil
		} else if err != nil {
			return "", err
		}
		name = fmt.Sprintf("%s.%d", base, n)
	}
	return "", fmt.Errorf("%s: %w", base, fs.ErrExist)
}
