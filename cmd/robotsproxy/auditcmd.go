package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"robotsproxy/policy"
	"robotsproxy/policy/audit"
	"robotsproxy/policy/audit/trail"
)

// stdinName is what standard input is called where a file is named.
const stdinName = "<stdin>"

func auditCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "audit",
		Short: "Read the audit: follow, sum up, verify, explain",
		Long: `Read the audit: follow, sum up, verify, explain. No lock is taken: all of it may
be read while the proxy writes it.`,
		Example: `  robotsproxy audit verify
  robotsproxy audit report --since 24h --format html > report.html`,
	}
	cmd.AddCommand(auditTailCommand(), auditReportCommand(), auditVerifyCommand(), auditSnapshotCommand(), auditExplainCommand())
	return cmd
}

// auditFlags say which audit is meant.
type auditFlags struct {
	configFlags
	path, run string
}

func (f *auditFlags) add(cmd *cobra.Command) {
	f.configFlags.add(cmd)
	cmd.Flags().StringVar(&f.path, "file", "", "audit `FILE` (without it: the configuration's)")
	cmd.Flags().StringVar(&f.run, "run", "", "the audit of a run: last, or the `NAME` of its directory")
	offer(cmd, "run", "last")
	cmd.PreRunE = func(*cobra.Command, []string) error { return f.usage() }
}

// usage says what cannot be meant.
func (f *auditFlags) usage() error {
	if f.path != "" && f.run != "" {
		return usageError{errors.New("--file and --run name two audits: one is wanted")}
	}
	return notEmpty(f.flags, "file", "run")
}

// notEmpty says which of the flags was given an empty value, as an unset variable of a
// script is: it must not mean what it means to leave the flag out.
func notEmpty(flags *pflag.FlagSet, names ...string) error {
	for _, name := range names {
		if flags.Changed(name) && flags.Lookup(name).Value.String() == "" {
			return usageError{fmt.Errorf("--%s: the value is empty", name)}
		}
	}
	return nil
}

// errStdout is of an audit that is kept by whoever reads standard output.
var errStdout = errors.New(`audit.file is "-": name the file that it was put in with --file`)

// where gives the audit's file and the directory of the snapshots that belong to it.
// It makes neither. With errStdout the directory is given all the same.
func (f *auditFlags) where() (file, snapshots string, err error) {
	if f.path == "-" {
		return "", "", usageError{errors.New("--file -: standard input will not do here")}
	}
	cfg, err := f.load()
	if err != nil {
		return "", "", err
	}
	home, err := cfg.State(os.Getenv)
	if f.path != "" {
		if beside := filepath.Join(filepath.Dir(f.path), snapshotsName); err != nil || isDir(beside) {
			return f.path, beside, nil // a run's, or moved here with it
		}
		return f.path, filepath.Join(home, snapshotsName), nil
	}
	if err == nil && f.run != "" {
		home, err = runDir(home, f.run)
	}
	file, snapshots = filepath.Join(home, auditName), filepath.Join(home, snapshotsName)
	switch {
	case err != nil:
		return "", "", err
	case f.run != "":
		if elsewhere, err := os.Readlink(file); err == nil {
			file = elsewhere // run --audit
		}
		return file, snapshots, nil
	case cfg.Audit.File == "":
		return file, snapshots, nil
	case cfg.Audit.File == "-":
		return "", snapshots, errStdout
	}
	return cfg.Audit.File, snapshots, nil
}

// open begins to read the audit, or standard input where the file is -.
func (f *auditFlags) open(stdin io.Reader) (*trail.Reader, error) {
	if f.path == "-" {
		return trail.NewReader(stdinName, stdin), nil
	}
	path, _, err := f.where()
	if err != nil {
		return nil, err
	}
	r, err := trail.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("no audit at %s (which one is meant is said with -c, --state, --run or --file)", path)
	}
	return r, err
}

// clientName is what a client is called in the audit that is meant: under
// audit.clients: hash the hash of its name, which may be given as well.
func (f *auditFlags) clientName(name string) (string, error) {
	cfg, err := f.load()
	if err != nil || name == "" || cfg.Audit.Clients != "hash" || audit.IsPseudonym(name) {
		return name, err
	}
	_, snapshots, err := f.where()
	if err != nil && !errors.Is(err, errStdout) {
		return "", err
	}
	key, err := os.ReadFile(filepath.Join(filepath.Dir(snapshots), keyName))
	if err != nil {
		return "", fmt.Errorf("the hash of client %s: %w", name, err)
	}
	return audit.Pseudonym(key)(name), nil
}

func isDir(name string) bool {
	info, err := os.Stat(name)
	return err == nil && info.IsDir()
}

// runDir finds the directory of a run.
func runDir(state, name string) (string, error) {
	runs := filepath.Join(state, "runs")
	if name != "last" {
		if dir := filepath.Join(runs, name); filepath.Base(name) == name && name != ".." && isDir(dir) {
			return dir, nil
		}
		return "", fmt.Errorf("no run of this name: %s", name)
	}
	entries, err := os.ReadDir(runs)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	for _, e := range slices.Backward(entries) { // names begin with the time, and ReadDir sorts
		if e.IsDir() {
			return filepath.Join(runs, e.Name()), nil
		}
	}
	return "", fmt.Errorf("no run in %s", runs)
}

// requestFlags say which requests of an audit are meant.
type requestFlags struct {
	client, host string
	hosts        *policy.HostPatterns // that fit host; nil: any do
}

func (f *requestFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.client, "client", "", "only requests of the client of this `NAME`")
	cmd.Flags().StringVar(&f.host, "host", "", "only requests to this `HOST`: its name, or *.suffix")
}

// read makes of the flags what fits a record of the audit that is meant.
func (f *requestFlags) read(of *auditFlags) (err error) {
	if err := notEmpty(of.flags, "client", "host"); err != nil {
		return err
	}
	if f.client, err = of.clientName(f.client); err != nil {
		return err
	}
	if f.host == "" {
		return nil
	}
	if f.hosts, err = policy.NewHostPatterns([]string{f.host}); err != nil {
		return usageError{fmt.Errorf("--host: %w", err)}
	}
	return nil
}
