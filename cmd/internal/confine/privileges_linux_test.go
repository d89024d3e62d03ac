package confine

import (
	"testing"

	"golang.org/x/sys/unix"
)

// What the kernel makes of the filter, as far as this test's interpreter knows it.
func TestFilter(t *testing.T) {
	t.Parallel()
	const (
		allow = uint32(unix.SECCOMP_RET_ALLOW)
		kill  = uint32(unix.SECCOMP_RET_KILL_PROCESS)
		fails = uint32(unix.SECCOMP_RET_ERRNO)
	)
	for _, arch := range auditArch {
		program := filter(arch)
		for _, c := range []struct {
			name   string
			arch   uint32
			number uint32
			args   [2]uint64
			want   uint32
		}{
			{"read", arch, unix.SYS_READ, [2]uint64{}, allow},
			{"another architecture", unix.AUDIT_ARCH_I386, unix.SYS_READ, [2]uint64{}, kill},
			{"x32", arch, x32Bit | unix.SYS_READ, [2]uint64{}, fails | uint32(unix.ENOSYS)},
			{"io_uring", arch, unix.SYS_IO_URING_SETUP, [2]uint64{}, fails | uint32(unix.ENOSYS)},
			{"request_key", arch, unix.SYS_REQUEST_KEY, [2]uint64{}, fails | uint32(unix.ENOSYS)},
			{"setns", arch, unix.SYS_SETNS, [2]uint64{3, 0}, fails | uint32(unix.EPERM)},
			{"TIOCSTI", arch, unix.SYS_IOCTL, [2]uint64{0, unix.TIOCSTI}, fails | uint32(unix.EPERM)},
			{"TIOCSTI with other bits", arch, unix.SYS_IOCTL, [2]uint64{0, 1<<32 | unix.TIOCSTI}, fails | uint32(unix.EPERM)},
			{"TIOCLINUX", arch, unix.SYS_IOCTL, [2]uint64{0, unix.TIOCLINUX}, fails | uint32(unix.EPERM)},
			{"TCGETS", arch, unix.SYS_IOCTL, [2]uint64{0, unix.TCGETS}, allow},
			{"AF_UNIX", arch, unix.SYS_SOCKET, [2]uint64{unix.AF_UNIX}, allow},
			{"AF_INET", arch, unix.SYS_SOCKET, [2]uint64{unix.AF_INET}, allow},
			{"AF_INET6", arch, unix.SYS_SOCKET, [2]uint64{unix.AF_INET6}, allow},
			{"AF_NETLINK", arch, unix.SYS_SOCKET, [2]uint64{unix.AF_NETLINK}, allow},
			{"AF_VSOCK", arch, unix.SYS_SOCKET, [2]uint64{unix.AF_VSOCK}, fails | uint32(unix.EAFNOSUPPORT)},
			{"AF_VSOCK with other bits", arch, unix.SYS_SOCKET, [2]uint64{1<<32 | unix.AF_VSOCK}, fails | uint32(unix.EAFNOSUPPORT)},
			{"AF_PACKET", arch, unix.SYS_SOCKET, [2]uint64{unix.AF_PACKET}, fails | uint32(unix.EAFNOSUPPORT)},
			{"no family", arch, unix.SYS_SOCKET, [2]uint64{1000}, fails | uint32(unix.EAFNOSUPPORT)},
		} {
			words := map[uint32]uint32{dataNumber: c.number, dataArch: c.arch, dataArg0: uint32(c.args[0]), dataArg1: uint32(c.args[1])}
			if got := interpret(t, program, words); got != c.want {
				t.Errorf("%s: %#x, want %#x", c.name, got, c.want)
			}
		}
	}
}

// interpret runs a program over the words of a struct seccomp_data.
func interpret(t *testing.T, program []unix.SockFilter, words map[uint32]uint32) uint32 {
	t.Helper()
	var a uint32
	for pc := 0; pc < len(program); pc++ {
		i := program[pc]
		jump := func(holds bool) {
			if holds {
				pc += int(i.Jt)
			} else {
				pc += int(i.Jf)
			}
		}
		switch i.Code {
		case unix.BPF_LD | unix.BPF_W | unix.BPF_ABS:
			a = words[i.K]
		case unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K:
			jump(a == i.K)
		case unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K:
			jump(a >= i.K)
		case unix.BPF_RET | unix.BPF_K:
			return i.K
		default:
			t.Fatalf("unknown instruction %#x", i.Code)
		}
	}
	t.Fatal("the program has no end")
	return 0
}
