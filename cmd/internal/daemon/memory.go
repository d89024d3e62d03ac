package daemon

import (
	"bytes"
	"io/fs"
	"math"
	"os"
	"path"
	"runtime/debug"
	"strconv"
	"strings"

	"robotsproxy/cmd/internal/config"
	"robotsproxy/policy/memory"
)

const (
	// memoryAbove is the divisor of the budget that gives how far the garbage collector's own limit is
	// above it: an eighth, for memory that is not in use yet, or not any more.
	memoryAbove = 8

	// cachePart is the divisor that gives the most bytes that the robots.txt cache may take of the budget.
	cachePart = 4

	// fetchPart is the divisor that gives the most bytes that fetches of robots.txt may take of the budget.
	fetchPart = 4
)

// memoryLimit gives the memory budget of the process under cfg, in bytes.
func memoryLimit(cfg config.Config) int64 {
	if n := int64(cfg.Limits.Memory); n > 0 {
		return n
	}
	return autoMemory(os.DirFS("/"), debug.SetMemoryLimit(-1), os.Getenv("GOMEMLIMIT") != "")
}

// autoMemory gives the budget of limits.memory: auto, in bytes, for the machine with this root directory:
// the environment's GOMEMLIMIT (goLimit, where named says that the environment has one), else half of the
// control group's limit, else a quarter of the machine's memory but at most memory.Default.
func autoMemory(root fs.FS, goLimit int64, named bool) int64 {
	machine := machineMemory(root)
	group := groupMemory(root)
	switch {
	case named && goLimit < math.MaxInt64:
		return goLimit
	case group > 0 && (machine == 0 || group < machine):
		return group / 2
	case machine > 0:
		return min(machine/4, memory.Default)
	}
	return memory.Default
}

// machineMemory gives the machine's memory in bytes, from /proc/meminfo; 0: it is not known.
func machineMemory(root fs.FS) int64 {
	text, err := fs.ReadFile(root, "proc/meminfo")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); len(fields) == 3 && fields[0] == "MemTotal:" && fields[2] == "kB" {
			n, _ := strconv.ParseInt(fields[1], 10, 53)
			return n << 10
		}
	}
	return 0
}

// groupMemory gives the lowest memory limit, in bytes, of this process's control group and those above it;
// 0: there is no limit.
func groupMemory(root fs.FS) (least int64) {
	text, err := fs.ReadFile(root, "proc/self/cgroup")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3) // hierarchy, controllers, path
		if len(parts) != 3 {
			continue
		}
		under, file := "sys/fs/cgroup", "memory.max"
		switch {
		case strings.Contains(","+parts[1]+",", ",memory,"): // version 1
			under, file = "sys/fs/cgroup/memory", "memory.limit_in_bytes"
		case parts[1] != "":
			continue
		}
		for dir := path.Clean("/" + parts[2]); ; dir = path.Dir(dir) {
			if n := readLimit(root, path.Join(under, dir, file)); n > 0 && (least == 0 || n < least) {
				least = n
			}
			if dir == "/" {
				break
			}
		}
	}
	return least
}

// readLimit reads a file with one number; 0: there is no file, or no number in it, as in "max".
func readLimit(root fs.FS, file string) int64 {
	text, err := fs.ReadFile(root, file)
	if err != nil {
		return 0
	}
	n, err := strconv.ParseInt(string(bytes.TrimSpace(text)), 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// boundMemory puts the budget of f in force. It sets the garbage collector's own limit a little above the
// budget, unless the environment has a GOMEMLIMIT.
func (h *Daemon) boundMemory(f *generation) {
	h.memory.SetLimit(f.memory)
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(f.memory + f.memory/memoryAbove)
	}
}
