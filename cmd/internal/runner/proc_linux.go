package runner

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"iter"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"robotsproxy/cmd/internal/cli"
)

// Bounds of what a procFS reads.
const (
	maxSockets = 100_000
	maxSNMP    = 64 << 10 // bytes of /proc/PID/net/snmp
	maxStat    = 4 << 10  // bytes of /proc/PID/stat
	maxEnviron = 1 << 20  // bytes of /proc/PID/environ
)

// A procFS is the name of the directory /proc, or of one like it. What cannot be read, because it is gone or belongs to
// another user, is left out.
type procFS string

// path returns the name of a file of a process.
func (p procFS) path(pid int, name string) string {
	return filepath.Join(string(p), strconv.Itoa(pid), name)
}

// namesIn returns the names in a directory, as far as they can be read.
func namesIn(dir string) []string {
	f, err := os.Open(dir)
	if err != nil {
		return nil
	}
	defer f.Close()
	names, _ := f.Readdirnames(-1)
	return names
}

// openSockets yields the inodes of the sockets that a process has open; none if it has ended or is another user's.
func (p procFS) openSockets(pid int) iter.Seq[uint64] {
	return func(yield func(uint64) bool) {
		for _, name := range namesIn(p.path(pid, "fd")) {
			// The link is empty if the socket was closed meanwhile.
			link, _ := os.Readlink(filepath.Join(p.path(pid, "fd"), name))
			number, isSocket := strings.CutPrefix(link, "socket:[")
			inode, err := strconv.ParseUint(strings.TrimSuffix(number, "]"), 10, 64)
			if isSocket && err == nil && !yield(inode) {
				return
			}
		}
	}
}

// programFile returns the file name of the program that a process runs; ".": not known.
func (p procFS) programFile(pid int) string {
	// The link is empty if the program is not known.
	link, _ := os.Readlink(p.path(pid, "exe"))
	return filepath.Base(strings.TrimSuffix(link, " (deleted)"))
}

// hasVariable reports whether a process was started with a variable, such as NAME=VALUE.
func (p procFS) hasVariable(pid int, variable []byte) bool {
	// The text is nil if the process is another user's.
	text, _ := cli.ReadFile(p.path(pid, "environ"), maxEnviron)
	for v := range bytes.SplitSeq(text, []byte{0}) {
		if bytes.Equal(v, variable) {
			return true
		}
	}
	return false
}

// A process is what /proc/PID/stat says.
type process struct {
	parent int
	name   string
}

// processes returns all processes by number.
func (p procFS) processes() map[int]process {
	all := map[int]process{}
	for _, name := range namesIn(string(p)) {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		// The text is nil if the process has ended.
		text, _ := cli.ReadFile(p.path(pid, "stat"), maxStat)
		if one, ok := parseStat(text); ok {
			all[pid] = one
		}
	}
	return all
}

// isDescendant reports whether a process is a child of ancestor, or of a descendant.
func isDescendant(all map[int]process, ancestor, pid int) bool {
	// The number of steps is bounded, because the processes were not read all at once: their parents may form a circle.
	for range all {
		switch pid = all[pid].parent; pid {
		case ancestor:
			return true
		case 0:
			return false
		}
	}
	return false
}

// parseStat parses the beginning of /proc/PID/stat, such as "17 (name) S 1". The name may have any bytes.
func parseStat(text []byte) (p process, ok bool) {
	first, last := bytes.IndexByte(text, '('), bytes.LastIndexByte(text, ')')
	if first < 0 || last < first {
		return p, false
	}
	fields := bytes.Fields(text[last+1:])
	if len(fields) < 2 {
		return p, false
	}
	parent, err := strconv.Atoi(string(fields[1]))
	// Node 24 adds the suffix to its name.
	name := strings.TrimSuffix(string(text[first+1:last]), "-MainThread")
	return process{parent, name}, err == nil
}

