// Package auditcmd is the command audit: it shows, verifies, explains and sums up the records.
package auditcmd

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"robotsproxy/cmd/internal/cli"
	"robotsproxy/policy"
)

// stdinName is what standard input is called where a file is named.
const stdinName = "<stdin>"

func Command() *cobra.Command {
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
	cli.ConfigFlags
	paths []string
	run   string
}

func (f *auditFlags) add(cmd *cobra.Command) {
	f.ConfigFlags.Add(cmd)
	cmd.Flags().StringArrayVar(&f.paths, "file", nil, "audit `FILE` (without it: the configuration's); once for each replica of a fleet")
	cmd.Flags().StringVar(&f.run, "run", "", "the audit of a run: last, or the `NAME` of its directory")
	cli.Offer(cmd, "run", "last")
	cmd.PreRunE = func(*cobra.Command, []string) error { return f.usage() }
}

// usage says what cannot be meant.
func (f *auditFlags) usage() error {
	switch {
	case len(f.paths) > 0 && f.run != "":
		return cli.UsageErrorf("--file and --run name two audits: one is wanted")
	case slices.Contains(f.paths, ""):
		return cli.UsageErrorf("--file: the value is empty")
	case len(f.paths) > 1 && slices.Contains(f.paths, "-"):
		return cli.UsageErrorf("--file -: standard input cannot be one of several")
	case len(f.paths) > maxAudits:
		return cli.UsageErrorf("%d audits: at most %d are read at once", len(f.paths), maxAudits)
	}
	return NotEmpty(f.Flags, "run")
}

// NotEmpty says which of the flags was given an empty value, as an unset variable of a
// script is: it must not mean what it means to leave the flag out.
func NotEmpty(flags *pflag.FlagSet, names ...string) error {
	for _, name := range names {
		if flags.Changed(name) && flags.Lookup(name).Value.String() == "" {
			return cli.UsageErrorf("--%s: the value is empty", name)
		}
	}
	return nil
}

// errStdout is of an audit that is kept by whoever reads standard output.
var errStdout = errors.New(`audit.file is "-": name the file that it was put in with --file`)

func IsDir(name string) bool {
	info, err := os.Stat(name)
	return err == nil && info.IsDir()
}

// runDir finds the directory of a run.
func runDir(state, name string) (string, error) {
	runs := filepath.Join(state, "runs")
	if name != "last" {
		if dir := filepath.Join(runs, name); filepath.Base(name) == name && name != ".." && IsDir(dir) {
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
	if err := NotEmpty(of.Flags, "client", "host"); err != nil {
		return err
	}
	if f.client, err = of.clientName(f.client); err != nil {
		return err
	}
	if f.host == "" {
		return nil
	}
	if f.hosts, err = policy.NewHostPatterns([]string{f.host}); err != nil {
		return cli.UsageErrorf("--host: %w", err)
	}
	return nil
}
