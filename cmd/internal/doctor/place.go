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

	"golang.org/x/sys/unix"

	"robotsproxy/cmd/internal/castore"
	"robotsproxy/cmd/internal/cli"
	"robotsproxy/cmd/internal/daemon"
	"robotsproxy/policy/audit/snapshot"
	"robotsproxy/policy/audit/trail"
	"robotsproxy/proxy/mitm"
)

const (
	// soonOver is how long before its end a CA is warned of: time to hand a new one out.
	soonOver = 30 * 24 * time.Hour

	// leastFree is how much the disk must have: below it, records are about to be refused.
	leastFree = 1 << 20

	// slack is how far two clocks may be apart.
	slack = time.Minute

	lastRecords = 256 << 10 // octets at the end of the audit that its newest line is looked for in
)

const elsewhere = "is on the machine where the proxy of --proxy runs"

func (d *doctor) checkConfig() cli.Diagnosis {
	if d.invalid != nil {
		return cli.Fail("put it right; the rest is looked at once it can be read", "%v", d.invalid)
	}
	if d.within {
		return cli.Fine("of the robotsproxy run that this is in; --proxy looks at another")
	}
	if err := errors.Join(d.cfg.Check(), daemon.CheckFiles(d.cfg)); err != nil {
		return cli.Fail("put it right: the proxy would not start, or refuse everybody", "%v", err)
	}
	return cli.Fine("%s", cmp.Or(d.flags.File, "the defaults"))
}

// checkState looks at the state directory, which the proxy would make itself.
func (d *doctor) checkState(context.Context) cli.Diagnosis {
	if d.apart {
		return cli.Skip("%s", elsewhere)
	}
	dir, err := d.cfg.State(d.getenv)
	if err != nil {
		return cli.Fail("set HOME, or name a directory with --state", "%v", err)
	}
	info, err := os.Stat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return cli.Warn("nothing, if the proxy has not run yet: it makes the directory. Else name the right one with -c or --state", "%s is not there", dir)
	case err != nil:
		return cli.Fail("run doctor as the user that runs the proxy", "%v", err)
	case !info.IsDir():
		return cli.Fail("name another with --state or state_dir", "%s is not a directory", dir)
	case info.Mode().Perm()&0o022 != 0:
		return cli.Fail("chmod 700 "+cli.ShellQuote(dir), "others may write to %s (mode %04o), and so replace the CA in it", dir, info.Mode().Perm())
	}
	if err := probe(dir); err != nil {
		return cli.Fail("run doctor as the user that runs the proxy, or make the directory that user's", "%v", err)
	}
	if info.Mode().Perm()&0o077 != 0 {
		return cli.Warn("chmod 700 "+cli.ShellQuote(dir), "others may look into %s (mode %04o)", dir, info.Mode().Perm())
	}
	return cli.Fine("%s, writable, and open to its owner alone", dir)
}

// probe says whether a file can be written in dir.
func probe(dir string) error {
	f, err := os.CreateTemp(dir, ".doctor-*")
	if err != nil {
		return err
	}
	_, err = f.WriteString("probe\n")
	return errors.Join(err, f.Close(), os.Remove(f.Name()))
}

// auditFile is where the audit of a serve is, "" where it is no file: a pipe would
// be waited for.
func (d *doctor) auditFile() string {
	file := d.cfg.Audit.File
	if file == "" {
		state, err := d.cfg.State(d.getenv)
		if err != nil {
			return ""
		}
		file = filepath.Join(state, cli.AuditName)
	}
	if info, err := os.Stat(file); file == "-" || err == nil && !info.Mode().IsRegular() {
		return ""
	}
	return file
}

