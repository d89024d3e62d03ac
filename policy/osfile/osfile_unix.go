//go:build unix

package osfile

import (
	"errors"
	"io/fs"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// HasModes reports whether Perm and Owner tell who may access a file.
const HasModes = true

// Perm returns the permissions of a file.
func Perm(info fs.FileInfo) fs.FileMode { return info.Mode().Perm() }

// Owner returns the ID of the user who owns a file.
func Owner(info fs.FileInfo) int {
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		return int(s.Uid)
	}
	return os.Geteuid()
}

// Chown gives a file the owner and the group of another one.
func Chown(name string, like fs.FileInfo) error {
	if s, ok := like.Sys().(*syscall.Stat_t); ok {
		return os.Chown(name, int(s.Uid), int(s.Gid))
	}
	return nil
}

// OpenFile is os.OpenFile for a regular file that others may rename and remove while it is open.
func OpenFile(name string, flag int, perm fs.FileMode) (*os.File, error) {
	return os.OpenFile(name, flag, perm)
}

// Truncate changes the size of a file, which may be open for appending only.
func Truncate(f *os.File, size int64) error { return f.Truncate(size) }

// Sync waits until the disk has a file, or the names in a directory.
func Sync(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// Named reports whether an open file is the file of this name, and returns its size.
func Named(f *os.File, name string) (size int64, ok bool) {
	// os.Stat would allocate.
	var ours, there unix.Stat_t
	if unix.Stat(name, &there) != nil || unix.Fstat(int(f.Fd()), &ours) != nil {
		return 0, false
	}
	return there.Size, there.Ino == ours.Ino && there.Dev == ours.Dev
}

// Free returns the bytes that this user may still write to the disk of a directory.
func Free(dir string) (int64, error) {
	var disk unix.Statfs_t
	if err := unix.Statfs(dir, &disk); err != nil {
		return 0, &fs.PathError{Op: "statfs", Path: dir, Err: err}
	}
	return int64(disk.Bavail) * int64(disk.Bsize), nil
}

// IsFull reports whether a write failed because the disk or the user's quota has no space left.
func IsFull(err error) bool { return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) }

// Unlock returns the lock of a file.
func Unlock(f *os.File) error { return unix.Flock(int(f.Fd()), unix.LOCK_UN) }

// errLocked is the system's error for a file that another handle has locked.
const errLocked = unix.EWOULDBLOCK

// How a file is locked.
const (
	shared    = unix.LOCK_SH
	exclusive = unix.LOCK_EX
	noWait    = unix.LOCK_NB
)

// lock locks a file. With noWait it fails with errLocked rather than wait.
func lock(f *os.File, how int) error {
	for {
		if err := unix.Flock(int(f.Fd()), how); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}
