package auditcmd

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"robotsproxy/cmd/internal/cli"
	"robotsproxy/cmd/internal/config"
	"robotsproxy/cmd/internal/daemon"
	"robotsproxy/cmd/internal/notary"
	"robotsproxy/policy"
	"robotsproxy/policy/audit"
	auditreport "robotsproxy/policy/audit/report"
	"robotsproxy/policy/audit/trail"
	"robotsproxy/policy/labels"
)

// stdinName is what standard input is called where a file is named.
const stdinName = "<stdin>"

// maxAudits is how many may be read at once: a line of each is held, and a MiB to read it.
const maxAudits = 100

// auditFiles are the file of an audit, and the files and directories that belong to it: its snapshots, and its checkpoints
// with the key that signs them and their time-stamps.
type auditFiles struct {
	file, snapshots, stamps, checkpoints, key string

	// anchors is the directory of time-stamps over anchors, which earlier versions got.
	anchors string

	// origin is that of the checkpoints of the configured audit; "": unknown.
	origin string

	// elsewhere are the files of audit.checkpoint.file and audit.anchor.file, if they are set.
	elsewhere []string

	// part reports that file is one of the closed files of an audit.
	part bool

	// run is the name of the run that wrote the audit, if it was found by this name or by a search.
	run string
}

// auditIn returns the audit in a directory, such as the state directory or that of a run.
func auditIn(dir string) auditFiles {
	return auditFiles{
		file:      filepath.Join(dir, cli.AuditName),
		snapshots: filepath.Join(dir, cli.SnapshotsName),
		stamps:    filepath.Join(dir, notary.StampsName),
		anchors:   filepath.Join(dir, notary.StampsName),
	}
}

// addCheckpoints adds the places of the checkpoints that the proxy of a configuration makes.
func (at *auditFiles) addCheckpoints(cfg config.Config, state string) {
	s := daemon.CheckpointSettings(cfg, state, at.run)
	at.origin = s.KnownOrigin()
	at.checkpoints, at.key, at.stamps = filepath.Join(state, notary.CheckpointsName), s.Keys.Path, filepath.Join(state, notary.StampsName)
	at.elsewhere = slices.DeleteFunc([]string{s.File, s.AnchorFile}, func(file string) bool { return file == "" })
}

// archiveDir returns the directory of the archive; "": there is none, or the audit is that of a run, which may have its own. flag is
// that of the command line.
func (at *auditFiles) archiveDir(flag string, cfg *config.Config) string {
	if at.run != "" {
		return flag
	}
	return cmp.Or(flag, cfg.Archive.Dir)
}

// auditFlags say which audits are meant.
type auditFlags struct {
	cli.ConfigFlags
	paths []string
	run   string

	// dirs are directories whose audits are further paths.
	dirs []string
}

func (f *auditFlags) add(cmd *cobra.Command) {
	f.ConfigFlags.Add(cmd)
	cmd.Flags().StringArrayVar(&f.paths, "file", nil, "audit `FILE`, in place of the configured one; repeat it for each replica of a fleet")
	cmd.Flags().StringArrayVar(&f.dirs, "audit-dir", nil, "the audit in `DIR`, as --file; repeat it for each replica of a fleet")
	cmd.Flags().StringVar(&f.run, "run", "", "use the audit of a run: last, or the `NAME` of its directory")
	cli.Offer(cmd, "run", "last")
	cmd.PreRunE = func(*cobra.Command, []string) error { return f.usage() }
}

// usage returns an error for flags that do not go together.
func (f *auditFlags) usage() error {
	if slices.Contains(f.dirs, "") {
		return cli.UsageErrorf("--audit-dir: must not be empty")
	}
	for _, dir := range f.dirs {
		f.paths = append(f.paths, filepath.Join(dir, cli.AuditName))
	}
	f.dirs = nil
	switch {
	case len(f.paths) > 0 && f.run != "":
		return cli.UsageErrorf("--file or --audit-dir, and --run exclude each other")
	case slices.Contains(f.paths, ""):
		return cli.UsageErrorf("--file: must not be empty")
	case len(f.paths) > 1 && slices.Contains(f.paths, "-"):
		return cli.UsageErrorf("--file -: standard input cannot be combined with other files")
	case len(f.paths) > maxAudits:
		return cli.UsageErrorf("--file: at most %[2]d audits can be read at once, got %[1]d", len(f.paths), maxAudits)
	}
	return NotEmpty(f.Flags, "run")
}

