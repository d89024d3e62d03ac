// Package osfile does with files what operating systems do differently: locks, permissions, the space on a
// disk, and files that are replaced, renamed or removed while they are open. A [Watch] notices operations on files that do
// not return. Any number of goroutines may use the functions.
package osfile

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// ErrLocked is the error of TryLock and TryRLock for a file that another handle has locked.
var ErrLocked = errors.New("another process has locked the file")

// Lock waits for the exclusive lock of a file. The lock lasts until Unlock, until f is closed, or until the process
// ends. It binds only those who lock the file too.
func Lock(f *os.File) error { return lockError(f, lock(f, exclusive)) }

// TryLock is Lock without waiting.
func TryLock(f *os.File) error { return lockError(f, lock(f, exclusive|noWait)) }

// TryRLock is TryLock for a lock that several handles may have.
func TryRLock(f *os.File) error { return lockError(f, lock(f, shared|noWait)) }

// lockError returns the error of a function that locks a file, for the result of lock.
func lockError(f *os.File, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, errLocked):
		return ErrLocked
	}
	return &fs.PathError{Op: "lock", Path: f.Name(), Err: err}
}

// EndsWithinLine reports whether a file of this size ends without a line feed, as after a crash or on a full disk.
// It reports false for a file that cannot be read.
func EndsWithinLine(f io.ReaderAt, size int64) bool {
	if size == 0 {
		return false
	}
	var last [1]byte
	_, err := f.ReadAt(last[:], size-1)
	return err == nil && last[0] != '\n'
}

// Open opens a file to read it. Unlike os.Open, it lets others rename and remove the file meanwhile, on every
// system.
func Open(name string) (*os.File, error) { return OpenFile(name, os.O_RDONLY, 0) }

// Replace replaces a file, or makes it, with a mode. After an error of write, or a crash, the old file stays. The new file
// survives a crash after [Sync] of its directory.
func Replace(name string, mode fs.FileMode, write func(io.Writer) error) error {
	// CreateTemp makes the file with mode 0600.
	f, err := os.CreateTemp(filepath.Dir(name), "."+filepath.Base(name)+"-*")
	if err != nil {
		return err
	}
	err = write(f)
	if err == nil {
		err = errors.Join(f.Chmod(mode), f.Sync())
	}
	err = errors.Join(err, f.Close())
	if err == nil {
		err = os.Rename(f.Name(), name)
	}
	if err != nil {
		// A file that stays behind matters less than err.
		os.Remove(f.Name())
	}
	return err
}

// Rewrite replaces a file by one with the same owner, group, mode and time, and waits for the disk. If the group cannot be kept, only
// the owner may access the new file. write gets the file and its size in bytes. A symbolic link stays, and the file that it names is
// replaced. Nobody else may be writing the file: what a Rewrite has left that did not end is removed. After an error of write, or a
// crash, the old file stays.
func Rewrite(name string, write func(in *os.File, size int64, out io.Writer) error) error {
	name, err := filepath.EvalSymlinks(name)
	if err != nil {
		return err
	}
	in, err := Open(name)
	if err != nil {
		return err
	}
	defer in.Close()
	info, err := in.Stat()
	if err != nil {
		return err
	}
	if err := removeUnfinished(name); err != nil {
		return err
	}
	if err := Replace(name, 0o600, func(out io.Writer) error { return write(in, info.Size(), out) }); err != nil {
		return err
	}
	if Chown(name, info) == nil {
		if err := os.Chmod(name, info.Mode().Perm()); err != nil {
			return err
		}
	}
	return errors.Join(os.Chtimes(name, info.ModTime(), info.ModTime()), Sync(filepath.Dir(name)))
}

// removeUnfinished removes the files that a Replace of a file has left that did not end.
func removeUnfinished(name string) error {
	dir, base := filepath.Split(name)
	entries, err := os.ReadDir(filepath.Clean(dir))
	for _, e := range entries {
		// os.CreateTemp adds digits.
		number, is := strings.CutPrefix(e.Name(), "."+base+"-")
		if is && e.Type().IsRegular() && number != "" && strings.Trim(number, "0123456789") == "" {
			err = errors.Join(err, os.Remove(filepath.Join(dir, e.Name())))
		}
	}
	return err
}
