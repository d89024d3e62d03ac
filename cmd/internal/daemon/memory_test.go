package daemon

import (
	"testing"
	"testing/fstest"

	"robotsproxy/policy/memory"
)

func TestAutoMemory(t *testing.T) {
	const machine, huge = "MemFree: 1 kB\nMemTotal:       4194304 kB\n", "9223372036854771712\n"
	for _, c := range []struct {
		name  string
		files map[string]string
		named bool
		want  int64
	}{
		{"nothing is known", nil, false, memory.Default},
		{"GOMEMLIMIT", map[string]string{"proc/meminfo": machine}, true, 123 << 20},
		{"a quarter of the machine", map[string]string{"proc/meminfo": machine}, false, 1 << 30},
		{"at most 2 GiB of it", map[string]string{"proc/meminfo": "MemTotal: 67108864 kB\n"}, false, 2 << 30},
		{"half of the group's, version 2", map[string]string{
			"proc/meminfo": machine, "proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/b/memory.max": "536870912\n",
		}, false, 256 << 20},
		{"half of a group's above it", map[string]string{
			"proc/meminfo": machine, "proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/b/memory.max": "max\n", "sys/fs/cgroup/a/memory.max": "1073741824\n",
		}, false, 512 << 20},
		{"a container that sees its own group as the root", map[string]string{
			"proc/meminfo": machine, "proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "268435456\n",
		}, false, 128 << 20},
		{"version 1", map[string]string{
			"proc/meminfo": machine, "proc/self/cgroup": "5:cpu,cpuacct:/a\n4:memory:/a\n", "sys/fs/cgroup/memory/a/memory.limit_in_bytes": "536870912\n",
		}, false, 256 << 20},
		{"version 1 without a limit", map[string]string{
			"proc/meminfo": machine, "proc/self/cgroup": "4:memory:/\n", "sys/fs/cgroup/memory/memory.limit_in_bytes": huge,
		}, false, 1 << 30},
	} {
		t.Run(c.name, func(t *testing.T) {
			root := fstest.MapFS{}
			for name, text := range c.files {
				root[name] = &fstest.MapFile{Data: []byte(text)}
			}
			if got := autoMemory(root, 123<<20, c.named); got != c.want {
				t.Errorf("%d MiB, want %d", got>>20, c.want>>20)
			}
		})
	}
}

// With little memory, one file is fetched at a time, and not as many as with the default.
func TestFetchesWithin(t *testing.T) {
	for _, c := range []struct {
		budget int64
		part   int
		want   int
	}{
		{2 << 30, 1, 512}, {2 << 30, tdmrepPart, 128}, {64 << 20, 1, 16}, {64 << 20, tdmrepPart, 4}, {12 << 20, tdmrepPart, 1}, {1 << 20, 1, 1},
	} {
		if got := fetchesWithin(c.budget, c.part); got != c.want {
			t.Errorf("%d bytes, part %d: %d fetches, want %d", c.budget, c.part, got, c.want)
		}
	}
}
