package confine

import (
	"bufio"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// kernelSettings cannot be changed by a confined root, to whom they would belong.
var kernelSettings = []string{"/proc/sys", "/proc/sysrq-trigger", "/proc/irq", "/proc/bus", "/proc/fs", "/sys"}

// hiddenDirs returns the directories that have sockets of services, or devices that send packets
// themselves. They appear empty.
func hiddenDirs(getenv func(string) string, uid int) []string {
	dirs := []string{
		"/run", "/var/run", "/tmp/.X11-unix", "/tmp/.ICE-unix", "/tmp/tmux-" + strconv.Itoa(uid),
		"/dev/infiniband", "/dev/vfio", "/dev/bus/usb",
	}
	if home := getenv("HOME"); filepath.IsAbs(home) {
		dirs = append(dirs, filepath.Join(home, ".docker/run"), filepath.Join(home, ".docker/desktop"))
	}
	return dirs
}

// namedSockets returns the sockets that variables name. They may belong to a service in another network
// namespace, whose sockets pathSockets does not see.
func namedSockets(getenv func(string) string) (all []string) {
	for _, name := range []string{"SSH_AUTH_SOCK", "DOCKER_HOST", "CONTAINER_HOST", "DBUS_SESSION_BUS_ADDRESS", "DBUS_SYSTEM_BUS_ADDRESS"} {
		for address := range strings.SplitSeq(getenv(name), ";") {
			address = strings.TrimPrefix(strings.TrimPrefix(address, "unix://"), "unix:path=")
			// An address of D-Bus has options behind the comma.
			path, _, _ := strings.Cut(address, ",")
			if filepath.IsAbs(path) {
				all = append(all, path)
			}
		}
	}
	return all
}

// maxPathSockets is how many sockets are hidden one by one at most.
const maxPathSockets = 20_000

// pathSockets returns the paths of all Unix sockets of this network namespace. Of the sockets that were bound to a
// relative path, it finds those below the working directory of a process of this user; root sees all processes.
func pathSockets() ([]string, error) {
	f, err := os.Open("/proc/net/unix")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	all, relative := map[string]bool{}, map[string]bool{}
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		if path := socketPath(lines.Text()); filepath.IsAbs(path) {
			all[path] = true
		} else if path != "" {
			relative[path] = true
		}
	}
	if len(relative) > 0 {
		for dir := range workingDirs() {
			for name := range relative {
				path := filepath.Join(dir, name)
				if info, err := os.Lstat(path); err == nil && info.Mode().Type() == fs.ModeSocket {
					all[path] = true
				}
			}
		}
	}
	if len(all) > maxPathSockets {
		return nil, fmt.Errorf("more than %d Unix sockets to hide", maxPathSockets)
	}
	return slices.Collect(maps.Keys(all)), lines.Err()
}

// workingDirs returns the working directories of all processes, as far as this user may know them.
func workingDirs() map[string]bool {
	// Glob returns an error for a malformed pattern only.
	links, _ := filepath.Glob("/proc/[0-9]*/cwd")
	dirs := map[string]bool{}
	for _, link := range links {
		if dir, err := os.Readlink(link); err == nil {
			dirs[dir] = true
		}
	}
	return dirs
}

// socketPath returns the path in a line of /proc/net/unix; "": it has none. After seven columns, a
// path may have blanks. Abstract names begin with "@".
func socketPath(line string) string {
	for range 7 {
		_, rest, ok := strings.Cut(strings.TrimLeft(line, " "), " ")
		if !ok {
			return ""
		}
		line = rest
	}
	if strings.HasPrefix(line, "@") {
		return ""
	}
	return line
}

// checkInherited returns an error if one of the command's standard streams is a socket of this process's network
// namespace that can be connected to another address. Connected Unix sockets of the types stream and seqpacket cannot.
func checkInherited(cmd *exec.Cmd) error {
	for i, stream := range []any{cmd.Stdin, cmd.Stdout, cmd.Stderr} {
		f, ok := stream.(*os.File)
		if !ok {
			continue
		}
		c, err := f.SyscallConn()
		if err != nil {
			return err
		}
		bad := false
		if err := c.Control(func(fd uintptr) { bad = isConnectable(int(fd)) }); err != nil {
			return err
		}
		if bad {
			name := []string{"input", "output", "error"}[i]
			return fmt.Errorf("standard %s is a socket, by which the command could leave the confinement: use a pipe (cat)", name)
		}
	}
	return nil
}

// isConnectable reports whether a descriptor is a socket that can be connected to an address of choice.
func isConnectable(fd int) bool {
	domain, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DOMAIN)
	if err != nil {
		// The descriptor is not a socket.
		return false
	}
	kind, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TYPE)
	_, unconnected := unix.Getpeername(fd)
	return domain != unix.AF_UNIX || kind == unix.SOCK_DGRAM || err != nil || unconnected != nil
}

// isBelow reports whether a path is within one of dirs.
func isBelow(path string, dirs []string) bool {
	for _, dir := range dirs {
		if path != "" && strings.HasPrefix(path, dir+"/") {
			return true
		}
	}
	return false
}
