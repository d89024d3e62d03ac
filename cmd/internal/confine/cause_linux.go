package confine

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// explained adds to an error of a start the setting of the system that most likely causes it, as far as it is known.
func explained(err error) error {
	if setting := cause(err, os.Geteuid(), readSetting); setting != "" {
		return fmt.Errorf("confinement is not possible here: %w: %s", err, setting)
	}
	return fmt.Errorf("confinement: %w", err)
}

// limits are the settings that limit the number of namespaces.
var limits = []string{"user/max_user_namespaces", "user/max_net_namespaces", "user/max_mnt_namespaces"}

// cause returns the setting that causes an error; "": it is not known. read returns a setting of
// /proc/sys, or a line of /proc/self/status.
func cause(err error, uid int, read func(string) string) string {
	switch {
	case errors.Is(err, unix.ENOSPC):
		for _, name := range limits {
			if read(name) == "0" {
				return fmt.Sprintf("the sysctl %s is 0", strings.ReplaceAll(name, "/", "."))
			}
		}
		return "too many namespaces, see the sysctls user.max_*_namespaces"
	case errors.Is(err, unix.EINVAL) && read("user/max_user_namespaces") == "", errors.Is(err, unix.ENOSYS):
		return "this kernel lacks what it needs (Linux 5.12 with user namespaces, nftables and seccomp)"
	case strings.Contains(err.Error(), nftablesStep) && !errors.Is(err, fs.ErrPermission):
		return "this kernel may lack nftables with NAT (nf_tables, nft_redir, nf_conntrack)"
	// The causes below lead to EPERM or EACCES.
	case !errors.Is(err, fs.ErrPermission):
		return ""
	case uid != 0 && read("kernel/unprivileged_userns_clone") == "0":
		return "the sysctl kernel.unprivileged_userns_clone is 0"
	case uid != 0 && read("kernel/apparmor_restrict_unprivileged_userns") == "1":
		return "the sysctl kernel.apparmor_restrict_unprivileged_userns is 1: an AppArmor profile with \"userns,\" lets robotsproxy do it"
	case read("Seccomp") == "2":
		return "a seccomp filter forbids it, as in a container: give the container a profile that allows unshare and clone " +
			"with new namespaces, or use its own network in place of --confine"
	default:
		return "this user or this container may not make namespaces"
	}
}

// readSetting reads a setting of /proc/sys, or a line of /proc/self/status, without blanks; "": there
// is none.
func readSetting(name string) string {
	if strings.Contains(name, "/") {
		// The text is nil if the kernel does not have the setting.
		text, _ := os.ReadFile("/proc/sys/" + name)
		return strings.TrimSpace(string(text))
	}
	// The text is nil where /proc is not mounted.
	text, _ := os.ReadFile("/proc/self/status")
	for line := range strings.Lines(string(text)) {
		if key, value, _ := strings.Cut(line, ":"); key == name {
			return strings.TrimSpace(value)
		}
	}
	return ""
}
