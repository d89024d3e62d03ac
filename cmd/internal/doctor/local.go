package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"time"

	"robotsproxy/cmd/internal/castore"
	"robotsproxy/cmd/internal/cli"
	"robotsproxy/cmd/internal/config"
	"robotsproxy/cmd/internal/daemon"
	"robotsproxy/policy/audit"
	"robotsproxy/policy/audit/snapshot"
	"robotsproxy/policy/audit/trail"
	"robotsproxy/policy/osfile"
	"robotsproxy/proxy/archive"
	"robotsproxy/proxy/guide"
	"robotsproxy/proxy/mitm"
)

const (
	// expiryWarning is how long before its expiry a CA is warned of: time to distribute a new one.
	expiryWarning = 30 * 24 * time.Hour

	// minFree is the free space in bytes below which the audit will soon refuse records.
	minFree = 1 << 20

	// maxClockSkew is the accepted difference between two clocks.
	maxClockSkew = time.Minute

	// lastRecordBytes is how many bytes at the end of the audit are searched for its newest line.
	lastRecordBytes = 256 << 10
)

// checkConfig checks the configuration and the files that it names.
func checkConfig(d *doctor) cli.Diagnosis {
	if d.configErr != nil {
		return cli.Fail("correct the configuration; doctor checks the rest once it can read it", "%v", d.configErr)
	}
	if d.insideRun {
		return cli.OK("that of the robotsproxy run that started this command; use --proxy to check another proxy")
	}
	if err := errors.Join(d.cfg.Check(), daemon.CheckFiles(d.cfg)); err != nil {
		return cli.Fail("correct the configuration: with it the proxy would not start, or would refuse every request", "%v", err)
	}
	return cli.OK("%s", cmp.Or(d.flags.File, "the defaults"))
}

// checkState checks the state directory.
func checkState(_ context.Context, d *doctor) cli.Diagnosis {
	dir, err := d.cfg.State(d.getenv)
	if err != nil {
		return cli.Fail("set HOME, or name the directory with --state", "%v", err)
	}
	info, err := os.Stat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return cli.Warn("if the proxy has never run, do nothing: it creates the directory. "+
			"Otherwise name the right directory with -c or --state", "%s does not exist", dir)
	case err != nil:
		return cli.Fail("run doctor as the user that runs the proxy", "%v", err)
	case !info.IsDir():
		return cli.Fail("name a directory with --state or state_dir", "%s is not a directory", dir)
	case osfile.Perm(info)&0o022 != 0:
		return cli.Fail("chmod 700 "+cli.ShellQuote(dir),
			"other users may write to %s (mode %04o), and could replace the CA in it", dir, osfile.Perm(info))
	}
	if err := checkWritable(dir); err != nil {
		const other = "run doctor as the user that runs the proxy, or make that user the owner of the directory"
		return cli.Fail(writeHint(err, other), "%v", err)
	}
	if osfile.Perm(info)&0o077 != 0 {
		return cli.Warn("chmod 700 "+cli.ShellQuote(dir), "other users may read %s (mode %04o)", dir, osfile.Perm(info))
	}
	if !osfile.HasModes {
		return cli.OK("%s, writable; doctor does not check who else may access it on this system", dir)
	}
	return cli.OK("%s, writable, and accessible only to its owner", dir)
}

// checkWritable reports why no file can be written in dir.
func checkWritable(dir string) error {
	f, err := os.CreateTemp(dir, ".doctor-*")
	if err != nil {
		return err
	}
	_, err = f.WriteString("probe\n")
	return errors.Join(err, f.Close(), os.Remove(f.Name()))
}

// writeHint returns what helps against an error of checkWritable: otherwise, unless the disk is full.
func writeHint(err error, otherwise string) string {
	if osfile.IsFull(err) {
		return "free space on the disk"
	}
	return otherwise
}

// unwritable returns why the proxy cannot write files in dir; nil if it can.
func unwritable(dir string) *cli.Diagnosis {
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return new(cli.Skip("does not exist yet"))
	}
	if err := checkWritable(dir); err != nil {
		return new(cli.Fail(writeHint(err, "make the directory writable for the user that runs the proxy"), "%v", err))
	}
	return nil
}

// auditFile returns the audit file of the daemon, "" if the audit is no regular file: opening a pipe would block.
func auditFile(d *doctor) string {
	file := cmp.Or(d.cfg.Audit.File, d.inState(cli.AuditName))
	if info, err := os.Stat(file); file == "-" || err == nil && !info.Mode().IsRegular() {
		return ""
	}
	return file
}