// anyFiles takes arguments as further values of --file, so that the shell can expand
// /audits/*/audit.jsonl.
func (f *auditFlags) anyFiles(cmd *cobra.Command) {
	cmd.Args = cobra.ArbitraryArgs
	cmd.PreRunE = func(_ *cobra.Command, args []string) error {
		f.paths = append(f.paths, args...)
		return f.usage()
	}
}

// audit returns the one audit that the flags name. It creates neither file nor directory. With
// errStdout it returns the directory of the snapshots as well.
func (f *auditFlags) audit() (auditFiles, error) {
	if len(f.paths) > 1 {
		return auditFiles{}, cli.UsageErrorf("--file: this command reads one audit only")
	}
	all, err := f.audits()
	if len(all) == 0 {
		return auditFiles{}, err
	}
	return all[0], err
}

// audits returns the audits that the flags name, as audit does for one.
func (f *auditFlags) audits() ([]auditFiles, error) {
	if slices.Contains(f.paths, "-") {
		return nil, cli.UsageErrorf("--file -: this command cannot read standard input")
	}
	for _, path := range f.paths {
		if IsDir(path) {
			return nil, fmt.Errorf("%s is a directory: use %s", path, filepath.Join(path, cli.AuditName))
		}
		if isBundle(path) {
			return nil, fmt.Errorf("%s is a bundle: only audit verify and audit report read bundles, and no audit beside them", path)
		}
	}
	cfg, err := f.Load()
	if err != nil {
		return nil, err
	}
	state, err := cfg.State(os.Getenv)
	if len(f.paths) > 0 {
		return auditsAt(f.paths, state, cfg), nil
	}
	home := state
	if err == nil && f.run != "" {
		home, err = runDir(state, f.run)
	}
	at := auditIn(home)
	if f.run != "" {
		at.run = filepath.Base(home)
	}
	at.addCheckpoints(cfg, state)
	switch {
	case err != nil:
		return nil, err
	case f.run != "":
		if elsewhere, err := os.Readlink(at.file); err == nil {
			// The run has written its audit elsewhere (run --audit).
			at.file = elsewhere
		}
	case cfg.Audit.File == "-":
		at.file = ""
		return []auditFiles{at}, errStdout
	case cfg.Audit.File != "":
		at.file = cfg.Audit.File
	}
	return []auditFiles{at}, nil
}

// auditsAt returns the audits with these names, each once. It leaves out a closed file of one of
// them, because it belongs to that audit. The snapshots are beside an audit or, if they are not
// there and home is not "", in home. The checkpoints and time-stamps in home are those of the configured
// audit; of another audit they are beside it.
func auditsAt(paths []string, home string, cfg config.Config) (all []auditFiles) {
	configured := cmp.Or(cfg.Audit.File, filepath.Join(home, cli.AuditName))
	aside := map[string]bool{}
	for _, path := range paths {
		files, err := trail.Segments(path)
		if err != nil {
			// Opening the audit returns the error.
			continue
		}
		for _, file := range files {
			name := daemon.AbsolutePath(file.Path)
			aside[name] = aside[name] || file.FirstSeq > 0
		}
	}
	seen := map[string]bool{}
	for _, path := range paths {
		name := daemon.AbsolutePath(path)
		if seen[name] || len(paths) > 1 && aside[name] {
			continue
		}
		seen[name] = true
		at := auditIn(filepath.Dir(path))
		at.file = path
		// The snapshots of a run, and those of an audit that was moved with them, are beside it.
		if home != "" && !IsDir(at.snapshots) {
			at.snapshots = filepath.Join(home, cli.SnapshotsName)
		}
		if home != "" && isSameFile(path, configured) {
			at.addCheckpoints(cfg, home)
			at.anchors = at.stamps
		} else {
			dir := filepath.Dir(path)
			at.checkpoints, at.key = filepath.Join(dir, notary.CheckpointsName), filepath.Join(dir, notary.KeyName)
			at.part = isClosed(path)
		}
		all = append(all, at)
	}
	return all
}

