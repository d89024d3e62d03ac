package confine

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// kernelSettings cannot be changed by a confined root, to whom they would belong.
var kernelSettings = []string{"/proc/sys", "/proc/sysrq-trigger", "/proc/irq", "/proc/bus", "/proc/fs", "/sys"}

// hiddenDirs returns the directories that have sockets of services, or devices that send packets
// themselves. They appear empty.
func hiddenDirs(getenv func(string) string, uid int) []string {
	dirs := []string{"/run", "/var/run", "/tmp/.X11-unix", "/tmp/.ICE-unix", "/tmp/tmux-" + strconv.Itoa(uid), "/dev/infiniband", "/dev/vfio"}
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
			path, _, _ := strings.Cut(address, ",") // D-Bus has options there
			if filepath.IsAbs(path) {
				all = append(all, path)
			}
		}
	}
	return all
}

// maxPathSockets is how many sockets are hidden one by one at most.
const maxPathSockets = 20_000

// pathSockets returns the paths of all Unix sockets of this network namespace.
func pathSockets() (all []string, err error) {
	f, err := os.Open("/proc/net/unix")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	seen := map[string]bool{}
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		path := socketPath(lines.Text())
		if path == "" || seen[path] {
			continue
		}
		if seen[path] = true; len(seen) > maxPathSockets {
			return nil, fmt.Errorf("more than %d Unix sockets to hide", maxPathSockets)
		}
		all = append(all, path)
	}
	return all, lines.Err()
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
	if !strings.HasPrefix(line, "/") {
		return ""
	}
	return line
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
