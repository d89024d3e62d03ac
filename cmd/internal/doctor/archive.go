package doctor

import (
	"context"
	"errors"
	"io/fs"
	"os"

	"robotsproxy/cmd/internal/cli"
	"robotsproxy/proxy/archive"
)

// checkArchive checks whether what is fetched can be archived, and how much space is left.
func checkArchive(_ context.Context, d *doctor) cli.Diagnosis {
	dir := d.cfg.Archive.Dir
	switch _, err := os.Stat(dir); {
	case d.remote:
		return cli.Skip("%s", elsewhere)
	case dir == "":
		return cli.Skip("is off (archive.dir)")
	case errors.Is(err, fs.ErrNotExist):
		return cli.Skip("does not exist yet")
	}
	if err := checkWritable(dir); err != nil {
		return cli.Fail(writeHint(err, "make the directory writable for the user that runs the proxy"), "%v", err)
	}
	space, err := archive.Measure(dir, int64(d.cfg.Archive.MaxFile))
	if err != nil {
		return cli.Warn("check the disk", "the free space is unknown: %v", err)
	}
	hint := "free space on the disk, move archive.dir to a larger one, or let the proxy delete files sooner (archive.max_age, archive.max_total_size)"
	switch warning := space.Warning(); {
	case space.Free < minFree:
		return cli.Fail(hint, "%s: the disk is full, %s free", dir, formatSize(space.Free))
	case warning != "":
		return cli.Warn(hint, "%s: %s", dir, warning)
	}
	return cli.OK("%s, %d files, %s, %s free", dir, space.Files, formatSize(space.Bytes), formatSize(space.Free))
}
