package confine

import (
	"fmt"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestCause(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name     string
		err      error
		uid      int
		settings map[string]string
		want     string
	}{
		{"limit", unix.ENOSPC, 0, map[string]string{"user/max_net_namespaces": "0"}, "the sysctl user.max_net_namespaces is 0"},
		{"limit reached", unix.ENOSPC, 1, nil, "too many namespaces"},
		{"Debian", unix.EPERM, 1, map[string]string{"kernel/unprivileged_userns_clone": "0"}, "kernel.unprivileged_userns_clone is 0"},
		{"Ubuntu", unix.EACCES, 1, map[string]string{"kernel/apparmor_restrict_unprivileged_userns": "1"}, "kernel.apparmor_restrict_unprivileged_userns is 1"},
		{"not for root", unix.EPERM, 0, map[string]string{"kernel/apparmor_restrict_unprivileged_userns": "1"}, "this user or this container"},
		{"container", unix.EPERM, 0, map[string]string{"Seccomp": "2"}, "seccomp filter"},
		{"no user namespaces", unix.EINVAL, 0, nil, "this kernel lacks"},
		{"no nftables", fmt.Errorf(nftablesStep+": %w", unix.ENOENT), 0, map[string]string{"user/max_user_namespaces": "9"}, "nftables with NAT"},
		{"another error", unix.ENOENT, 0, map[string]string{"user/max_user_namespaces": "9"}, ""},
	} {
		got := cause(c.err, c.uid, func(name string) string { return c.settings[name] })
		if (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}
