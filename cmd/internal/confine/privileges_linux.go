package confine

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"
)

// keptByRoot are the capabilities that a confined process keeps if it runs as root, within its own
// user namespace: those that change files and become another user, as start scripts do. None of
// them changes namespaces, mounts, routes or the packet filter, or opens raw sockets.
var keptByRoot = []uint{
	unix.CAP_CHOWN, unix.CAP_DAC_OVERRIDE, unix.CAP_FOWNER, unix.CAP_FSETID, unix.CAP_KILL,
	unix.CAP_SETGID, unix.CAP_SETUID, unix.CAP_NET_BIND_SERVICE,
}

// neededByStage are the capabilities that the stage needs for its work.
var neededByStage = []uintptr{
	unix.CAP_NET_ADMIN, unix.CAP_NET_BIND_SERVICE, unix.CAP_SYS_ADMIN, unix.CAP_SETPCAP,
}

// An account is whom a command runs as.
type account struct {
	UID, GID int
	Groups   []int
}

// dropPrivileges makes the calling thread, which must be locked, run as user with no capability but
// those of keptByRoot, and filters its system calls. There is no way back, not by exec either.
func dropPrivileges(user *account) error {
	for c := range uint(unix.CAP_LAST_CAP + 1) {
		if slices.Contains(keptByRoot, c) {
			continue
		}
		// An older kernel knows fewer capabilities.
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, uintptr(c), 0, 0, 0); err != nil && !errors.Is(err, unix.EINVAL) {
			return fmt.Errorf("drop capability %d: %w", c, err)
		}
	}
	if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil {
		return fmt.Errorf("clear ambient capabilities: %w", err)
	}
	if user != nil {
		if err := become(user); err != nil {
			return err
		}
	}
	kept := keptByRoot
	if os.Geteuid() != 0 {
		kept = nil
	}
	if err := setCapabilities(kept); err != nil {
		return fmt.Errorf("drop capabilities: %w", err)
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("no_new_privs: %w", err)
	}
	return installFilter()
}

// become makes the process run as another user. The functions of package unix change all threads.
func become(user *account) error {
	if err := unix.Setgroups(user.Groups); err != nil {
		return fmt.Errorf("setgroups: %w", err)
	}
	if err := unix.Setresgid(user.GID, user.GID, user.GID); err != nil {
		return fmt.Errorf("setgid %d: %w", user.GID, err)
	}
	if err := unix.Setresuid(user.UID, user.UID, user.UID); err != nil {
		return fmt.Errorf("setuid %d: %w", user.UID, err)
	}
	return nil
}

// setCapabilities sets the capabilities of the calling thread. None is inheritable.
func setCapabilities(kept []uint) error {
	head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var sets [2]unix.CapUserData
	for _, c := range kept {
		sets[c/32].Permitted |= 1 << (c % 32)
		sets[c/32].Effective |= 1 << (c % 32)
	}
	return unix.Capset(&head, &sets[0])
}

// The offsets in struct seccomp_data. The arguments are 64 bits wide; of those that are compared the
// kernel itself looks at the low 32 bits only.
const (
	dataNumber = 0
	dataArch   = 4
	dataArg0   = 16
	dataArg1   = 24
)

// x32Bit marks the system calls of x32 on amd64, which have the same architecture.
const x32Bit = 0x40000000

// auditArch is the architecture of system calls, by GOARCH. Both are little-endian, and have no
// socketcall, whose arguments a filter could not see.
var auditArch = map[string]uint32{
	"amd64": unix.AUDIT_ARCH_X86_64, "arm64": unix.AUDIT_ARCH_AARCH64, "riscv64": unix.AUDIT_ARCH_RISCV64,
}

// allowedFamilies are the sockets that a confined process may open. Those of the others may lead out
// of a network namespace (AF_VSOCK), and no crawler needs them.
var allowedFamilies = []uint32{unix.AF_UNIX, unix.AF_INET, unix.AF_INET6, unix.AF_NETLINK}

// forbiddenIoctls put input into a terminal, which another program may run as a command.
var forbiddenIoctls = []uint32{unix.TIOCSTI, unix.TIOCLINUX}

// filter returns the program that the kernel runs before each system call.
func filter(arch uint32) []unix.SockFilter {
	const (
		load    = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS
		equal   = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
		atLeast = unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K
		ret     = unix.BPF_RET | unix.BPF_K
	)
	fail := func(e unix.Errno) unix.SockFilter {
		return unix.SockFilter{Code: ret, K: unix.SECCOMP_RET_ERRNO | uint32(e)}
	}
	allow := unix.SockFilter{Code: ret, K: unix.SECCOMP_RET_ALLOW}
	program := []unix.SockFilter{
		{Code: load, K: dataArch},
		{Code: equal, K: arch, Jt: 1},
		// A 32-bit program has other numbers of system calls.
		{Code: ret, K: unix.SECCOMP_RET_KILL_PROCESS},
		{Code: load, K: dataNumber},
		{Code: atLeast, K: x32Bit, Jf: 1},
		fail(unix.ENOSYS),
		// io_uring would open sockets unseen by this program.
		{Code: equal, K: unix.SYS_IO_URING_SETUP, Jf: 1},
		fail(unix.ENOSYS),
		// request_key has the kernel start a program outside, which may look up a name.
		{Code: equal, K: unix.SYS_REQUEST_KEY, Jf: 1},
		fail(unix.ENOSYS),
		{Code: equal, K: unix.SYS_SETNS, Jf: 1},
		fail(unix.EPERM),
	}
	program = append(program, unix.SockFilter{Code: equal, K: unix.SYS_IOCTL, Jf: uint8(2 + 2*len(forbiddenIoctls))},
		unix.SockFilter{Code: load, K: dataArg1})
	for _, request := range forbiddenIoctls {
		program = append(program, unix.SockFilter{Code: equal, K: request, Jf: 1}, fail(unix.EPERM))
	}
	program = append(program, allow,
		unix.SockFilter{Code: equal, K: unix.SYS_SOCKET, Jf: uint8(2 + 2*len(allowedFamilies))},
		unix.SockFilter{Code: load, K: dataArg0})
	for _, family := range allowedFamilies {
		program = append(program, unix.SockFilter{Code: equal, K: family, Jf: 1}, allow)
	}
	return append(program, fail(unix.EAFNOSUPPORT), allow)
}

// installFilter installs the filter for the calling thread and what it executes.
func installFilter() error {
	arch, ok := auditArch[runtime.GOARCH]
	if !ok {
		return fmt.Errorf("seccomp: no filter for %s", runtime.GOARCH)
	}
	program := filter(arch)
	prog := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	if _, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, uintptr(unsafe.Pointer(&prog))); errno != 0 {
		return fmt.Errorf("seccomp: %w", errno)
	}
	runtime.KeepAlive(program)
	return nil
}
