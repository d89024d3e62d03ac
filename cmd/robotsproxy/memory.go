package main

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
	// memoryAbove is by which part of the budget the collector's own limit is above it: what is not in
	// use yet, or not any more, has room there.
	memoryAbove = 8

	// cachePart is which part of the budget the cache of robots.txt files may take at the most.
	cachePart = 4

	// fetchPart is which part of the budget fetches of robots.txt may take at the most.
	fetchPart = 4
)

// memoryLimit is how many bytes cfg gives to the process.
func memoryLimit(cfg config.Config) int64 {
	if n := int64(cfg.Limits.Memory); n > 0 {
		return n
	}
	return autoMemory(os.DirFS("/"), debug.SetMemoryLimit(-1), os.Getenv("GOMEMLIMIT") != "")
}

// autoMemory is limits.memory: auto, as the machine whose root directory is given says: the environment's
// GOMEMLIMIT, else half of what the control group allows, else a quarter of the machine's memory but no
// more than memory.Default.
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

// machineMemory reads /proc/meminfo; 0: it cannot be had.
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

// groupMemory is the least that the control group of this process, or one above it, may take; 0: there is
// no limit.
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

// readLimit reads a number; 0: there is none, as in "max".
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

// boundMemory puts the budget of f in force, and the collector's own limit a little above it, unless the
// environment's GOMEMLIMIT says what that is.
func (h *house) boundMemory(f *force) {
	h.memory.SetLimit(f.memory)
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(f.memory + f.memory/memoryAbove)
	}
}
