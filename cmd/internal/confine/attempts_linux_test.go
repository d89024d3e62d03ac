package confine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"github.com/google/nftables"
	"github.com/miekg/dns"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
)

// attemptTimeout limits what waits for an answer.
const attemptTimeout = 5 * time.Second

// attemptable are the things that the confined command can try. Each returns an error unless it
// succeeds. In a name PARENT is the process that confines the command.
var attemptable = map[string]func(args []string) (string, error){
	"tcp": func(args []string) (string, error) {
		if args[0] == "proxy" {
			args[0] = os.Getenv("CONFINE_TEST_PROXY")
		}
		return connect("tcp", args[0])
	},
	"many": func(args []string) (string, error) {
		n, err := strconv.Atoi(args[0])
		if err != nil {
			return "", err
		}
		g, all := new(errgroup.Group), make([]net.Conn, n)
		g.SetLimit(50)
		for i := range n {
			g.Go(func() (err error) {
				name := fmt.Sprintf("n%d.example", i%(n/2)) // two ports of each
				if all[i], err = net.DialTimeout("tcp", net.JoinHostPort(name, strconv.Itoa(1000+i)), attemptTimeout); err != nil {
					return err
				}
				text, err := io.ReadAll(all[i])
				if string(text) != name {
					return fmt.Errorf("%s leads to %s, %v", name, text, err)
				}
				return nil
			})
		}
		err = g.Wait()
		runtime.KeepAlive(all)
		return "", err
	},
	"unix":     func(args []string) (string, error) { return connect("unix", args[0]) },
	"unixgram": func(args []string) (string, error) { return send("unixgram", args[0]) },
	"udp": func(args []string) (string, error) {
		c, err := net.ListenPacket("udp", ":0") // unconnected, so that no error comes back by ICMP
		if err != nil {
			return "", err
		}
		defer c.Close()
		to, err := net.ResolveUDPAddr("udp", args[0])
		if err != nil {
			return "", err
		}
		_, err = c.WriteTo([]byte("out"), to)
		return "", err
	},
	"socket": func(args []string) (string, error) {
		f := map[string][3]int{
			"vsock": {unix.AF_VSOCK, unix.SOCK_STREAM}, "packet": {unix.AF_PACKET, unix.SOCK_RAW},
			"raw": {unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_ICMP}, "raw6": {unix.AF_INET6, unix.SOCK_RAW, unix.IPPROTO_ICMPV6},
			"ping": {unix.AF_INET, unix.SOCK_DGRAM, unix.IPPROTO_ICMP}, "bluetooth": {unix.AF_BLUETOOTH, unix.SOCK_RAW},
			"netlink": {unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_ROUTE}, "alg": {unix.AF_ALG, unix.SOCK_SEQPACKET},
		}[args[0]]
		fd, err := unix.Socket(f[0], f[1], f[2])
		if err == nil {
			unix.Close(fd)
		}
		return "", err
	},
	"lookup": func(args []string) (string, error) {
		return first(net.DefaultResolver.LookupHost(context.Background(), args[0]))
	},
	"reverse": func(args []string) (string, error) { return first(net.LookupAddr(args[0])) },
	"ask": func(args []string) (string, error) {
		r := net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
			return net.DialTimeout(args[0], args[1], attemptTimeout)
		}}
		return first(r.LookupHost(context.Background(), args[2]))
	},
	// resolver-connections opens as many connections to the resolver as it takes, and one more.
	"resolver-connections": func(args []string) (string, error) {
		query := new(dns.Msg).SetQuestion("a.example.", dns.TypeA)
		var all []*dns.Conn
		for range maxResolverConns + 1 {
			c, err := dns.DialTimeout("tcp", args[0], attemptTimeout)
			if err != nil {
				return "", err
			}
			defer c.Close()
			if err := c.WriteMsg(query); err != nil {
				return "", err
			}
			all = append(all, c)
		}
		last := all[maxResolverConns]
		for _, c := range all[:maxResolverConns] {
			c.SetReadDeadline(time.Now().Add(attemptTimeout))
			if _, err := c.ReadMsg(); err != nil {
				return "", err
			}
		}
		last.SetReadDeadline(time.Now().Add(200 * time.Millisecond))
		if m, err := last.ReadMsg(); !errors.Is(err, os.ErrDeadlineExceeded) {
			return "", fmt.Errorf("one connection too many: %v, %v", m, err)
		}
		all[0].Close()
		last.SetReadDeadline(time.Now().Add(attemptTimeout))
		_, err := last.ReadMsg()
		return "", err
	},
	"read": func(args []string) (string, error) {
		text, err := os.ReadFile(strings.Replace(args[0], "PARENT", strconv.Itoa(os.Getppid()), 1))
		return string(text), err
	},
	"write": func(args []string) (string, error) {
		f, err := os.OpenFile(args[0], os.O_WRONLY, 0)
		if err != nil {
			return "", err
		}
		return "", f.Close()
	},
	"create": func(args []string) (string, error) { return "", os.WriteFile(args[0], nil, 0o600) },
	"setns": func(args []string) (string, error) {
		f, err := os.Open(args[0])
		if err != nil {
			return "", err
		}
		defer f.Close()
		return "", unix.Setns(int(f.Fd()), 0)
	},
	"setns-pid": func(args []string) (string, error) {
		fd, err := unix.PidfdOpen(process(args[0]), 0)
		if err != nil {
			return "", err
		}
		return "", unix.Setns(fd, unix.CLONE_NEWNET)
	},
	"getfd": func(args []string) (string, error) {
		fd, err := unix.PidfdOpen(process(args[0]), 0)
		if err != nil {
			return "", err
		}
		_, err = unix.PidfdGetfd(fd, 0, 0)
		return "", err
	},
	"ptrace": func(args []string) (string, error) {
		runtime.LockOSThread()
		return "", unix.PtraceSeize(process(args[0]))
	},
	"ioctl": func(args []string) (string, error) {
		request := map[string]uintptr{"TIOCSTI": unix.TIOCSTI, "TIOCSTI+": 1<<32 | unix.TIOCSTI, "TIOCLINUX": unix.TIOCLINUX}[args[0]]
		key := [2]byte{'x'}
		_, _, errno := unix.Syscall(unix.SYS_IOCTL, 0, request, uintptr(unsafe.Pointer(&key)))
		return "", errorOf(errno)
	},
	"uring": func([]string) (string, error) {
		var params [120]byte
		_, _, errno := unix.Syscall(unix.SYS_IO_URING_SETUP, 1, uintptr(unsafe.Pointer(&params)), 0)
		return "", errorOf(errno)
	},
	"request-key": func([]string) (string, error) {
		_, err := unix.RequestKey("dns_resolver", "www.example", "", unix.KEY_SPEC_PROCESS_KEYRING)
		return "", err
	},
	"unshare": func([]string) (string, error) {
		runtime.LockOSThread()
		return "", unix.Unshare(unix.CLONE_NEWNET)
	},
	"umount": func(args []string) (string, error) { return "", unix.Unmount(args[0], unix.MNT_DETACH) },
	// overlay shows what is in a directory, without what is mounted there.
	"overlay": func(args []string) (string, error) {
		return "", unix.Mount("overlay", "/mnt", "overlay", 0, "lowerdir="+args[0]+":/usr")
	},
	"rename": func(args []string) (string, error) { return "", unix.Rename(args[0], args[0]+" ") },
	"flush": func([]string) (string, error) {
		c, err := nftables.New()
		if err != nil {
			return "", err
		}
		c.FlushRuleset()
		return "", c.Flush()
	},
	"capabilities": func([]string) (string, error) {
		status, err := os.ReadFile("/proc/self/status")
		for line := range strings.Lines(string(status)) {
			if value, ok := strings.CutPrefix(line, "CapEff:"); ok {
				return strings.TrimSpace(value), nil
			}
		}
		return "", err
	},
	"ids": func([]string) (string, error) {
		groups, err := os.Getgroups()
		return fmt.Sprint(os.Getuid(), os.Getgid(), groups), err
	},
	"descriptor": func(args []string) (string, error) {
		fd, err := strconv.Atoi(args[0])
		if err != nil {
			return "", err
		}
		_, err = unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TYPE)
		return "", err
	},
	// nested makes an attempt in further namespaces, where the process has all capabilities.
	"nested": func(args []string) (string, error) {
		cmd := exec.Command("/proc/self/exe")
		cmd.Env = []string{partVariable + "=command", runVariable + `={"Attempts":[{"Name":"` + args[0] + `","Args":["` + args[1] + `"]}]}`}
		one := func(id int) []syscall.SysProcIDMap {
			return []syscall.SysProcIDMap{{ContainerID: id, HostID: id, Size: 1}}
		}
		cmd.SysProcAttr = &syscall.SysProcAttr{
			Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNET | syscall.CLONE_NEWNS,
			UidMappings: one(os.Getuid()), GidMappings: one(os.Getgid()), AmbientCaps: neededByStage,
		}
		out, err := cmd.Output()
		if err != nil {
			return "", err
		}
		var found map[string]outcome
		if err := json.Unmarshal(out, &found); err != nil {
			return "", err
		}
		for _, o := range found {
			return o.Text, fmt.Errorf("inside: %s", o.Err)
		}
		return "", errors.New("no outcome")
	},
}

