package osfile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/windows"
)

// HasModes is false: access control lists, which are not read, tell who may access a file.
const HasModes = false

// Perm returns 0, the permissions that let nobody else access the file.
func Perm(fs.FileInfo) fs.FileMode { return 0 }

// Owner returns what os.Geteuid returns: that of this process.
func Owner(fs.FileInfo) int { return os.Geteuid() }

// Chown does nothing: a new file has the access control list of its directory.
func Chown(string, fs.FileInfo) error { return nil }

// OpenFile opens a file that others may rename and remove while it is open. Package os does so only for files
// below an os.Root.
func OpenFile(name string, flag int, perm fs.FileMode) (*os.File, error) {
	// A Root does not follow a link that leaves it.
	if target, err := filepath.EvalSymlinks(name); err == nil {
		name = target
	}
	dir, err := os.OpenRoot(filepath.Dir(name))
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	return dir.OpenFile(filepath.Base(name), flag, perm)
}

// Truncate changes the size of a file by its name: a handle that only appends has not the right to do so.
func Truncate(f *os.File, size int64) error {
	if _, ok := Named(f, f.Name()); !ok {
		return &fs.PathError{Op: "truncate", Path: f.Name(), Err: errors.New("another file has the name")}
	}
	return os.Truncate(f.Name(), size)
}

// Sync waits until the disk has a file. It does nothing for a directory: NTFS logs changes of names itself.
func Sync(path string) error {
	if info, err := os.Stat(path); err != nil || info.IsDir() {
		return err
	}
	// Only a handle that can write can be flushed.
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// Named reports whether an open file is the file of this name, and returns its size.
func Named(f *os.File, name string) (size int64, ok bool) {
	there, err := os.Stat(name)
	if err != nil {
		return 0, false
	}
	ours, err := f.Stat()
	return there.Size(), err == nil && os.SameFile(there, ours)
}

// Free returns the bytes that this user may still write to the disk of a directory.
func Free(dir string) (int64, error) {
	name, err := windows.UTF16PtrFromString(dir)
	if err != nil {
		return 0, err
	}
	var free uint64
	if err := windows.GetDiskFreeSpaceEx(name, &free, nil, nil); err != nil {
		return 0, &fs.PathError{Op: "GetDiskFreeSpaceEx", Path: dir, Err: err}
	}
	return int64(free), nil
}

// IsFull reports whether a write failed because the disk or the user's quota has no space left.
func IsFull(err error) bool {
	return errors.Is(err, windows.ERROR_DISK_FULL) || errors.Is(err, windows.ERROR_DISK_QUOTA_EXCEEDED)
}

// lockedAt is the offset of the byte that lock locks, in units of 4 GiB.
const lockedAt = 1 << 30

// Unlock returns the lock of a file.
func Unlock(f *os.File) error {
	return windows.UnlockFileEx(windows.Handle(f.Fd()), 0, 1, 0, &windows.Overlapped{OffsetHigh: lockedAt})
}

// errLocked is the system's error for a file that another handle has locked.
const errLocked = windows.ERROR_LOCK_VIOLATION

// How a file is locked.
const (
	shared    = 0
	exclusive = windows.LOCKFILE_EXCLUSIVE_LOCK
	noWait    = windows.LOCKFILE_FAIL_IMMEDIATELY
)

// lock locks one byte far behind the content, because others cannot read locked bytes. It is not the byte that
// bbolt locks, which a handle cannot lock twice. With noWait it fails with errLocked rather than wait.
func lock(f *os.File, how uint32) error {
	return windows.LockFileEx(windows.Handle(f.Fd()), how, 0, 1, 0, &windows.Overlapped{OffsetHigh: lockedAt})
}
