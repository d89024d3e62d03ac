// Package runner implements the command run: it runs another command behind a proxy of its own, and
// then reports what the proxy allowed and refused.
package runner

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"robotsproxy/cmd/internal/auditcmd"
	"robotsproxy/cmd/internal/cli"
	"robotsproxy/cmd/internal/config"
	"robotsproxy/cmd/internal/daemon"
	"robotsproxy/policy/explain/humanize"
	"robotsproxy/policy/labels"
	"robotsproxy/proxy/inbound"
)

// runFlags are the flags of the command run.
type runFlags struct {
	cli.ConfigFlags
	userAgent, audit, warc, report, status string
	quiet                                  bool

	// asked are the values of --label, and labels are those of all requests of the run.
	asked   []string
	labels  labels.Set
	confine confineFlags
}

// longHelp and examples are the help of the command run.
const (
	longHelp = `Run one command behind a proxy of its own, which listens on a free port of loopback.
Environment variables tell the command which proxy to use and which CA to trust. The
command's input and output pass unchanged. A signal reaches the command once, whether
it was sent to run alone or, like Ctrl-C, to its process group. ROBOTSPROXY_RUN names
the directory of the run, for robotsproxy doctor.

The exit status is that of the command, 128 plus the number of the signal that ended
the command, 127 if there is no such command, or 126 if it cannot be started.

When the command has ended, run prints on standard error how many requests were
allowed, disallowed, deferred and failed, and where the audit is. On Linux, it also
names programs that connected to other machines without the proxy, if it has seen the
connections.

Requests wait for their turn as long as the command runs, unless the configuration
sets pace.max_wait. All runs and the serve of one state directory share the pace of
each host. With store.redis, they share it with all replicas.

Without a shared store, the runs of one state directory use each other's copies of
robots.txt files while these are fresh. The audit of a run has the files that the run
decided by, whoever fetched them.

On a terminal, a status line on standard error shows what the requests wait for. It
appears while no request is in flight and the next one is not due yet, but not if the
command reads the terminal key by key. --status always shows it all the time. Without
a terminal, it then prints a line at most every 10 seconds. Where the line does not show
a wait of more than 10 seconds, run reports the first one for a robots.txt, and the first
one for a slot.`
	examples = `  robotsproxy run -- scrapy crawl books
  robotsproxy run --confine -- ./crawl.sh
  robotsproxy run -A 'FooBot/1.0 (+https://foo.example)' -- curl -sS https://example.com/
  robotsproxy run --warc news.warcs -- scrapy crawl news
  robotsproxy run -c robotsproxy.yaml --audit crawl.jsonl --report crawl.html -- python3 crawl.py`
)

// Command returns the command run.
func Command() *cobra.Command {
	var f runFlags
	cmd := &cobra.Command{
		Use:                   "run [flags] -- COMMAND [ARGUMENT...]",
		Short:                 "Run one command behind a proxy of its own",
		Long:                  longHelp,
		Example:               examples,
		DisableFlagsInUseLine: true,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 || args[0] == "" {
				return errors.New("no command given after run --")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, argv []string) error {
			return runCommand(cmd, f, argv)
		},
	}
	f.Add(cmd)
	cmd.Flags().StringVarP(&f.userAgent, "user-agent", "A", "", "send this User-Agent `HEADER` in place of the command's own")
	cmd.Flags().StringVar(&f.audit, "audit", "", "write the audit to `FILE` instead of the run's own directory")
	cmd.Flags().StringVar(&f.warc, "warc", "", "archive what is fetched in WARC files in the directory `DIR`")
	cmd.Flags().StringVar(&f.report, "report", "", "write a report of the run to `FILE`, as audit report does: .html, .json, .csv or .txt")
	cmd.Flags().StringArrayVar(&f.asked, "label", nil, "record a label, `KEY=VALUE`, with each request; repeat it for more")
	cmd.Flags().StringVar(&f.status, "status", statusAuto,
		"`WHEN` to show a status line that says what requests wait for: "+cli.OneOf(statuses))
	f.confine.add(cmd)
	cmd.Flags().BoolVarP(&f.quiet, "quiet", "q", false, "print neither the status line nor the summary, except what went past the proxy")
	cli.Offer(cmd, "status", statuses...)
	// Flags that follow the command belong to it.
	cmd.Flags().SetInterspersed(false)
	return cmd
}