// checkAudit looks whether records can be written, now and for a while.
func (d *doctor) checkAudit(context.Context) cli.Diagnosis {
	file := d.auditFile()
	switch {
	case d.apart:
		return cli.Skip("%s", elsewhere)
	case file == "":
		return cli.Skip("goes to no file")
	}
	dir := filepath.Dir(file)
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return cli.Skip("nothing is recorded yet")
	}
	if err := probe(dir); err != nil {
		return cli.Fail("make the directory writable for the user that runs the proxy", "%v", err)
	}
	if f, err := os.OpenFile(file, os.O_WRONLY|os.O_APPEND, 0); err == nil {
		f.Close()
	} else if !errors.Is(err, fs.ErrNotExist) {
		return cli.Fail("make the file writable for the user that runs the proxy", "%v", err)
	}
	var disk unix.Statfs_t
	if err := unix.Statfs(dir, &disk); err != nil {
		return cli.Warn("look at the disk", "how much is free cannot be told: %v", err)
	}
	free, most := int64(disk.Bavail)*int64(disk.Bsize), int64(d.cfg.Audit.MaxSize)
	mend := "make room, or lower audit.max_size and audit.max_files"
	switch {
	case free < leastFree:
		return cli.Fail(mend, "%s: the disk is full: %s free", file, inMiB(free))
	case free < 2*most: // a file is compressed beside the one that is written to
		return cli.Warn(mend, "%s: %s free, and the audit's files may have %s", file, inMiB(free), inMiB(most))
	}
	if used, most := d.snapshots(), int64(d.cfg.Audit.SnapshotMaxSize); used > most/10*9 {
		return cli.Warn("raise audit.snapshot_max_size, or look in the audit which client asks for so many hosts",
			"the kept robots.txt files take %s of %s: hosts that need another may be refused", inMiB(used), inMiB(most))
	}
	return cli.Fine("%s, %s free", file, inMiB(free))
}

// snapshots gives how many bytes the kept robots.txt files take on the disk, as far as they can be read.
func (d *doctor) snapshots() int64 {
	state, err := d.cfg.State(d.getenv)
	if err != nil {
		return 0
	}
	used, _ := snapshot.Size(filepath.Join(state, cli.SnapshotsName))
	return used
}

// inMiB is a size for people, in MiB or GiB.
func inMiB(octets int64) string {
	if octets >= 1<<30 {
		return fmt.Sprintf("%.1f GiB", float64(octets)/(1<<30))
	}
	return fmt.Sprintf("%d MiB", octets>>20)
}

// checkCA finds the certificate that clients have to trust, and whether it is any good.
func (d *doctor) checkCA(context.Context) cli.Diagnosis {
	if !d.cfg.TLS.Intercept && !d.apart {
		return cli.Skip("is not used: tls.intercept is false")
	}
	local := d.localCA()
	switch {
	case d.apart && d.served != nil && (d.ca == nil || !d.ca.Equal(d.served)):
		d.ca, d.authority, d.caFile = d.served, nil, d.page("/ca.pem")
		return d.validCA()
	case d.apart && d.ca == nil:
		return cli.Skip("the proxy does not show its own, and there is none here to compare with")
	case d.ca != nil && d.served != nil && !d.served.Equal(d.ca):
		return cli.Fail("have the proxy take the new one: kill -HUP, or start it again; or name its own configuration or state with -c or --state",
			"the running proxy has another than %s: %s", d.caFile, castore.Fingerprint(d.served.Raw))
	}
	return local
}

// localCA loads the pair of this machine, and makes none. It says how that is.
func (d *doctor) localCA() cli.Diagnosis {
	cert, key := d.cfg.TLS.CACert, d.cfg.TLS.CAKey
	load := func() (*mitm.Authority, error) { return mitm.Load(cert, key) }
	if cert == "" {
		state, err := d.cfg.State(d.getenv)
		if err != nil {
			return cli.Fail("set HOME, or name a directory with --state", "%v", err)
		}
		cert, key = filepath.Join(state, "ca.pem"), filepath.Join(state, "ca.key")
		load = func() (*mitm.Authority, error) { return mitm.LoadOrCreate(state) }
	}
	d.caFile = cert
	if abs, err := filepath.Abs(cert); err == nil {
		d.caFile = abs
	}
	_, noCert := os.Stat(cert)
	_, noKey := os.Stat(key)
	if errors.Is(noCert, fs.ErrNotExist) && errors.Is(noKey, fs.ErrNotExist) && d.cfg.TLS.CACert == "" {
		return cli.Warn("the proxy makes one when it first runs, and so does\nrobotsproxy ca path"+d.flags.Again(), "there is none yet")
	}
	var err error
	if d.authority, err = load(); err != nil {
		return cli.Fail(d.mendCA(cert), "%v", err)
	}
	d.ca = d.authority.Certificate()
	return d.validCA()
}

