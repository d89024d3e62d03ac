package runner

import (
	"encoding/binary"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"robotsproxy/robots/testkit"
)

// A fakeProc is a directory like /proc.
type fakeProc struct {
	t   *testing.T
	dir string
}

func (p fakeProc) write(pid int, name, text string) {
	p.t.Helper()
	file := filepath.Join(p.dir, strconv.Itoa(pid), name)
	testkit.Must(p.t, os.MkdirAll(filepath.Dir(file), 0o700))
	testkit.Must(p.t, os.WriteFile(file, []byte(text), 0o600))
}

// start adds a process that has sockets open.
func (p fakeProc) start(pid, parent int, program, environ string, sockets ...uint64) {
	p.t.Helper()
	p.write(pid, "stat", fmt.Sprintf("%d (%s) S %d 0 0 0 -1", pid, program, parent))
	p.write(pid, "environ", environ)
	p.write(pid, "fd/0", "a file")
	for _, inode := range sockets {
		testkit.Must(p.t, os.Symlink(fmt.Sprintf("socket:[%d]", inode), filepath.Join(p.dir, strconv.Itoa(pid), "fd", fmt.Sprint(inode))))
	}
	testkit.Must(p.t, os.Symlink("/usr/bin/"+program, filepath.Join(p.dir, strconv.Itoa(pid), "exe")))
}

// tables writes the tables that a process sees, and how many TCP connections were opened.
func (p fakeProc) tables(pid, opens int, lines ...string) {
	p.t.Helper()
	tables := map[string]string{"tcp": "  sl  local_address\n", "tcp6": "", "udp": "", "udp6": ""}
	for _, line := range lines {
		name, text, _ := strings.Cut(line, " ")
		tables[name] += text + "\n"
	}
	for name, text := range tables {
		p.write(pid, "net/"+name, text)
	}
	p.write(pid, "net/snmp", fmt.Sprintf("Ip: A B C D E F\nIp: 1 2 3 4 5 6\nTcp: A B C D ActiveOpens F\nTcp: 1 200 120000 -1 %d 8\n", opens))
}

// line returns a line of a table. The addresses are IPv4.
func line(table, local, remote string, state, inode int) string {
	hex := func(address string) string {
		ap := netip.MustParseAddrPort(address)
		return fmt.Sprintf("%08X:%04X", binary.NativeEndian.Uint32(ap.Addr().AsSlice()), ap.Port())
	}
	return fmt.Sprintf("%s 0: %s %s %02X 00000000:00000000 00:00000000 00000000 0 0 %d 1", table, hex(local), hex(remote), state, inode)
}

