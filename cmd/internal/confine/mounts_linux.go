package confine

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// etcName is the directory within InsideDir whose files are laid over /etc.
const etcName = "etc"

// hiddenFlags are those of the file systems that hide directories.
const hiddenFlags = unix.MS_NOSUID | unix.MS_NODEV

// mount sets up what the command sees, in the mount namespace of this process.
func (o *order) mount() (notes []string, err error) {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return nil, fmt.Errorf("make the mounts private: %w", err)
	}
	// sources has the files and directories that appear within hidden ones, by the path where they appear.
	sources := map[string]string{InsideDir: o.Files}
	for _, path := range o.Show {
		sources[path] = path
	}
	// The descriptors are opened before the directories are hidden.
	shown := map[string]int{}
	for path, name := range sources {
		fd, err := unix.OpenTree(unix.AT_FDCWD, name, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_SYMLINK_NOFOLLOW)
		if err != nil {
			return nil, fmt.Errorf("show %s: %w", name, err)
		}
		shown[path] = fd
	}
	noOverlay := o.overlay()
	if err := o.hide(); err != nil {
		return nil, err
	}
	for path, fd := range shown {
		if err := show(fd, path); err != nil {
			return nil, fmt.Errorf("show %s: %w", path, err)
		}
	}
	if noOverlay != nil {
		notes = []string{fmt.Sprintf("no overlay on /etc: %v", noOverlay)}
		if err := coverEtc(); err != nil {
			return nil, err
		}
	}
	for path, name := range o.Over {
		if err := bind(filepath.Join(InsideDir, name), path); err != nil {
			return nil, fmt.Errorf("cover %s: %w", path, err)
		}
	}
	for _, path := range append([]string{InsideDir}, o.ReadOnly...) {
		if err := makeReadOnly(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("make %s read-only: %w", path, err)
		}
	}
	// This process's working directory may be hidden now, and would still lead to what is in it, so the path counts.
	if err := os.Chdir(o.Dir); err != nil {
		return nil, fmt.Errorf("enter the working directory, which the confinement may hide: %w", err)
	}
	return notes, nil
}

// overlay lays the files over /etc, which becomes read-only.
func (o *order) overlay() error {
	// With a relative path, a ":" in the name of the directory needs no quoting.
	if err := os.Chdir(o.Files); err != nil {
		return err
	}
	return unix.Mount("overlay", "/etc", "overlay", hiddenFlags|unix.MS_RDONLY, "lowerdir="+etcName+":/etc")
}

// hide hides directories and sockets.
func (o *order) hide() error {
	for _, dir := range o.Hide {
		real, err := filepath.EvalSymlinks(dir)
		if err != nil {
			continue
		}
		if info, err := os.Stat(real); err != nil || !info.IsDir() {
			continue
		}
		if err := unix.Mount("tmpfs", real, "tmpfs", hiddenFlags, fmt.Sprintf("mode=%04o", unixMode(real))); err != nil {
			return fmt.Errorf("hide %s: %w", dir, err)
		}
	}
	if o.Private != "" {
		if err := os.MkdirAll(o.Private, 0o755); err != nil {
			return err
		}
		if err := os.Chmod(o.Private, 0o700); err != nil {
			return err
		}
	}
	for _, path := range o.Cover {
		if err := coverSocket(path); err != nil {
			return fmt.Errorf("hide the socket %s: %w", path, err)
		}
	}
	return nil
}

// unixMode returns the permissions of a directory with its sticky bit.
func unixMode(dir string) uint32 {
	var stat unix.Stat_t
	if unix.Stat(dir, &stat) != nil {
		return 0o755
	}
	return stat.Mode & 0o1777
}

// coverSocket makes a path that is a socket lead to /dev/null.
func coverSocket(path string) error {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		// The socket is not there any more, or the command cannot reach it either.
		return nil
	}
	defer unix.Close(fd)
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil || stat.Mode&unix.S_IFMT != unix.S_IFSOCK {
		return err
	}
	return unix.Mount("/dev/null", fmt.Sprintf("/proc/self/fd/%d", fd), "", unix.MS_BIND, "")
}

// show lets a file or directory appear at a path.
func show(fd int, path string) error {
	defer unix.Close(fd)
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil {
		return err
	}
	if err := makePlace(path, stat.Mode&unix.S_IFMT == unix.S_IFDIR); err != nil {
		return err
	}
	return unix.MoveMount(fd, "", unix.AT_FDCWD, path, unix.MOVE_MOUNT_F_EMPTY_PATH)
}

// makePlace makes an empty file or directory to mount something on, unless there is one.
func makePlace(path string, dir bool) error {
	if dir {
		return os.MkdirAll(path, 0o755)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	if _, err := os.Lstat(path); err == nil {
		return nil
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	return f.Close()
}

// coverEtc covers the files of /etc one by one, where the overlay is not possible. It cannot cover files that do not
// exist.
func coverEtc() error {
	from := filepath.Join(InsideDir, etcName)
	return filepath.WalkDir(from, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		path := "/etc" + strings.TrimPrefix(name, from)
		// A link, as /etc/resolv.conf often is, may lead into a directory that is hidden now.
		if link, err := os.Readlink(path); err == nil {
			if !filepath.IsAbs(link) {
				link = filepath.Join(filepath.Dir(path), link)
			}
			// This fails where the file is not in a hidden directory, and is not needed there.
			makePlace(link, false)
		}
		if err := bind(name, path); err != nil && (!errors.Is(err, fs.ErrNotExist) || path == "/etc/resolv.conf") {
			return fmt.Errorf("cover %s: %w", path, err)
		}
		return nil
	})
}

// bind mounts a file over another one.
func bind(from, to string) error { return unix.Mount(from, to, "", unix.MS_BIND, "") }

// makeReadOnly makes what is at a path, with the mounts below it, read-only.
func makeReadOnly(path string) error {
	// Only a mount can be made read-only, so the path becomes one.
	if err := unix.Mount(path, path, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return err
	}
	return unix.MountSetattr(unix.AT_FDCWD, path, unix.AT_RECURSIVE, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY})
}