func first(all []string, err error) (string, error) {
	if err != nil {
		return "", err
	}
	return all[0], nil
}

func errorOf(errno syscall.Errno) error {
	if errno == 0 {
		return nil
	}
	return errno
}

// process returns the number of a process.
func process(name string) int {
	if name == "PARENT" {
		return os.Getppid()
	}
	pid, err := strconv.Atoi(name)
	if err != nil {
		panic(err)
	}
	return pid
}

// connect returns what a server says.
func connect(network, address string) (string, error) {
	c, err := net.DialTimeout(network, address, attemptTimeout)
	if err != nil {
		return "", err
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(attemptTimeout))
	text, err := io.ReadAll(c)
	if err == nil && len(text) == 0 {
		err = errors.New("the server says nothing")
	}
	return string(text), err
}

// send sends a packet.
func send(network, address string) (string, error) {
	c, err := net.DialTimeout(network, address, attemptTimeout)
	if err != nil {
		return "", err
	}
	defer c.Close()
	_, err = c.Write([]byte("out"))
	return "", err
}

// forbidNamespaces makes new user namespaces impossible for this process, like the filter of a container.
func forbidNamespaces() error {
	runtime.LockOSThread()
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	program := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: dataNumber},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.SYS_CLONE, Jf: 3},
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: dataArg0},
		{Code: unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K, K: unix.CLONE_NEWUSER, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}
	prog := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, uintptr(unsafe.Pointer(&prog)))
	return errorOf(errno)
}
