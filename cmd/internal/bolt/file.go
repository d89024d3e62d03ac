package bolt

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime/debug"
	"slices"
	"syscall"
	"time"

	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"robotsproxy/policy/pace"
)

// The buckets of a file, and the keys of the first. Values of the others are sealed.
var (
	metaBucket   = []byte("meta")
	robotsBucket = []byte("robots") // by origin
	clocksBucket = []byte("clocks") // by the key of their Limits; JSON

	formatKey = []byte("format")
	endKey    = []byte("end") // there while no process has the file, where the last one closed it; Store.Since, marshaled

	format = []byte("robotsproxy 1")
)

// errDamaged is the error of a file that is not, or is no more, one of ours.
var errDamaged = errors.New("damaged")

func damage(what string, args ...any) error {
	return fmt.Errorf("%w: %s", errDamaged, fmt.Sprintf(what, args...))
}

// contents is what Open wants to know of a file.
type contents struct {
	clocks []pace.Clock
	since  time.Time // see Store.Since
}

// use runs f on the file when its turn has come: one at a time, because whoever
// panics within bbolt may leave it locked for good. Where the file is away, or
// proves damaged, it is seen to.
func (s *Store) use(ctx context.Context, f func(*bbolt.DB) error) error {
	select {
	case s.turn <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-s.turn }()
	if s.db == nil {
		if s.closed || time.Now().Before(s.again) {
			return errAway
		}
		if _, err := s.begin(); err != nil {
			s.again = time.Now().Add(retryEvery)
			s.tell(err)
			return err
		}
	}
	err := safely(func() error { return f(s.db) })
	switch {
	case err == nil:
	case errors.Is(err, errDamaged):
		// The first new file is begun by whoever comes next.
		s.again = time.Now().Add(s.wait)
		s.wait = min(max(2*s.wait, retryEvery), maxRetry)
		if err := s.setAside(err); err != nil {
			s.tell(err)
		}
	case errors.Is(err, bolterrors.ErrInvalidMapping) || errors.Is(err, bolterrors.ErrDatabaseNotOpen):
		s.abandon() // it could not be mapped anew, and is opened anew instead
		s.tell(err)
	default:
		s.tell(err)
	}
	return err
}

// safely runs f, which uses bbolt, and makes damage of a panic or a fault.
func safely(f func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			err = damage("%v", p)
		}
	}()
	return f()
}

// begin opens the file, or a new one where that is damaged.
func (s *Store) begin() (contents, error) {
	found, err := s.open()
	if !errors.Is(err, errDamaged) {
		return found, err
	}
	found = contents{since: time.Now()}
	if err := s.setAside(err); err != nil {
		return found, err
	}
	_, err = s.open()
	return found, err
}

// open opens the file as it is. Where it can be read and not written, what is found
// counts nevertheless.
func (s *Store) open() (found contents, err error) {
	found = contents{since: time.Now()}
	if s.handle, s.info, err = openLocked(s.file); err != nil {
		return found, err
	}
	if !s.info.Mode().IsRegular() {
		return found, damage("it is no file")
	}
	err = safely(func() (err error) {
		if s.db, err = s.bbolt(); err != nil {
			return err
		}
		if err := check(s.db, s.handle); err != nil {
			return err
		}
		if err := s.db.View(func(tx *bbolt.Tx) error { return found.read(tx, s.maxClocks) }); err != nil {
			return err
		}
		if err := s.shrink(); err != nil {
			return err
		}
		s.db.MaxSize = int(s.maxBytes - s.maxBytes/reserve)
		s.db.AllocSize = int(s.maxBytes / reserve / 2)
		if err := s.db.Update(takeUp); err != nil {
			return err
		}
		return s.sweep(s.db)
	})
	s.measure()
	if err != nil && !errors.Is(err, errDamaged) {
		if s.db != nil {
			_ = safely(s.db.Close) // of two errors the first is told
		}
		s.abandon()
	}
	return found, err
}

// bbolt has it open the file.
func (s *Store) bbolt() (*bbolt.DB, error) {
	db, err := bbolt.Open(s.file, 0o600, &bbolt.Options{
		Timeout:      time.Millisecond, // the lock is this handle's
		FreelistType: bbolt.FreelistMapType,
		OpenFile:     func(string, int, os.FileMode) (*os.File, error) { return s.handle, nil },
	})
	if _, disk := errors.AsType[syscall.Errno](err); err != nil && !disk {
		return nil, damage("%v", err)
	}
	return db, err
}

// shrink rewrites a file that an older version let grow beyond maxBytes.
func (s *Store) shrink() error {
	if s.info.Size() <= s.maxBytes {
		return nil
	}
	if err := s.sweepTo(s.db, s.maxBytes/2); err != nil {
		return err
	}
	small := s.file + ".small"
	if err := os.RemoveAll(small); err != nil { // of a crash
		return err
	}
	to, err := bbolt.Open(small, 0o600, nil)
	if err == nil {
		err = errors.Join(bbolt.Compact(to, s.db, maxCommit), to.Close())
	}
	if err == nil {
		err = os.Rename(small, s.file)
	}
	if err != nil {
		return errors.Join(err, os.RemoveAll(small))
	}
	if err := s.db.Close(); err != nil {
		return err
	}
	if s.handle, s.info, err = openLocked(s.file); err != nil {
		return err
	}
	s.db, err = s.bbolt()
	return err
}