// mendCA is what to do about a CA that cannot be loaded.
func (d *doctor) mendCA(file string) string {
	if text, err := castore.ReadRoots(file); err == nil && d.cfg.TLS.CACert == "" {
		if certs := castore.Certificates(text); len(certs) > 0 && d.now().After(certs[0].NotAfter) {
			return d.rotateCA()
		}
	}
	return "see to the files; whether they are right is said by\nrobotsproxy ca show" + d.flags.Again()
}

// rotateCA makes a new one, and has this machine trust it.
func (d *doctor) rotateCA() string {
	again := d.flags.Again()
	return "robotsproxy ca rotate" + again + "\nrobotsproxy ca install" + again
}

// validCA says how long the CA is good for.
func (d *doctor) validCA() cli.Diagnosis {
	c := d.ca
	rotate := d.rotateCA() + "\nthe latter wherever the old one is trusted"
	if d.apart || d.cfg.TLS.CACert != "" {
		rotate = "have whoever keeps it make another"
	}
	is := fmt.Sprintf("%s, SHA-256 %s", d.caFile, castore.Fingerprint(c.Raw))
	end := c.NotAfter.UTC().Format(time.DateOnly)
	switch now := d.now(); {
	case now.After(c.NotAfter):
		return cli.Fail(rotate, "expired on %s: %s", end, is)
	case now.Before(c.NotBefore):
		return cli.Fail("set the clock", "is valid from %s only: %s", c.NotBefore.UTC().Format(time.DateTime), is)
	case c.NotAfter.Sub(now) < soonOver:
		return cli.Warn(rotate, "expires on %s: %s", end, is)
	}
	return cli.Fine("valid until %s, %s", end, is)
}

// checkClock compares the clock with what it cannot be before, and with the proxy's.
func (d *doctor) checkClock(context.Context) cli.Diagnosis {
	now := d.now()
	for _, past := range d.past() {
		if past.at.After(now.Add(slack)) {
			return cli.Fail("set the clock: certificates, robots.txt and the audit depend on it",
				"it is %s here, before %s (%s)", now.UTC().Format(time.DateTime), past.what, past.at.UTC().Format(time.DateTime))
		}
	}
	if d.date.IsZero() {
		return cli.Fine("%s; the proxy could not be asked for its own", now.UTC().Format(time.RFC3339))
	}
	apart := d.dated.Sub(d.date)
	if apart.Abs() > slack {
		return cli.Warn("set one of the two: certificates are judged by both", "is %s apart from the proxy's", apart.Abs().Round(time.Second))
	}
	return cli.Fine("%s, as the proxy's", now.UTC().Format(time.RFC3339))
}

// A pastTime is one that the clock cannot be before.
type pastTime struct {
	what string
	at   time.Time
}

// past is the times that the clock cannot be before.
func (d *doctor) past() (all []pastTime) {
	info, _ := debug.ReadBuildInfo()
	if info != nil {
		for _, s := range info.Settings {
			if at, err := time.Parse(time.RFC3339, s.Value); s.Key == "vcs.time" && err == nil {
				all = append(all, pastTime{"this program was written", at})
			}
		}
	}
	if d.ca != nil {
		all = append(all, pastTime{"the CA was made", d.ca.NotBefore})
	}
	if d.apart {
		return all
	}
	if at := lastRecord(d.auditFile()); !at.IsZero() {
		all = append(all, pastTime{"the newest record of the audit", at})
	}
	if state, err := d.cfg.State(d.getenv); err == nil {
		if info, err := os.Stat(filepath.Join(state, daemon.StateFile)); err == nil {
			all = append(all, pastTime{"the state was last written", info.ModTime()})
		}
	}
	return all
}

// lastRecord is the time of the newest record of an audit; zero where there is none
// that can be read.
func lastRecord(file string) (at time.Time) {
	if file == "" {
		return at
	}
	r, _, err := trail.OpenLast(file, lastRecords)
	if err != nil {
		return at
	}
	defer r.Close()
	for {
		line, err := r.Next()
		if err != nil { // the end, or what cannot be read: audit verify tells them apart
			return at
		}
		if e, err := trail.Read(line.Text); err == nil {
			at = e.Time
		}
	}
}
