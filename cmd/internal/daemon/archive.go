package daemon

import (
	"cmp"

	"robotsproxy/cmd/internal/config"
	"robotsproxy/policy/audit"
	"robotsproxy/proxy/archive"
)

// archiveOptions returns how what was fetched is archived, without its Index. how is how it is recorded in the audit: what
// records leave out, the archive leaves out as well.
func (d *Daemon) archiveOptions(cfg config.Config, how *audit.Options) archive.Options {
	version, _ := buildInfo()
	c := cfg.Archive
	return archive.Options{
		Dir:         c.Dir,
		Software:    "robotsproxy/" + version,
		Prefix:      c.Prefix,
		MaxFile:     int64(c.MaxFile),
		MaxBody:     int64(c.MaxBody),
		Only2xx:     c.Include == "2xx",
		Compress:    c.Compress == "gzip",
		Dedup:       c.Dedup,
		MaxAge:      c.MaxAge,
		MaxTotal:    d.archiveTotal(c),
		Sync:        how.Sync,
		Continue:    c.OnError == "continue",
		KeepSecrets: c.Secrets == "keep",
		DropQuery:   how.DropQuery,
		Client:      how.Client,
		Log:         d.log,
	}
}

// archiveTotal returns the maximum size of the archive in bytes; zero: there is none.
func (d *Daemon) archiveTotal(c config.Archive) int64 {
	if c.MaxTotalSize != config.Auto || c.Dir == "" {
		return max(0, int64(c.MaxTotalSize))
	}
	if d.autoArchive == 0 {
		// After an error there is no limit but the free space.
		d.autoArchive, _ = archive.AutoTotal(c.Dir)
	}
	return d.autoArchive
}

// archiveStats returns the state of the archive; zero while nothing is archived.
func (d *Daemon) archiveStats() archive.Stats {
	if d.archive == nil {
		return archive.Stats{}
	}
	return d.archive.Stats()
}

// closeArchive completes the archive.
func (d *Daemon) closeArchive() (err error) {
	if d.archive != nil {
		err = d.archive.Close()
	}
	if d.payloads != nil {
		err = cmp.Or(err, d.payloads.Close())
	}
	return err
}