// read reads what Open wants to know, with at most most clocks.
func (c *contents) read(tx *bbolt.Tx, most int) error {
	meta, clocks := tx.Bucket(metaBucket), tx.Bucket(clocksBucket)
	if meta == nil {
		if name, _ := tx.Cursor().First(); name != nil {
			return damage("it is of another program")
		}
		c.since = time.Time{} // it is new
		return nil
	}
	if was := meta.Get(formatKey); !bytes.Equal(was, format) {
		return damage("it is of another version, %q", was)
	}
	if clocks == nil || tx.Bucket(robotsBucket) == nil {
		return damage("a bucket is missing")
	}
	if end := meta.Get(endKey); end != nil {
		if err := c.since.UnmarshalBinary(end); err != nil {
			return damage("its end: %v", err)
		}
	}
	now := time.Now()
	err := clocks.ForEach(func(key, value []byte) error {
		v := sealed(value)
		if !v.whole(string(key)) {
			return damage("the clock of %q", key)
		}
		text := v.current(now)
		if text == nil {
			return nil
		}
		var clock pace.Clock
		if err := json.Unmarshal(text, &clock); err != nil {
			return damage("the clock of %q: %v", key, err)
		}
		if c.clocks = append(c.clocks, clock); len(c.clocks) >= 2*most {
			c.bound(most)
		}
		return nil
	})
	c.bound(most)
	return err
}

// bound removes the clocks beyond most, first those that would be of use for longest.
func (c *contents) bound(most int) {
	if len(c.clocks) <= most {
		return
	}
	slices.SortFunc(c.clocks, func(a, b pace.Clock) int { return a.Until().Compare(b.Until()) })
	c.clocks = slices.Clip(slices.Delete(c.clocks, most, len(c.clocks)))
}

// takeUp makes the buckets of a new file, and the mark of its end is no more.
func takeUp(tx *bbolt.Tx) error {
	if meta := tx.Bucket(metaBucket); meta != nil {
		return meta.Delete(endKey)
	}
	for _, name := range [][]byte{robotsBucket, clocksBucket, metaBucket} {
		if _, err := tx.CreateBucket(name); err != nil {
			return err
		}
	}
	return tx.Bucket(metaBucket).Put(formatKey, format)
}

// openLocked opens and locks the file, which has that name when it returns.
func openLocked(name string) (*os.File, os.FileInfo, error) {
	for {
		f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			for _, no := range []error{syscall.EISDIR, fs.ErrPermission, syscall.ELOOP, syscall.ENXIO, syscall.ENOTDIR} {
				if _, lost := os.Lstat(name); lost == nil && errors.Is(err, no) { // what is not there is not damaged
					return nil, nil, damage("%v", err)
				}
			}
			return nil, nil, err
		}
		info, has := os.FileInfo(nil), false
		if err = lock(f); err == nil {
			info, err = f.Stat()
		}
		if err == nil {
			has, err = hasName(info, name)
		}
		if has {
			return f, info, nil
		}
		f.Close()
		if err != nil {
			return nil, nil, err
		} // else it was set aside, or deleted, before it was locked
	}
}

// lock takes the lock that bbolt would: of this handle, until it is closed.
func lock(f *os.File) error {
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, syscall.EWOULDBLOCK):
			return ErrInUse
		case !errors.Is(err, syscall.EINTR):
			return fmt.Errorf("lock %s: %w", f.Name(), err)
		}
	}
}

// hasName says whether the file is still the one of that name.
func hasName(file os.FileInfo, name string) (bool, error) {
	named, err := os.Stat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil && os.SameFile(file, named), err
}

// setAside renames the file, for whoever wants to know what became of it, and
// leaves the Store without one.
func (s *Store) setAside(cause error) error {
	defer s.abandon() // after the renaming: until then it is ours
	kept := s.file + ".damaged-" + time.Now().UTC().Format("20060102T150405.000000Z")
	if s.handle != nil { // closed, maybe, by bbolt
		if ours, err := hasName(s.info, s.file); err != nil || !ours {
			return err // gone already
		}
	}
	if err := os.Rename(s.file, kept); err != nil {
		return fmt.Errorf("set %s aside (%w): %w", s.file, cause, err)
	}
	s.counts.damaged.Add(1)
	s.log.Error("what was kept of sites cannot be read and is set aside: robots.txt files are fetched anew, and the pauses and delays of hosts are forgotten",
		"file", s.file, "kept_as", kept, "error", cause)
	return nil
}

// abandon leaves the file as it is. It does not close what bbolt has, which may be
// locked for good, or in use by whoever panicked: the mapping stays.
func (s *Store) abandon() {
	s.db = nil
	if s.handle != nil {
		s.handle.Close() // gives the lock back
		s.handle = nil
	}
}
