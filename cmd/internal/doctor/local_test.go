package doctor

import (
	"io/fs"
	"strings"
	"syscall"
	"testing"
)

// TestWriteHint: on a full disk, another owner of the directory does not help.
func TestWriteHint(t *testing.T) {
	for err, want := range map[syscall.Errno]string{syscall.ENOSPC: "free space on the disk", syscall.EDQUOT: "free space on the disk", syscall.EACCES: "chown"} {
		if got := writeHint(&fs.PathError{Op: "open", Err: err}, "chown it"); !strings.HasPrefix(got, want) {
			t.Errorf("%v: %q, want %q", err, got, want)
		}
	}
}
