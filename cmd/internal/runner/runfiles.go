package runner

import (
	_ "embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"robotsproxy/cmd/internal/castore"
)

//go:embed preload.cjs
var nodePreload []byte

// newRunDir makes state/runs/TIME-PID, the place of one run alone.
func newRunDir(state string, now time.Time, pid int) (string, error) {
	runs := filepath.Join(state, "runs")
	if err := os.MkdirAll(runs, 0o700); err != nil {
		return "", fmt.Errorf("run directory: %w", err)
	}
	name := fmt.Sprintf("%s-%d", now.UTC().Format("20060102T150405Z"), pid)
	dir := filepath.Join(runs, name)
	err := os.Mkdir(dir, 0o700)
	// Containers that share a state directory may share a process id too.
	for n := 2; errors.Is(err, fs.ErrExist) && n < 1000; n++ {
		dir = filepath.Join(runs, fmt.Sprintf("%s.%d", name, n))
		err = os.Mkdir(dir, 0o700)
	}
	if err != nil {
		return "", fmt.Errorf("run directory: %w", err)
	}
	return dir, nil
}

// writeRunFiles writes into dir what the child's variables point at. caPEM is
// the proxy's CA, proxy its host:port.
func writeRunFiles(dir, proxy string, caPEM []byte, getenv func(string) string) (runFiles, error) {
	f := runFiles{
		bundle:  filepath.Join(dir, "ca-bundle.pem"),
		wgetrc:  filepath.Join(dir, "wgetrc"),
		phpDir:  filepath.Join(dir, "php"),
		java:    filepath.Join(dir, "ca-bundle.p12"),
		preload: filepath.Join(dir, "preload.cjs"),
		about:   filepath.Join(dir, aboutName),
	}
	system, err := castore.SystemRoots(getenv)
	if err != nil {
		return f, err
	}
	roots := castore.Merge(system, castore.Certificates(caPEM))
	store, err := castore.JavaStore(roots)
	if err != nil {
		return f, fmt.Errorf("trust store for Java: %w", err)
	}
	if err := os.Mkdir(f.phpDir, 0o700); err != nil {
		return f, err
	}
	for _, file := range []struct {
		name string
		text []byte
	}{
		{f.bundle, castore.PemBundle(roots)},
		{f.java, store},
		{f.wgetrc, wgetrc(usersWgetrc(getenv), proxy, f.bundle)},
		{filepath.Join(f.phpDir, "robotsproxy.ini"), phpINI(f.bundle)},
		{f.preload, nodePreload},
	} {
		if err := os.WriteFile(file.name, file.text, 0o600); err != nil {
			return f, err
		}
	}
	return f, nil
}

// remove takes the files away: they are of no use once the proxy has ended.
func (f runFiles) remove() {
	for _, name := range []string{f.bundle, f.wgetrc, f.phpDir, f.java, f.preload, f.about} {
		os.RemoveAll(name) // best effort
	}
}

// wgetrc is the user's own file and then ours: the later line wins, so that no
// line of the user's leads past the proxy.
func wgetrc(users []byte, proxy, bundle string) []byte {
	own := fmt.Sprintf("\nuse_proxy = on\nhttp_proxy = http://%[1]s\nhttps_proxy = http://%[1]s\nno_proxy =\nca_certificate = %[2]s\n", proxy, bundle)
	return append(users[:len(users):len(users)], own...)
}

const maxWgetrc = 1 << 20 // octets of the user's own file

// usersWgetrc is what wget would read of the user's; nothing where there is none.
func usersWgetrc(getenv func(string) string) []byte {
	file := getenv("WGETRC")
	if file == "" {
		home := getenv("HOME")
		if home == "" {
			return nil
		}
		file = filepath.Join(home, ".wgetrc")
	}
	f, err := os.Open(file)
	if err != nil {
		return nil
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxWgetrc))
	if err != nil {
		return nil
	}
	return text
}

// phpINI has the path in single quotes: PHP takes it as it stands.
func phpINI(bundle string) []byte {
	return fmt.Appendf(nil, "curl.cainfo = '%[1]s'\nopenssl.cafile = '%[1]s'\n", bundle)
}
