package runner

import (
	"context"
	"os"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// When the sockets are sampled: often at first, because many commands are short. Apart from sampleCredit, sampling takes
// at most one sampleShare of a processor.
const (
	soonestSample = 20 * time.Millisecond
	latestSample  = 250 * time.Millisecond
	sampleShare   = 50
	sampleCredit  = 100 * time.Millisecond
)

// A directWatch finds connections that the processes of a command make without the proxy, in samples of /proc. It
// misses connections that are shorter than the time between two samples. One goroutine may use it at a time.
type directWatch struct {
	proc procFS

	// self is this process. Its connections are the proxy's, or the command has inherited them.
	self int

	// program is the file name of this process's program. Processes of the command with that name are proxies too.
	program string

	// marker is a variable that the command's processes have, unless they have cleared it.
	marker []byte

	// opens says how many TCP connections had been opened at the last sample.
	opens string

	// tcp and udp have the sockets of the last sample.
	tcp, udp socketTable
	found    directConns
}

// A socketTable has the sockets of a sample by inode. The value is false for a socket that must be looked at again.
type socketTable map[uint64]bool

// newDirectWatch returns a watch of a command; dir is the directory of its run.
func newDirectWatch(proc procFS, dir string) *directWatch {
	w := &directWatch{proc: proc, self: os.Getpid(), marker: []byte(runDirVariable + "=" + dir)}
	w.program = w.proc.programFile(w.self)
	return w
}

// watchDirect watches the command c from its start on. dir is the directory of its run.
func watchDirect(c *child, dir string) (stop func() *directConns) {
	w := newDirectWatch("/proc", dir)
	ctx, cancel := context.WithCancel(context.Background())
	var watching sync.WaitGroup
	start := c.start
	c.start = func() error {
		err := start()
		if err == nil {
			watching.Go(func() { w.run(ctx, c.cmd.Process.Pid) })
		}
		return err
	}
	return func() *directConns {
		cancel()
		watching.Wait()
		return &w.found
	}
}

// run samples until ctx ends. child is the process of the command.
func (w *directWatch) run(ctx context.Context, child int) {
	// threadTime is that of one thread.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for began, before := time.Now(), threadTime(); ; {
		w.sample(child)
		select {
		case <-ctx.Done():
			return
		case <-time.After(untilSample(time.Since(began), threadTime()-before)):
		}
	}
}

// untilSample returns the time until the next sample, when sampling has gone on for a while and has taken spent of a
// processor's time.
func untilSample(while, spent time.Duration) time.Duration {
	return max(soonestSample, min(while/20, latestSample), sampleShare*(spent-sampleCredit)-while)
}

// threadTime returns how long the thread has used a processor.
func threadTime() time.Duration {
	var t unix.Timespec
	// There is no error, because every Linux has this clock.
	unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t)
	return time.Duration(t.Nano())
}

// sample counts the connections that are new since the last sample.
func (w *directWatch) sample(child int) {
	wanted := map[uint64]directPair{}
	// The kernel makes the TCP table from all of a large hash table, which takes some milliseconds.
	if opens := w.proc.activeOpens(child); opens != w.opens || w.tcp.undecided() {
		w.opens, w.tcp = opens, w.tcp.next(w.proc.sockets(child, "tcp"), wanted)
	}
	w.udp = w.udp.next(w.proc.sockets(child, "udp"), wanted)
	if len(wanted) > 0 {
		w.attribute(wanted)
	}
}

// undecided reports whether a socket has to be looked at again.
func (t socketTable) undecided() bool {
	for _, decided := range t {
		if !decided {
			return true
		}
	}
	return false
}

// next returns the next table, and adds the new connections to wanted.
func (t socketTable) next(sockets []netSocket, wanted map[uint64]directPair) socketTable {
	next := socketTable{}
	for _, s := range sockets {
		decided, known := t[s.inode]
		// To put the addresses of a name in order, the C library connects a UDP socket to each and closes it.
		next[s.inode] = decided || s.connected && (known || !s.udp)
		if next[s.inode] && !decided && !s.accepted {
			wanted[s.inode] = s.directPair
		}
	}
	return next
}

// attribute counts those of the wanted sockets, by inode, that a process of the command has open.
func (w *directWatch) attribute(wanted map[uint64]directPair) {
	// The proxy makes most connections.
	if w.claim(w.self, "", wanted); len(wanted) == 0 {
		return
	}
	processes := w.proc.processes()
	var unrelated []int
	for pid, p := range processes {
		if isDescendant(processes, w.self, pid) {
			w.claim(pid, p.name, wanted)
		} else {
			unrelated = append(unrelated, pid)
		}
	}
	for _, pid := range unrelated {
		if len(wanted) == 0 {
			return
		}
		// The parent of such a process has ended.
		if w.proc.hasVariable(pid, w.marker) {
			w.claim(pid, processes[pid].name, wanted)
		}
	}
}

// claim takes the sockets that a process has open out of wanted, and counts them unless it is a proxy.
func (w *directWatch) claim(pid int, name string, wanted map[uint64]directPair) {
	for inode := range w.proc.openSockets(pid) {
		d, ok := wanted[inode]
		if !ok {
			continue
		}
		delete(wanted, inode)
		if pid != w.self && w.proc.programFile(pid) != w.program {
			d.program = name
			w.found.add(d)
		}
	}
}