// isClosed reports whether a path is that of a closed file of an audit.
func isClosed(path string) bool {
	name := strings.TrimSuffix(path, trail.GzipPath(""))
	ext := filepath.Ext(name)
	active, number := strings.TrimSuffix(name, ext), ""
	if i := strings.LastIndexByte(active, '-'); i >= 0 {
		active, number = active[:i], active[i+1:]
	}
	first, err := strconv.ParseUint(number, 10, 64)
	return err == nil && first > 0 && trail.SegmentPath(active+ext, first) == name
}

// isSameFile reports whether two paths name one file, which need not exist.
func isSameFile(a, b string) bool {
	if daemon.AbsolutePath(a) == daemon.AbsolutePath(b) {
		return true
	}
	infoA, errA := os.Stat(a)
	infoB, errB := os.Stat(b)
	return errA == nil && errB == nil && os.SameFile(infoA, infoB)
}

func openAudit(path string) (*trail.Reader, error) {
	r, err := trail.Open(path)
	return r, noAudit(path, err)
}

// noAudit says which options choose another audit if err is that none is at path.
func noAudit(path string, err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w at %s: nothing has been recorded there yet; "+
			"choose the audit of the last run with --run last, or another one with -c, --state or --file", errNoAudit, path)
	}
	return err
}

// errNoAudit is the error of noAudit for a file that does not exist.
var errNoAudit = errors.New("no audit")

// openAll opens all audits that are meant. The caller closes them.
func (f *auditFlags) openAll(stdin io.Reader) (all []auditreport.Trail, err error) {
	if slices.Contains(f.paths, "-") {
		return []auditreport.Trail{{Lines: trail.NewReader(stdinName, stdin)}}, nil
	}
	audits, err := f.audits()
	if err != nil {
		return nil, err
	}
	names := shortNames(audits)
	for i, at := range audits {
		r, err := openAudit(at.file)
		if err != nil {
			closeAll(all)
			return nil, err
		}
		all = append(all, auditreport.Trail{Name: names[i], Lines: r})
	}
	return all, nil
}

func closeAll(trails []auditreport.Trail) {
	for _, t := range trails {
		t.Lines.Close()
	}
}

// shortNames tells audits apart by their paths without the directories that all have in common.
func shortNames(audits []auditFiles) (names []string) {
	var paths []string
	// dir ends with a slash.
	dir := ""
	for i, at := range audits {
		path := filepath.ToSlash(daemon.AbsolutePath(at.file))
		paths = append(paths, path)
		if i == 0 {
			dir = path[:strings.LastIndexByte(path, '/')+1]
		}
		for !strings.HasPrefix(path, dir) {
			dir = dir[:strings.LastIndexByte(dir[:len(dir)-1], '/')+1]
		}
	}
	for _, path := range paths {
		names = append(names, path[len(dir):])
	}
	return names
}

// clientName returns the name of a client in these audits. Under audit.clients: hash it is the
// hash of the name; the flag may give the name or the hash.
func (f *auditFlags) clientName(name string) (string, error) {
	cfg, err := f.Load()
	if err != nil || name == "" || cfg.Audit.Clients != "hash" || audit.IsPseudonym(name) {
		return name, err
	}
	audits, err := f.audits()
	if err != nil && !errors.Is(err, errStdout) {
		return "", err
	}
	var hash string
	for i, at := range audits {
		key, err := os.ReadFile(filepath.Join(filepath.Dir(at.snapshots), cli.KeyName))
		if err != nil {
			return "", fmt.Errorf("hash the name of client %s: %w", name, err)
		}
		own := audit.Pseudonym(key)(name)
		if i > 0 && own != hash {
			return "", fmt.Errorf("client %s has different hashes in %s and %s, since each audit has its own key (%s): "+
				"read one audit at a time, or give the hash", name, at.file, audits[0].file, cli.KeyName)
		}
		hash = own
	}
	return hash, nil
}

// NotEmpty returns an error for the first of these flags that has an empty value, for example
// from an unset variable of a script. An empty value must not have the effect of leaving the
// flag out.
func NotEmpty(flags *pflag.FlagSet, names ...string) error {
	for _, name := range names {
		if flags.Changed(name) && flags.Lookup(name).Value.String() == "" {
			return cli.UsageErrorf("--%s: must not be empty", name)
		}
	}
	return nil
}

