package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
)

// Exists reports whether the file exists.
func Exists(file string) bool {
	_, err := os.Stat(file)
	return err == nil
}

// Put writes the file, or removes it if text is nil.
func Put(t *testing.T, file string, text []byte) {
	t.Helper()
	if text == nil {
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
		return
	}
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
}

// SmallDisk mounts a file system of a size such as "256k". It needs root.
func SmallDisk(t *testing.T, size string) string {
	t.Helper()
	dir := t.TempDir()
	MountSmallDisk(t, dir, size)
	return dir
}

// MountSmallDisk is SmallDisk in a directory.
func MountSmallDisk(t *testing.T, dir, size string) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("only root can mount a small disk")
	}
	if err := exec.Command("mount", "-t", "tmpfs", "-o", "mode=0700,size="+size, "none", dir).Run(); err != nil {
		t.Skipf("nothing can be mounted here: %v", err)
	}
	t.Cleanup(func() { exec.Command("umount", "-l", dir).Run() })
}

// Fill writes to the disk until it is full.
func Fill(t *testing.T, dir string) (ballast string) {
	t.Helper()
	ballast = filepath.Join(dir, "ballast")
	f, err := os.Create(ballast)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, size := range []int{64 << 10, 4 << 10, 1} {
		for {
			if _, err := f.Write(make([]byte, size)); err != nil {
				break
			}
		}
	}
	return ballast
}

// ReadText reads a whole file.
func ReadText(t testing.TB, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// DeployDir returns the directory of the deployment files.
func DeployDir() string { return filepath.Join(TreeRoot(), "docs/deploy") }

// Script returns the path of a script in testdata.
func Script(name string) string {
	return filepath.Join(TreeRoot(), "cmd/internal/e2e/testdata", name)
}

// Fence matches the code blocks of a guide that are files to write or commands to run.
var Fence = regexp.MustCompile("(?ms)^```[a-z]+ (file=|run)(\\S*)\n(.*?)^```$")