// activeOpens returns how many TCP connections were opened in the network namespace of a process; "": not known.
func (p procFS) activeOpens(pid int) string {
	// The text is nil if the process has ended.
	text, _ := cli.ReadFile(p.path(pid, "net/snmp"), maxSNMP)
	value := ""
	for line := range bytes.Lines(text) {
		// The first such line has the names. The value of ActiveOpens is the fifth.
		if fields := bytes.Fields(line); len(fields) > 5 && string(fields[0]) == "Tcp:" {
			value = string(fields[5])
		}
	}
	return value
}

// A netSocket is a socket that is connected to another machine, or will be.
type netSocket struct {
	directPair
	inode     uint64
	connected bool

	// accepted says that the other machine opened the connection.
	accepted bool
}

// sockets returns the sockets of a protocol, tcp or udp, in the network namespace of a process.
func (p procFS) sockets(pid int, protocol string) (all []netSocket) {
	listening := map[uint16]bool{}
	// The ports are those of all, in the same order.
	var localPorts []uint16
	for _, name := range []string{protocol, protocol + "6"} {
		f, err := os.Open(p.path(pid, "net/"+name))
		// The process may have ended, and there may be no IPv6.
		if err != nil {
			continue
		}
		for lines := bufio.NewScanner(f); lines.Scan() && len(all) < maxSockets; {
			l, ok := parseSocket(lines.Bytes())
			switch udp := protocol == "udp"; {
			case !ok:
			case l.state == stateListen:
				listening[l.local.Port()] = true
			case l.leaves(udp):
				all = append(all, netSocket{directPair{to: l.remote, udp: udp}, l.inode, l.state != stateSynSent, false})
				localPorts = append(localPorts, l.local.Port())
			}
		}
		f.Close()
	}
	for i, port := range localPorts {
		all[i].accepted = listening[port]
	}
	return all
}

// A socketLine is a line of /proc/net/tcp, tcp6, udp or udp6.
type socketLine struct {
	local, remote netip.AddrPort
	state         uint64

	// inode is the number of the socket; zero: no process has it open.
	inode uint64
}

// States of a socketLine.
const (
	stateSynSent = 0x2
	stateListen  = 0xA
)

// Ports of a socketLine.
const (
	portDNS   = 53
	portHTTPS = 443
)

// leaves reports whether the socket is for another machine, and may carry requests. That to a name server does not, and
// UDP does on the port of HTTPS.
func (l *socketLine) leaves(udp bool) bool {
	to := l.remote
	return l.inode != 0 && !to.Addr().IsLoopback() && !to.Addr().IsUnspecified() && to.Port() != portDNS && (!udp || to.Port() == portHTTPS)
}

// parseSocket parses a line; ok is false for the head of a table.
func parseSocket(line []byte) (l socketLine, ok bool) {
	fields := bytes.Fields(line)
	if len(fields) < 10 {
		return l, false
	}
	var isLocal, isRemote bool
	l.local, isLocal = parseHexAddress(fields[1])
	l.remote, isRemote = parseHexAddress(fields[2])
	var noState, noInode error
	l.state, noState = strconv.ParseUint(string(fields[3]), 16, 8)
	l.inode, noInode = strconv.ParseUint(string(fields[9]), 10, 64)
	return l, isLocal && isRemote && noState == nil && noInode == nil
}

// parseHexAddress parses an address and port such as 0100007F:1F90: the address is words of 32 bits as they are in memory.
func parseHexAddress(text []byte) (netip.AddrPort, bool) {
	words, portText, _ := bytes.Cut(text, []byte(":"))
	var address []byte
	for len(words) >= 8 {
		word, err := strconv.ParseUint(string(words[:8]), 16, 32)
		if err != nil {
			return netip.AddrPort{}, false
		}
		address = binary.NativeEndian.AppendUint32(address, uint32(word))
		words = words[8:]
	}
	ip, ok := netip.AddrFromSlice(address)
	port, err := strconv.ParseUint(string(portText), 16, 16)
	return netip.AddrPortFrom(ip.Unmap(), uint16(port)), ok && len(words) == 0 && err == nil
}