// checkAudit checks whether records can be written and how much space is left.
func checkAudit(_ context.Context, d *doctor) cli.Diagnosis {
	file := auditFile(d)
	if file == "" {
		return cli.Skip("is not written to a file")
	}
	if found := unwritable(filepath.Dir(file)); found != nil {
		return *found
	}
	if f, err := os.OpenFile(file, os.O_WRONLY|os.O_APPEND, 0); err == nil {
		f.Close()
	} else if !errors.Is(err, fs.ErrNotExist) {
		return cli.Fail("make the file writable for the user that runs the proxy", "%v", err)
	}
	if found := comparedAudit(d, file); found != nil {
		return *found
	}
	space, err := auditSpace(d.cfg.Audit, file)
	const hint = "free space on the disk, move audit.file to a larger one, " +
		"or let the proxy delete records sooner (audit.max_age, audit.max_total_size, audit.max_files)"
	if found := lowSpace(file, space, err, hint); found != nil {
		return *found
	}
	var used int64
	if dir := d.inState(cli.SnapshotsName); dir != "" {
		// Files that cannot be read count as none.
		used, _ = snapshot.Size(dir)
	}
	if most := int64(d.cfg.Audit.SnapshotMaxSize); used > most/10*9 {
		return cli.Warn("raise audit.snapshot_max_size, or find out with robotsproxy audit report which client requests so many hosts",
			"the kept robots.txt files take %s of %s: the proxy may soon refuse new hosts", formatSize(used), formatSize(most))
	}
	oldest := ""
	if !space.Oldest.IsZero() {
		oldest = ", records since " + space.Oldest.UTC().Format(time.DateTime) + " UTC"
	}
	return cli.OK("%s, %s free%s", file, formatSize(space.Free), oldest)
}

// lowSpace returns what is wrong with the free space for a file or directory; nil if there is enough. err says why it is unknown.
func lowSpace(name string, space audit.Space, err error, hint string) *cli.Diagnosis {
	switch warning := space.Warning(); {
	case err != nil:
		return new(cli.Warn("check the disk", "the free space is unknown: %v", err))
	case space.Free < minFree:
		return new(cli.Fail(hint, "%s: the disk is full, %s free", name, formatSize(space.Free)))
	case warning != "":
		return new(cli.Warn(hint, "%s: %s", name, warning))
	}
	return nil
}

// comparedAudit returns what is wrong with the end of the audit; nil if it is as a stopped proxy left it.
func comparedAudit(d *doctor, file string) *cli.Diagnosis {
	state := d.inState("")
	if state == "" {
		return nil
	}
	differs, err := daemon.CompareAuditEnd(state, file)
	switch {
	case err != nil:
		return new(cli.Warn("check the files with\nrobotsproxy audit verify"+d.flags.Args(), "%v", err))
	case differs != "":
		return new(cli.Warn("find out who changed the files: the proxy records the difference when it starts", "%s: %s", file, differs))
	}
	return nil
}

// auditSpace returns the Space of the audit as a proxy that starts now would calculate it.
func auditSpace(cfg config.Audit, file string) (audit.Space, error) {
	o := audit.Options{MaxSize: int64(cfg.MaxSize), MaxAge: cfg.MaxAge, MaxTotal: int64(cfg.MaxTotalSize), MaxFiles: cfg.MaxFiles}
	if cfg.MaxTotalSize == config.Auto {
		var err error
		if o.MaxTotal, err = audit.AutoTotal(file); err != nil {
			return audit.Space{}, err
		}
	}
	return audit.MeasureSpace(file, o, time.Now())
}

