package runner

import (
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"robotsproxy/cmd/internal/castore"
	"robotsproxy/cmd/internal/cli"
	"robotsproxy/cmd/internal/config"
	"robotsproxy/cmd/internal/confine"
	"robotsproxy/cmd/internal/daemon"
	"robotsproxy/proxy/mitm"
)

//go:embed preload.cjs
var nodePreload []byte

// newRunDir makes the directory state/runs/TIME-PID for one run, and locks it until lock is closed.
func newRunDir(state string, now time.Time, pid int) (dir string, lock *os.File, err error) {
	runs := filepath.Join(state, cli.RunsName)
	if err := os.MkdirAll(runs, 0o700); err != nil {
		return "", nil, fmt.Errorf("run directory: %w", err)
	}
	name := fmt.Sprintf("%s-%d", now.UTC().Format("20060102T150405Z"), pid)
	dir = filepath.Join(runs, name)
	lock, err = makeLocked(dir)
	// Containers that share a state directory may share a process id too.
	for n := 2; errors.Is(err, fs.ErrExist) && n < 1000; n++ {
		dir = filepath.Join(runs, fmt.Sprintf("%s.%d", name, n))
		lock, err = makeLocked(dir)
	}
	if err != nil {
		return "", nil, fmt.Errorf("run directory: %w", err)
	}
	return dir, lock, nil
}

// descriptionName is the name of the description within the directory of a run.
const descriptionName = "run.yaml"

// filesIn returns the files of a run in a directory.
func filesIn(dir string) runFiles {
	return runFiles{
		bundle:      filepath.Join(dir, "ca-bundle.pem"),
		wgetrc:      filepath.Join(dir, "wgetrc"),
		phpDir:      filepath.Join(dir, "php"),
		java:        filepath.Join(dir, "ca-bundle.p12"),
		preload:     filepath.Join(dir, "preload.cjs"),
		description: filepath.Join(dir, descriptionName),
	}
}

// writeRunFiles writes into dir the files that the child's variables name, but for the description.
// The child sees them in seen. caPEM is the proxy's CA, proxy its host:port. It returns what the
// child trusts.
func writeRunFiles(dir, seen, proxy string, caPEM []byte, getenv func(string) string) (t confine.Trust, err error) {
	system, err := castore.SystemRoots(getenv)
	if err != nil {
		return t, err
	}
	ca := castore.Certificates(caPEM)
	roots := castore.Merge(system, ca)
	t.Bundle, t.CA = mitm.EncodeCertificates(roots), ca[0].Raw
	store, noStore := castore.EncodeJavaStore(roots)
	java, noDefault := castore.EncodeDefaultJavaStore(roots)
	if err := errors.Join(noStore, noDefault); err != nil {
		return t, fmt.Errorf("trust store for Java: %w", err)
	}
	t.Java = java
	f, child := filesIn(dir), filesIn(seen)
	if err := os.Mkdir(f.phpDir, 0o700); err != nil {
		return t, err
	}
	for _, file := range []struct {
		name string
		text []byte
	}{
		{f.bundle, t.Bundle},
		{f.java, store},
		{f.wgetrc, wgetrc(usersWgetrc(getenv), proxy, child.bundle)},
		{filepath.Join(f.phpDir, "robotsproxy.ini"), fmt.Appendf(nil, phpINI, child.bundle)},
		{f.preload, nodePreload},
	} {
		if err := os.WriteFile(file.name, file.text, 0o600); err != nil {
			return t, err
		}
	}
	return t, nil
}

// remove deletes the files.
func (f runFiles) remove() {
	for _, name := range []string{f.bundle, f.wgetrc, f.phpDir, f.java, f.preload, f.description} {
		// What cannot be removed does no harm.
		os.RemoveAll(name)
	}
}

// wgetrc returns the user's file followed by our lines: the later line wins, so no line of the
// user's bypasses the proxy.
func wgetrc(users []byte, proxy, bundle string) []byte {
	const own = "\nuse_proxy = on\nhttp_proxy = http://%[1]s\nhttps_proxy = http://%[1]s\nno_proxy =\nca_certificate = %[2]s\n"
	return fmt.Appendf(slices.Clip(users), own, proxy, bundle)
}

// maxWgetrc is how many bytes of the user's file are read.
const maxWgetrc = 1 << 20

// usersWgetrc returns the file that wget would read; nil if there is none.
func usersWgetrc(getenv func(string) string) []byte {
	file := getenv("WGETRC")
	if file == "" {
		home := getenv("HOME")
		if home == "" {
			return nil
		}
		file = filepath.Join(home, ".wgetrc")
	}
	// The text is nil if there is no file.
	text, _ := cli.ReadFile(file, maxWgetrc)
	return text
}

// phpINI is the file for PHP. The path is in single quotes, within which PHP does not interpret it.
const phpINI = "curl.cainfo = '%[1]s'\nopenssl.cafile = '%[1]s'\n"

// writeDescription writes into file the part of the configuration of d that doctor needs: where it listens, and where its
// state, audit and CA are. It has no secrets. The run of d has the directory dir.
func writeDescription(file, dir string, d *daemon.Daemon) error {
	cfg, c := d.Active.Load().Cfg, config.Default()
	c.Listen, c.Admin.Listen = d.Addr(), ""
	// newRunDir made dir as STATE/runs/NAME.
	c.StateDir = filepath.Dir(filepath.Dir(dir))
	c.Audit.File = cfg.Audit.File
	c.TLS = cfg.TLS
	return os.WriteFile(file, c.Marshal(), 0o600)
}

// EnclosingRun returns the description of the run that this process is part of; ok is false if
// there is none or it has ended.
func EnclosingRun(getenv func(string) string) (c config.Config, file string, ok bool) {
	dir := getenv(runDirVariable)
	if dir == "" {
		return c, "", false
	}
	file = filepath.Join(dir, descriptionName)
	c, err := config.Load(file)
	return c, file, err == nil
}
