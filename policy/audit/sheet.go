package audit

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"

	"robotsproxy/policy/audit/trail"
)

// A sheet is the file that is written, and the lock beside it. Only sync may be
// called while another of its methods is at work.
type sheet struct {
	path    string
	regular bool     // a file; a pipe or a device is locked by nobody, and never full
	lock    *os.File // nil: it has to be taken
	first   uint64   // number of the first line
	size    int64
	gone    bool // the file was taken away, and no other could be opened yet

	instead     string // what stood in its place has been set aside as
	insteadSize int64

	mu    sync.Mutex // guards what follows against being closed under sync
	file  *os.File   // nil: it has to be opened again
	named bool       // the disk has its name
}

// ErrInUse is the error of Open for a file that another process writes.
var ErrInUse = errors.New("another process writes it")

// lockName ends the name of the file that is locked beside the audit, whatever file
// that is in. The audit's own is locked as well: who takes this one for litter has two
// processes write to one chain else.
const lockName = ".lock"

// claim takes the lock, unless it is held already, and its file has not been taken away.
func (s *sheet) claim() error {
	name := s.path + lockName
	if s.lock != nil {
		if _, ok := isAt(s.lock, name); ok {
			return nil
		}
	}
	if s.lock != nil {
		s.lock.Close()
		s.lock = nil
	}
	f, err := os.OpenFile(name, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	if err := s.flock(f); err != nil {
		return err
	}
	s.lock = f
	return nil
}

// flock locks a file until it is closed, which it is at once where that fails.
func (s *sheet) flock(f *os.File) error {
	err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if err == nil {
		return nil
	}
	if errors.Is(err, unix.EWOULDBLOCK) {
		err = ErrInUse
	}
	return errors.Join(fmt.Errorf("%s: %w", s.path, err), f.Close())
}

// use opens the file at s.path, which is made where there is none.
func (s *sheet) use(flag int) error {
	file, err := os.OpenFile(s.path, flag|os.O_APPEND|os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	if err := s.flock(file); err != nil {
		return err
	}
	info, err := file.Stat() // now that nobody else writes it
	if err != nil {
		return errors.Join(err, file.Close())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.file, s.size, s.named = file, info.Size(), false
	return nil
}

// write writes at the end.
func (s *sheet) write(b []byte) (int, error) {
	n, err := s.file.Write(b)
	s.size += int64(n)
	return n, err
}

// inPlace sees to it that what is written is found where it is looked for, and is all
// there. Where it is not, a new file is begun, and the event says so; else it is nil.
func (s *sheet) inPlace() (*event, error) {
	if !s.regular || s.file != nil && s.intact() {
		return nil, nil
	}
	s.gone = s.gone || s.file != nil
	if err := s.shut(); err != nil {
		return nil, err
	}
	if err := s.claim(); err != nil { // first: what stands there may be another's by now
		return nil, err
	}
	if info, err := os.Stat(s.path); err == nil {
		name, err := setAside(s.path, "replaced")
		if err != nil {
			return nil, err
		}
		s.instead, s.insteadSize = filepath.Base(name), info.Size()
	} else if !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if err := s.use(0); err != nil || !s.gone {
		return nil, err
	}
	e := &event{
		name: "replaced", detail: "the file was taken away, replaced or changed while it was written: what it held since it was begun is not here",
		file: s.instead, octets: s.insteadSize,
	}
	s.gone, s.instead, s.insteadSize = false, "", 0
	return e, nil
}

// intact says whether the file has its name, and the size that was written.
func (s *sheet) intact() bool {
	info, ok := isAt(s.file, s.path)
	return ok && info.Size == s.size
}

// isAt says whether an open file is the one that has the name, and what is known of it.
func isAt(f *os.File, name string) (there unix.Stat_t, ok bool) {
	var ours unix.Stat_t
	if unix.Stat(name, &there) != nil || unix.Fstat(int(f.Fd()), &ours) != nil {
		return there, false
	}
	return there, there.Ino == ours.Ino && there.Dev == ours.Dev
}

// turn sets the file aside and begins a new one with the line number first.
func (s *sheet) turn(first uint64) error {
	aside := trail.SegmentPath(s.path, s.first)
	if _, err := os.Lstat(aside); err == nil {
		return fmt.Errorf("%s: %w", aside, fs.ErrExist)
	}
	if err := os.Rename(s.path, aside); err != nil {
		return err
	}
	s.first, s.size = first, 0
	s.shut() // all of it is written
	return s.use(os.O_EXCL)
}

// sync waits for the disk, for the name too where it is new.
func (s *sheet) sync() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.file == nil || !s.regular {
		return nil
	}
	err := s.file.Sync()
	if err == nil && !s.named {
		err = syncDir(s.path)
	}
	s.named = s.named || err == nil
	return err
}

// syncDir waits for the disk to have the names beside a file.
func syncDir(path string) error {
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// shut closes the file.
func (s *sheet) shut() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	file := s.file
	if s.file = nil; file == nil || file == os.Stdout {
		return nil
	}
	return file.Close()
}

// close closes the file and gives the lock up.
func (s *sheet) close() error {
	err := s.shut()
	if s.lock != nil {
		err = errors.Join(err, s.lock.Close())
	}
	s.lock = nil
	return err
}