// runCommand starts a daemon for this run, runs argv behind it and prints the outcome.
func runCommand(cmd *cobra.Command, f runFlags, argv []string) error {
	// This is the last step, so that no signal replaces the command's exit status before.
	release := func() {}
	defer func() { release() }()
	cfg, report, err := f.check()
	if err != nil {
		return err
	}
	confined, err := f.confine.check(cmd)
	if err != nil {
		return err
	}
	command, err := findCommand(argv)
	if err != nil {
		return err
	}
	command.Stdin, command.Stdout, command.Stderr = cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr()
	inside, err := f.confine.newConfinement(confined, command)
	if err != nil {
		return err
	}
	defer inside.close()
	dir, lock, err := f.prepare(&cfg)
	if err != nil {
		return err
	}
	defer lock.Close()
	report.begin(cfg.Audit.File, time.Now())
	// Standard error belongs to the command: the proxy's own log goes beside the audit.
	logFile, err := os.OpenFile(filepath.Join(dir, "proxy.log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer logFile.Close()
	var tally counter
	log := cli.NewLogger(cfg.Log, logFile, new(slog.LevelVar))
	defer pruner{cfg.Runs, filepath.Dir(dir), log}.start()()
	// The daemon gets no store, because one process would lock it for itself.
	own := inside.resources(dir, log)
	own.Labels = f.labels
	own.ConfigFile, own.ShareFiles = f.ReloadFile(), true
	d, err := daemon.New(cfg, own, log, &tally)
	if err != nil {
		// The directory has nothing of value, and the next run makes its own.
		os.RemoveAll(dir)
		return err
	}
	var caught <-chan os.Signal
	caught, release = catchSignals()
	end, kept, err := f.runServed(cmd, d, &tally, dir, command, inside, caught)
	if err != nil {
		return err
	}
	f.printOutcome(cmd.ErrOrStderr(), argv, end, tally.summary(), d, report, kept)
	if end.status != 0 {
		return cli.ExitError(end.status)
	}
	return nil
}

// check checks the flags for files and for the status, and loads the configuration.
func (f *runFlags) check() (cfg config.Config, report *runReport, err error) {
	if f.File == "-" {
		return cfg, nil, cli.UsageErrorf("-c: must be a file, since standard input belongs to the command")
	}
	if cfg, err = f.Load(); err != nil {
		return cfg, nil, err
	}
	if !slices.Contains(statuses, f.status) {
		return cfg, nil, cli.UsageErrorf("--status: must be %[2]s, got %[1]s", humanize.Printable(f.status), cli.OneOf(statuses))
	}
	if f.quiet {
		f.status = statusNever
	}
	if err := auditcmd.NotEmpty(f.Flags, "audit", "warc", "report"); err != nil {
		return cfg, nil, err
	}
	if f.labels, err = labels.Parse(f.asked...); err != nil {
		return cfg, nil, cli.UsageErrorf("--label: %w", err)
	}
	report, err = newRunReport(f.report)
	return cfg, report, err
}

// runServed runs command while d serves, and then waits until d has recorded all requests. kept is that of runWithProxy.
func (f *runFlags) runServed(
	cmd *cobra.Command, d *daemon.Daemon, tally *counter, dir string, command *exec.Cmd, inside *confinement, caught <-chan os.Signal,
) (end childResult, kept []string, err error) {
	ctx, stop := context.WithCancel(cmd.Context())
	defer stop()
	forceStop, forceStopNow := context.WithCancel(context.Background())
	defer forceStopNow()
	served := make(chan error, 1)
	go func() { served <- d.Run(ctx, forceStop) }()
	wipe, unwatch := startStatus(cmd.ErrOrStderr(), f.status, tally, d)
	end, kept, err = runWithProxy(d, dir, command, inside, caught, wipe)
	unwatch()
	stop()
	if failed := waitForDaemon(served, caught, end.unseen, forceStopNow); failed != nil {
		cli.Report(cmd.ErrOrStderr(), fmt.Errorf("shutdown of the proxy: %w", failed))
	}
	return end, kept, err
}

// runWithProxy runs command inside a confinement, with an environment that leads it through d. runChild calls
// interrupted. kept are the variables for certificates that keep the user's values.
func runWithProxy(
	d *daemon.Daemon, dir string, command *exec.Cmd, inside *confinement, caught <-chan os.Signal, interrupted func(),
) (end childResult, kept []string, err error) {
	real, seen, err := inside.filesDir(dir)
	if err != nil {
		return childResult{}, nil, err
	}
	defer inside.removeFiles(real)
	trust, err := writeRunFiles(real, seen, d.Addr(), d.CAPEM(), inside.getenv)
	if err == nil {
		err = writeDescription(filesIn(real).description, dir, d)
	}
	if err != nil {
		return childResult{}, nil, err
	}
	defer inside.serve()()
	kept = keptVariables(inside.getenv, trust.Bundle)
	env := childEnv(inside.environment(), d.Addr(), filesIn(seen), kept)
	c := inside.child(command, real, trust, env)
	stopWatch := func() *directConns { return nil }
	if inside == nil {
		stopWatch = watchDirect(&c, dir)
	}
	end, err = runChild(c, caught, interrupted)
	end.direct = stopWatch()
	return end, kept, err
}

// waitForDaemon waits until the daemon has finished its last requests. A termination signal makes
// it stop at once: the child has exited, so signals are for this process now. unseen is a signal
// that was also for the child.
func waitForDaemon(served <-chan error, caught <-chan os.Signal, unseen os.Signal, forceStopNow func()) error {
	for len(caught) > 0 {
		// These signals arrived while the child ran.
		if <-caught == unseen {
			unseen = nil
		}
	}
	for {
		select {
		case err := <-served:
			return err
		case s := <-caught:
			if s == unseen {
				unseen = nil
				continue
			}
			if s == syscall.SIGINT || s == syscall.SIGTERM || s == syscall.SIGHUP {
				forceStopNow()
				return errors.Join(errors.New("stopped by a signal before all requests were recorded"), <-served)
			}
		}
	}
}

// stateApart returns the state directory of a run that shares its pace neither with the processes that have the usual
// state directory nor with a fleet; "": it shares it.
func stateApart(cfg config.Config, getenv func(string) string) string {
	state, err := cfg.State(getenv)
	usual, noUsual := config.Default().State(getenv)
	if err != nil || noUsual == nil && state == usual || cfg.Store.Redis != "" {
		return ""
	}
	return state
}

// withoutPasswords returns the clients that are identified by a network, without their passwords:
// the command knows none of the passwords, and no other client knows the proxy.
func withoutPasswords(clients []config.Client) (named []config.Client) {
	for _, c := range clients {
		c.PasswordHash, c.PasswordHashNext = "", ""
		if len(c.Networks) > 0 {
			named = append(named, c)
		}
	}
	return named
}

// prepare makes the run's directory, which is locked until lock is closed, and sets in cfg what a run does not
// share with others: listener, access, admin, audit and the file of daily checkpoints.
func (f *runFlags) prepare(cfg *config.Config) (dir string, lock *os.File, err error) {
	*cfg = daemon.ForOneUser(*cfg)
	cfg.Listen, cfg.ListenTLS, cfg.Open, cfg.Admin.Listen, cfg.Drain = "127.0.0.1:0", config.ListenTLS{}, true, "", 0
	cfg.ListenTransparent, cfg.Admin.MetricsListen = "", ""
	// One checkpoint a day of the configured audit goes there, none of runs.
	cfg.Audit.Anchor.File = ""
	cfg.Clients = withoutPasswords(cfg.Clients)
	if f.userAgent != "" {
		cfg.Identity.UserAgent = f.userAgent
	}
	if f.warc != "" {
		if cfg.Archive.Dir, err = filepath.Abs(f.warc); err != nil {
			return "", nil, err
		}
	}
	if f.audit == "-" {
		return "", nil, cli.UsageErrorf("--audit: must be a file, since standard output belongs to the command")
	}
	if err := cfg.Check(); err != nil {
		return "", nil, err
	}
	state, err := cli.StateDir(*cfg)
	if err != nil {
		return "", nil, err
	}
	if dir, lock, err = newRunDir(state, time.Now(), os.Getpid()); err != nil {
		return "", nil, err
	}
	cfg.Audit.File, cfg.Audit.FIFO = filepath.Join(dir, cli.AuditName), false
	if f.audit == "" {
		return dir, lock, nil
	}
	here := cfg.Audit.File
	if cfg.Audit.File, err = filepath.Abs(f.audit); err == nil {
		// audit --run finds the file by the link.
		err = os.Symlink(cfg.Audit.File, here)
	}
	return dir, lock, err
}

// printOutcome prints what happened while argv ran and writes the report. A failure does not change
// the exit status, which is the command's.
func (f *runFlags) printOutcome(
	w io.Writer, argv []string, end childResult, s summary, d *daemon.Daemon, report *runReport, kept []string,
) {
	if end.interrupted && !f.quiet && cli.IsTerminal(w) {
		// The terminal has shown ^C at the start of the line.
		fmt.Fprintln(w)
	}
	untrusted := d.Untrusted()
	untrusted.Unused = s.untrusted(untrusted.Unused)
	if end.interrupted {
		// The signal may have closed them.
		untrusted.Closed, untrusted.Unused = nil, nil
	}
	cfg, nothing := d.Active.Load().Cfg, false
	switch {
	case f.quiet:
	case s.Outcomes.total() > 0:
		printSummary(w, s, cfg.Pace.RequestsPerSecond, d.AuditFile())
		if state := stateApart(cfg, os.Getenv); state != "" {
			fmt.Fprintf(w, "robotsproxy: the pace is shared only with processes that have the state directory %s\n",
				humanize.Printable(state))
		}
		if unused := daemon.UnusedProxy(cfg, os.Getenv); s.Unreached > 0 && unused != "" {
			fmt.Fprintf(w, "robotsproxy: %s\n", unused)
		}
		if hint := clientOf(argv); hint != nil && s.hasCause(inbound.ErrTLSInTheClear) {
			hint.print(w)
		}
		if cfg.Mode == "monitor" {
			fmt.Fprintf(w, "robotsproxy: mode: monitor: the proxy sent %d of the requests that are not counted as allowed\n",
				s.NotEnforced)
		}
		printUntrusted(w, argv, untrusted)
	case printUntrusted(w, argv, untrusted):
	default:
		fmt.Fprintln(w, "robotsproxy: the proxy received no request")
		switch {
		case end.interrupted:
			// The command may not have sent any yet.

		case f.confine.on:
			fmt.Fprintln(w, "  The command sent none: with --confine, it reaches other machines through the proxy alone.")
		default:
			nothing = true
		}
	}
	if !f.quiet {
		printKept(w, kept)
	}
	err := report.end(d.AuditFile())
	switch {
	case err != nil:
		cli.Report(w, err)
	case report.file != "" && !f.quiet:
		fmt.Fprintf(w, "robotsproxy: report in %s\n", humanize.Printable(report.file))
	}
	printBypass(w, argv, end.direct, nothing)
}
