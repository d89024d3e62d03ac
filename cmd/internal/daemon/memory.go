package daemon

import (
	"bytes"
	"io/fs"
	"math"
	"os"
	"path"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"strconv"
	"strings"

	"robotsproxy/cmd/internal/config"
	"robotsproxy/policy/memory"
	"robotsproxy/robots/cache"
)

const (
	// The limit of the garbage collector is above the budget by the budget divided by memoryAbove, for
	// memory that is not in use yet, or any more.
	memoryAbove = 8

	// The robots.txt cache may use at most the budget divided by cachePart.
	cachePart = 4

	// Fetches of robots.txt may use at most the budget divided by fetchPart.
	fetchPart = 4

	// The cache and the fetches of tdmrep.json may use at most those of robots.txt divided by tdmrepPart.
	tdmrepPart = 4
)

// fetchesWithin returns how many files may be fetched at once, with a memory budget in bytes, for a cache that
// gets a part of the memory for fetches. It is at least 1: 0 would stand for the default.
func fetchesWithin(budget int64, part int) int {
	return max(1, int(min(cache.DefaultFetches, budget/fetchPart/cache.FetchBytes))/part)
}

// memoryLimit returns the memory budget of the process under cfg, in bytes.
func memoryLimit(cfg config.Config) int64 {
	if n := int64(cfg.Limits.Memory); n > 0 {
		return n
	}
	return autoMemory(os.DirFS("/"), debug.SetMemoryLimit(-1), os.Getenv("GOMEMLIMIT") != "")
}

// autoMemory returns the budget for limits.memory: auto, in bytes, on a machine with this root directory: the
// environment's GOMEMLIMIT (goLimit, if named), else half of the control group's limit, else a quarter of the
// machine's memory but at most memory.Default.
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

// machineMemory returns the machine's memory in bytes, from /proc/meminfo; 0: it is not known.
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

// groupMemory returns the lowest memory limit, in bytes, of this process's control group and those above it;
// 0: there is no limit.
func groupMemory(root fs.FS) (least int64) {
	text, err := fs.ReadFile(root, "proc/self/cgroup")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		// A line has a hierarchy, its controllers and a path.
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) != 3 {
			continue
		}
		under, file := "sys/fs/cgroup", "memory.max"
		switch {
		// Only control groups of version 1 name controllers.
		case strings.Contains(","+parts[1]+",", ",memory,"):
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

// The garbage collector trades memory for speed. The live heap of a proxy is small, so frequent
// collections would take much of its time. With thousands of open tunnels the heap is larger, and
// garbage of four times its size would be most of the process.
const (
	gcMost  = 400      // most garbage, in percent of the live heap
	gcLeast = 75       // least garbage, in percent of the live heap
	gcSpare = 20 << 20 // bytes of garbage between these bounds: about three collections of 5 ms a second under load
)

// tuneGC sets the collector now and after each collection, unless the environment has GOGC.
func tuneGC() {
	if os.Getenv("GOGC") == "" {
		tune(0)
	}
}

// tune runs in the runtime's clean-up goroutine, once per collection: the next collection frees the object
// that it allocates.
func tune(before int) {
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(live)
	percent := gcPercent(live[0].Value.Uint64())
	if percent != before {
		debug.SetGCPercent(percent)
	}
	runtime.AddCleanup(new([64]byte), tune, percent)
}

// gcPercent returns how much garbage may accumulate, in percent, with so many bytes of live heap.
func gcPercent(live uint64) int {
	if live == 0 {
		return gcMost
	}
	return int(min(max(gcSpare*100/live, gcLeast), gcMost))
}

// boundMemory sets the memory budget of the process, in bytes. It also sets the garbage collector's limit a little above
// the budget, unless the environment has GOMEMLIMIT.
func (d *Daemon) boundMemory(budget int64) {
	d.memory.SetLimit(budget)
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(budget + budget/memoryAbove)
	}
}