// TestDirectWatch: of the connections that appear between samples, those of the command count.
func TestDirectWatch(t *testing.T) {
	const (
		child  = 100
		from   = "192.168.0.2:50000"
		to     = "192.0.2.7:80"
		quic   = "192.0.2.7:443"
		open   = 1 // states
		marker = "ROBOTSPROXY_RUN=/state/runs/1"
	)
	python := map[string]int64{"python3 192.0.2.7:80": 1}
	for _, c := range []struct {
		name    string
		start   func(p fakeProc)
		samples [][]string // what the tables have at each
		opens   []int      // how many TCP connections were opened until then; nil: one more each time
		want    map[string]int64
	}{
		{"a connection counts once", func(p fakeProc) { p.start(child, os.Getpid(), "python3", "", 7) },
			[][]string{{line("tcp", from, to, open, 7)}, {line("tcp", from, to, open, 7)}, {}}, nil, python},
		{"connections to one address", func(p fakeProc) { p.start(child, os.Getpid(), "python3", "", 7, 8) },
			[][]string{{line("tcp", from, to, open, 7)}, {line("tcp", from, to, open, 7), line("tcp", "192.168.0.2:50001", to, open, 8)}},
			nil, map[string]int64{"python3 192.0.2.7:80": 2}},
		{"the connection of a grandchild", func(p fakeProc) {
			p.start(child, os.Getpid(), "sh", "")
			p.start(101, child, "python3", "", 7)
		}, [][]string{{line("tcp", from, to, open, 7)}}, nil, python},
		{"the connection of an orphan", func(p fakeProc) {
			p.start(1, 0, "init", "")
			p.start(child, os.Getpid(), "sh", "")
			p.start(101, 1, "python3", "A=b\x00"+marker+"\x00C=d\x00", 7)
		}, [][]string{{line("tcp", from, to, open, 7)}}, nil, python},
		{"the connection of an unrelated process", func(p fakeProc) {
			p.start(1, 0, "init", "")
			p.start(child, os.Getpid(), "sh", "")
			p.start(101, 1, "python3", marker+"2\x00", 7)
		}, [][]string{{line("tcp", from, to, open, 7)}}, nil, nil},
		{"the proxy's own connection, also if the command inherits it", func(p fakeProc) {
			p.start(os.Getpid(), 1, "robotsproxy", "", 7, 8)
			p.start(child, os.Getpid(), "python3", "", 7)
		}, [][]string{{line("tcp", from, to, open, 7), line("tcp", from, to, open, 8)}}, nil, nil},
		{"the connection of a proxy that the command starts", func(p fakeProc) {
			p.start(os.Getpid(), 1, "robotsproxy", "")
			p.start(child, os.Getpid(), "robotsproxy", "", 7)
		}, [][]string{{line("tcp", from, to, open, 7)}}, nil, nil},
		{"a connection to the proxy", func(p fakeProc) { p.start(child, os.Getpid(), "python3", "", 7) },
			[][]string{{line("tcp", "127.0.0.1:50000", "127.0.0.1:8080", open, 7)}}, nil, nil},
		{"connections that a server accepts, and keeps", func(p fakeProc) { p.start(child, os.Getpid(), "python3", "", 6, 7) },
			[][]string{{line("tcp", "0.0.0.0:50000", "0.0.0.0:0", stateListen, 6), line("tcp", from, to, open, 7)}, {line("tcp", from, to, open, 7)}}, nil, nil},
		{"a connection that comes about", func(p fakeProc) { p.start(child, os.Getpid(), "python3", "", 7) },
			[][]string{{line("tcp", from, to, stateSynSent, 7)}, {line("tcp", from, to, open, 7)}}, []int{1, 1}, python},
		{"a connection that does not come about", func(p fakeProc) { p.start(child, os.Getpid(), "python3", "", 7) },
			[][]string{{line("tcp", from, to, stateSynSent, 7)}, {line("tcp", from, to, stateSynSent, 7)}, {}}, nil, nil},
		{"the TCP table is not read if no connection was opened", func(p fakeProc) { p.start(child, os.Getpid(), "python3", "", 7) },
			[][]string{{}, {line("tcp", from, to, open, 7)}}, []int{1, 1}, nil},
		{"UDP", func(p fakeProc) { p.start(child, os.Getpid(), "python3", "", 7) },
			[][]string{{line("udp", from, quic, open, 7)}, {line("udp", from, quic, open, 7)}, {line("udp", from, quic, open, 7)}},
			nil, map[string]int64{"python3 192.0.2.7:443": 1}},
		{"UDP that is closed at once", func(p fakeProc) { p.start(child, os.Getpid(), "python3", "", 7, 8) },
			[][]string{{line("udp", from, quic, open, 7)}, {line("udp", from, quic, open, 8)}, {}}, nil, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := fakeProc{t, t.TempDir()}
			c.start(p)
			w := newDirectWatch(procFS(p.dir), "/state/runs/1")
			for i, lines := range c.samples {
				opens := i
				if c.opens != nil {
					opens = c.opens[i]
				}
				p.tables(child, opens, lines...)
				w.sample(child)
			}
			got := map[string]int64{}
			for d, n := range w.found.counts {
				got[d.program+" "+d.to.String()] = n
			}
			if !maps.Equal(got, c.want) {
				t.Errorf("%v, want %v", got, c.want)
			}
		})
	}
}

// TestUntilSample: samples are frequent at first, and become rare if they take much of a processor's time.
func TestUntilSample(t *testing.T) {
	for _, c := range []struct{ while, spent, want time.Duration }{
		{0, 0, soonestSample},
		{100 * time.Millisecond, 90 * time.Millisecond, soonestSample},
		{2 * time.Second, sampleCredit, 100 * time.Millisecond},
		{time.Hour, time.Second, latestSample},
		{time.Second, sampleCredit + time.Second, 49 * time.Second},
		{time.Minute, sampleCredit + time.Second, latestSample},
	} {
		if got := untilSample(c.while, c.spent); got != c.want {
			t.Errorf("after %v that took %v: %v, want %v", c.while, c.spent, got, c.want)
		}
	}
}