// checkArchive checks whether what is fetched can be archived, and how much space is left.
func checkArchive(_ context.Context, d *doctor) cli.Diagnosis {
	dir := d.cfg.Archive.Dir
	if dir == "" {
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

// formatSize returns a size in MiB or GiB.
func formatSize(n int64) string {
	if n >= 1<<30 {
		return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
	}
	return fmt.Sprintf("%d MiB", n>>20)
}

// checkCA finds the CA that clients have to trust and checks it.
func checkCA(_ context.Context, d *doctor) cli.Diagnosis {
	if !d.cfg.TLS.Intercept && !d.remote {
		return cli.Skip("not used: tls.intercept is false")
	}
	local := localCA(d)
	switch {
	case d.remote && d.servedCA != nil && (d.ca == nil || !d.ca.Equal(d.servedCA)):
		d.ca, d.authority, d.caFile = d.servedCA, nil, d.page("/ca.pem")
		return validCA(d)
	case d.remote && d.ca == nil:
		return cli.Skip("the proxy does not show its CA, and there is none on this machine to compare with")
	case d.ca != nil && d.servedCA != nil && !d.servedCA.Equal(d.ca):
		return cli.Fail("reload the proxy (kill -HUP) or restart it, so that it uses this CA; "+
			"or name its configuration or state directory with -c or --state",
			"the running proxy uses another CA than %s: %s", d.caFile, guide.Fingerprint(d.servedCA.Raw))
	}
	return local
}

// localCA loads the CA of this machine, without making one, and checks it.
func localCA(d *doctor) cli.Diagnosis {
	cert, key := d.cfg.TLS.CACert, d.cfg.TLS.CAKey
	load := func() (*mitm.Authority, error) { return mitm.Load(cert, key) }
	if cert == "" {
		state, err := d.cfg.State(d.getenv)
		if err != nil {
			return cli.Fail("set HOME, or name the directory with --state", "%v", err)
		}
		cert, key = filepath.Join(state, "ca.pem"), filepath.Join(state, "ca.key")
		load = func() (*mitm.Authority, error) { return mitm.LoadOrCreate(state) }
	}
	d.caFile = cert
	_, noCert := os.Stat(cert)
	_, noKey := os.Stat(key)
	if errors.Is(noCert, fs.ErrNotExist) && errors.Is(noKey, fs.ErrNotExist) && d.cfg.TLS.CACert == "" {
		return cli.Warn("the proxy creates one when it starts for the first time, and so does\nrobotsproxy ca path"+d.flags.Args(),
			"does not exist yet")
	}
	var err error
	if d.authority, err = load(); err != nil {
		return cli.Fail(caHint(d, cert), "%v", err)
	}
	d.ca = d.authority.Certificate()
	return validCA(d)
}

// caHint returns what to do about a CA that cannot be loaded.
func caHint(d *doctor, file string) string {
	if text, err := castore.ReadRoots(file); err == nil && d.cfg.TLS.CACert == "" {
		if certs := castore.Certificates(text); len(certs) > 0 && d.now().After(certs[0].NotAfter) {
			return rotateHint(d)
		}
	}
	return "correct the files, then check them with\nrobotsproxy ca show" + d.flags.Args()
}

// rotateHint returns the commands that replace the CA and install the new one.
func rotateHint(d *doctor) string {
	again := d.flags.Args()
	return "robotsproxy ca rotate" + again + "\nrobotsproxy ca install" + again
}

// validCA checks the validity period of the CA.
func validCA(d *doctor) cli.Diagnosis {
	c := d.ca
	rotate := rotateHint(d) + "\nRun the second command on each machine that trusts the old CA."
	if d.remote || d.cfg.TLS.CACert != "" {
		rotate = "ask the owner of the CA for a new one"
	}
	is := fmt.Sprintf("%s, SHA-256 %s", d.caFile, guide.Fingerprint(c.Raw))
	end := c.NotAfter.UTC().Format(time.DateOnly)
	switch now := d.now(); {
	case now.After(c.NotAfter):
		return cli.Fail(rotate, "expired on %s: %s", end, is)
	case now.Before(c.NotBefore):
		return cli.Fail("set the clock", "is not valid before %s: %s", c.NotBefore.UTC().Format(time.DateTime), is)
	case c.NotAfter.Sub(now) < expiryWarning:
		return cli.Warn(rotate, "expires on %s: %s", end, is)
	}
	return cli.OK("valid until %s, %s", end, is)
}

// checkClock compares the clock with times that are certainly past, and with the proxy's clock.
func checkClock(_ context.Context, d *doctor) cli.Diagnosis {
	now := d.now()
	for _, past := range earliestTimes(d) {
		if past.at.After(now.Add(maxClockSkew)) {
			return cli.Fail("set the clock: certificates, robots.txt and the audit depend on it",
				"this machine's time is %s, which is before %s (%s)",
				now.UTC().Format(time.DateTime), past.what, past.at.UTC().Format(time.DateTime))
		}
	}
	if d.proxyDate.IsZero() {
		return cli.OK("%s; the proxy's time is unknown", now.UTC().Format(time.RFC3339))
	}
	apart := d.proxyDateAt.Sub(d.proxyDate)
	if apart.Abs() > maxClockSkew {
		return cli.Warn("correct the clock that is wrong: both verify certificates",
			"differs by %s from the proxy's", apart.Abs().Round(time.Second))
	}
	return cli.OK("%s, the same as the proxy's", now.UTC().Format(time.RFC3339))
}

// An earliestTime is a time that is certainly past.
type earliestTime struct {
	what string
	at   time.Time
}

// earliestTimes returns known times that are certainly past.
func earliestTimes(d *doctor) (all []earliestTime) {
	info, _ := debug.ReadBuildInfo()
	if info != nil {
		for _, s := range info.Settings {
			if at, err := time.Parse(time.RFC3339, s.Value); s.Key == "vcs.time" && err == nil {
				all = append(all, earliestTime{"the time of this program's source", at})
			}
		}
	}
	if d.ca != nil {
		all = append(all, earliestTime{"the creation of the CA", d.ca.NotBefore})
	}
	if d.remote {
		return all
	}
	if at := lastRecord(auditFile(d)); !at.IsZero() {
		all = append(all, earliestTime{"the newest record of the audit", at})
	}
	if info, err := os.Stat(d.inState(daemon.StateFile)); err == nil {
		all = append(all, earliestTime{"the last write of the state", info.ModTime()})
	}
	return all
}

// lastRecord returns the time of the newest record of an audit file, zero if none can be read.
func lastRecord(file string) (at time.Time) {
	if file == "" {
		return at
	}
	r, _, err := trail.OpenLast(file, lastRecordBytes)
	if err != nil {
		return at
	}
	defer r.Close()
	for {
		line, err := r.Next()
		// This is the end, or an unreadable line, which audit verify reports.
		if err != nil {
			return at
		}
		if e, err := trail.Read(line.Text); err == nil {
			at = e.Time
		}
	}
}