// errStdout is the error for an audit that goes to standard output.
var errStdout = errors.New(`audit.file is "-": name the file that has the records with --file`)

// IsDir reports whether name is a directory.
func IsDir(name string) bool {
	info, err := os.Stat(name)
	return err == nil && info.IsDir()
}

// runDirs returns the directories of runs, the newest first.
func runDirs(runs string) (dirs []string, err error) {
	entries, err := os.ReadDir(runs)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	// Names begin with the time, and ReadDir sorts them.
	for _, e := range slices.Backward(entries) {
		if e.IsDir() {
			dirs = append(dirs, filepath.Join(runs, e.Name()))
		}
	}
	return dirs, err
}

// maxRuns is how many runs are searched for a record.
const maxRuns = 1000

// runs returns the audits of the newest runs that are files in the directories of their runs, the
// newest first. It follows no symbolic link out of the directory of all runs, whose name is in.
func (f *auditFlags) runs() (all []auditFiles, in string, err error) {
	cfg, err := f.Load()
	if err != nil {
		return nil, "", err
	}
	state, err := cfg.State(os.Getenv)
	if err != nil {
		return nil, "", err
	}
	in = filepath.Join(state, cli.RunsName)
	dirs, err := runDirs(in)
	for _, dir := range dirs[:min(len(dirs), maxRuns)] {
		at := auditIn(dir)
		at.run = filepath.Base(dir)
		segments, err := trail.Segments(at.file)
		elsewhere := slices.ContainsFunc(segments, func(s trail.Segment) bool {
			info, err := os.Lstat(s.Path)
			return err != nil || !info.Mode().IsRegular()
		})
		if err == nil && len(segments) > 0 && !elsewhere {
			all = append(all, at)
		}
	}
	return all, in, err
}

// runDir finds the directory of a run.
func runDir(state, name string) (string, error) {
	runs := filepath.Join(state, cli.RunsName)
	if name != "last" {
		if dir := filepath.Join(runs, name); filepath.Base(name) == name && name != ".." && IsDir(dir) {
			return dir, nil
		}
		return "", fmt.Errorf("no run is named %s", name)
	}
	dirs, err := runDirs(runs)
	if err != nil {
		return "", err
	}
	if len(dirs) == 0 {
		return "", fmt.Errorf("no run in %s", runs)
	}
	return dirs[0], nil
}

// once is the value of a flag that may be given once, because its values would exclude each other.
type once string

func (o *once) String() string { return string(*o) }

// Type is that of a string, for the help.
func (o *once) Type() string { return "string" }

// Set sets the value.
func (o *once) Set(value string) error {
	if *o != "" {
		return errors.New("can be given once only")
	}
	*o = once(value)
	return nil
}

// requestFlags say which requests are meant.
type requestFlags struct {
	client, host string

	// hosts is host, parsed; nil: all hosts are meant.
	hosts *policy.HostPatterns

	// asked are the values of --label, and labels are those that a request must have.
	asked  []string
	labels labels.Set
}

func (f *requestFlags) add(cmd *cobra.Command) {
	cmd.Flags().Var((*once)(&f.client), "client", "only requests of the client with this `NAME`")
	cmd.Flags().Var((*once)(&f.host), "host", "only requests to this `HOST`: a name, or *.suffix")
	cmd.Flags().StringArrayVar(&f.asked, "label", nil, "only requests with this label, `KEY=VALUE`; repeat it for those with several")
}

// read reads the flags, for records of the audits that are meant.
func (f *requestFlags) read(of *auditFlags) (err error) {
	if err := NotEmpty(of.Flags, "client", "host"); err != nil {
		return err
	}
	if f.client, err = of.clientName(f.client); err != nil {
		return err
	}
	if f.labels, err = labels.Parse(f.asked...); err != nil {
		return cli.UsageErrorf("--label: %w", err)
	}
	if f.host == "" {
		return nil
	}
	if f.hosts, err = policy.NewHostPatterns([]string{f.host}); err != nil {
		return cli.UsageErrorf("--host: %w (a name, or *.suffix, without a scheme or a port)", err)
	}
	return nil
}
