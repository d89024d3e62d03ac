package doctor

import (
	"context"

	"robotsproxy/cmd/internal/cli"
	"robotsproxy/cmd/internal/config"
	"robotsproxy/policy/audit"
	"robotsproxy/proxy/archive"
)

// checkArchive checks whether what is fetched can be archived, and how much space is left.
func checkArchive(_ context.Context, d *doctor) cli.Diagnosis {
	dir := d.cfg.Archive.Dir
	switch {
	case d.remote:
		return cli.Skip("%s", elsewhere)
	case dir == "":
		return cli.Skip("is off (archive.dir)")
	}
	if found := unwritable(dir); found != nil {
		return *found
	}
	space, err := archiveSpace(d.cfg.Archive)
	const hint = "free space on the disk, move archive.dir to a larger one, " +
		"or let the proxy delete files sooner (archive.max_age, archive.max_total_size)"
	if found := lowSpace(dir, space, err, hint); found != nil {
		return *found
	}
	return cli.OK("%s, %s, %s free", dir, formatSize(space.Bytes), formatSize(space.Free))
}

// archiveSpace returns the Space of the archive as a proxy that starts now would calculate it.
func archiveSpace(cfg config.Archive) (audit.Space, error) {
	o := archive.Options{MaxFile: int64(cfg.MaxFile), MaxAge: cfg.MaxAge, MaxTotal: int64(cfg.MaxTotalSize)}
	if cfg.MaxTotalSize == config.Auto {
		var err error
		if o.MaxTotal, err = archive.AutoTotal(cfg.Dir); err != nil {
			return audit.Space{}, err
		}
	}
	return archive.Measure(cfg.Dir, o)
}
