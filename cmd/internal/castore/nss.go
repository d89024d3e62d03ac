package castore

import (
	"bytes"
	"cmp"
	"crypto/x509"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"robotsproxy/cmd/internal/cli"
)

// nss is the certificate databases of this user's Firefox and Chromium. Both browsers use the library NSS, and its program certutil
// changes their databases.
type nss struct {
	certutil string

	// dirs are the directories of the databases.
	dirs []string

	// missing are the directories of databases that a Chromium reads as soon as they exist.
	missing []string
}

// openNSS finds certutil and the databases.
func openNSS() (*nss, error) {
	if runtime.GOOS == "windows" {
		return nil, errors.New("the databases of browsers cannot be changed on Windows")
	}
	certutil, err := exec.LookPath("certutil")
	// Homebrew installs certutil, but may not have linked it.
	if err != nil && runtime.GOOS == "darwin" {
		prefix, _ := exec.Command("brew", "--prefix", "nss").Output()
		certutil, err = exec.LookPath(filepath.Join(strings.TrimSpace(string(prefix)), "bin/certutil"))
	}
	if err != nil {
		return nil, errors.New("certutil not found on PATH: install the package libnss3-tools (Debian, Ubuntu), " +
			"nss-tools (Fedora, Alpine), mozilla-nss-tools (openSUSE) or nss (Arch, Homebrew)")
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return nil, err
	}
	n := &nss{certutil: certutil}
	n.find(home)
	return n, nil
}

// find looks for the databases below home.
func (n *nss) find(home string) {
	for _, profiles := range []string{
		".mozilla/firefox/*", ".config/mozilla/firefox/*", "snap/firefox/common/.mozilla/firefox/*",
		".var/app/org.mozilla.firefox/.mozilla/firefox/*", ".var/app/org.mozilla.firefox/config/mozilla/firefox/*",
		// The last directory is that of macOS.
		"Library/Application Support/Firefox/Profiles/*",
	} {
		n.dirs = append(n.dirs, databases(filepath.Join(home, profiles))...)
	}
	// On macOS, Chromium uses the system's store.
	if runtime.GOOS == "darwin" {
		return
	}
	data := cmp.Or(os.Getenv("XDG_DATA_HOME"), filepath.Join(home, ".local/share"))
	n.findChromium(filepath.Join(home, ".pki"), filepath.Join(data, "pki"))
	for _, snap := range directories(filepath.Join(home, "snap/chromium/current")) {
		n.findChromium(filepath.Join(snap, ".pki"), filepath.Join(snap, ".local/share/pki"))
	}
	// Flatpaks without a directory of their own read the one in home.
	for _, private := range directories(filepath.Join(home, ".var/app/*/.pki")) {
		n.findChromium(private, filepath.Join(filepath.Dir(private), "data/pki"))
	}
}

// findChromium adds the databases in old and recent. From version 146 on, Chromium reads the one in recent if old does not exist. A
// new one is made in old, where each version reads it.
func (n *nss) findChromium(old, recent string) {
	found := append(databases(filepath.Join(old, "nssdb")), databases(filepath.Join(recent, "nssdb"))...)
	n.dirs = append(n.dirs, found...)
	if len(found) == 0 {
		n.missing = append(n.missing, filepath.Join(old, "nssdb"))
	}
}

// databases returns the directories of a pattern that contain a database.
func databases(pattern string) (dirs []string) {
	return slices.DeleteFunc(directories(pattern), func(dir string) bool {
		_, err := os.Stat(filepath.Join(dir, "cert9.db"))
		return err != nil
	})
}

// directories returns the directories of a pattern.
func directories(pattern string) []string {
	// Glob fails only for an invalid pattern.
	found, _ := filepath.Glob(pattern)
	return slices.DeleteFunc(found, func(name string) bool {
		info, err := os.Stat(name)
		return err != nil || !info.IsDir()
	})
}

// installInBrowsers adds c to the databases of Firefox and Chromium. It makes those that are missing, unless root runs it by sudo:
// the user's browser could not write to them.
func installInBrowsers(c *x509.Certificate) (cli.Diagnosis, error) {
	n, err := openNSS()
	if err != nil {
		return cli.Diagnosis{}, err
	}
	dirs := n.dirs
	if os.Getenv("SUDO_USER") == "" {
		dirs = append(dirs, n.missing...)
	}
	if len(dirs) == 0 {
		return cli.Diagnosis{}, errNoProfile
	}
	var changed []string
	for _, dir := range dirs {
		as := dir
		if slices.Contains(n.missing, dir) {
			if err := n.create(dir); err != nil {
				return cli.Diagnosis{}, err
			}
			as += " (new)"
		}
		// The command succeeds if the CA is there and trusted.
		if n.run(nil, dir, "-V", "-u", "L", "-n", storeName(c)) == nil {
			continue
		}
		if err := n.run(c.Raw, dir, "-A", "-t", "C,,", "-n", storeName(c)); err != nil {
			return cli.Diagnosis{}, err
		}
		changed = append(changed, as)
	}
	if changed == nil {
		return cli.OK("is already installed"), nil
	}
	return cli.OK("is installed, in %s", strings.Join(changed, ", ")), nil
}

// create makes an empty database without a password.
func (n *nss) create(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	return n.run(nil, dir, "-N", "--empty-password")
}

// uninstallFromBrowsers removes c from the databases of Firefox and Chromium that have it.
func uninstallFromBrowsers(c *x509.Certificate) (cli.Diagnosis, error) {
	n, err := openNSS()
	if err != nil {
		return cli.Diagnosis{}, err
	}
	var changed []string
	for _, dir := range n.dirs {
		if n.run(nil, dir, "-L", "-n", storeName(c)) != nil {
			continue
		}
		if err := n.run(nil, dir, "-D", "-n", storeName(c)); err != nil {
			return cli.Diagnosis{}, err
		}
		changed = append(changed, dir)
	}
	if changed == nil {
		return cli.OK("was not installed"), nil
	}
	return cli.OK("is uninstalled, from %s", strings.Join(changed, ", ")), nil
}

// run runs certutil on a database.
func (n *nss) run(stdin []byte, dir string, args ...string) error {
	cmd := exec.Command(n.certutil, append(args, "-d", "sql:"+dir)...)
	cmd.Stdin = bytes.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return commandFailed(cmd, err, out)
	}
	return nil
}
