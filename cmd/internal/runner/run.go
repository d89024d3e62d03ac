// Package runner is the command run: it runs another command behind a proxy of its own, and says
// afterwards what was refused.
package runner

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"robotsproxy/cmd/internal/cli"
	"robotsproxy/cmd/internal/config"
	"robotsproxy/cmd/internal/daemon"
	"robotsproxy/policy/audit"
)

type runFlags struct {
	cli.ConfigFlags
	userAgent, audit, report, status string
	quiet                            bool
}

func Command() *cobra.Command {
	var f runFlags
	cmd := &cobra.Command{
		Use:   "run [flags] -- COMMAND [ARGUMENT...]",
		Short: "Run one command behind a proxy of its own",
		Long: `Run one command behind a proxy of its own, on a free port of loopback. The
variables by which clients find a proxy and trust a CA are set for it, and
ROBOTSPROXY_RUN, the run's own directory, by which robotsproxy doctor knows it; its
input, output and signals are its own, and so is the exit status. What happened
is said on standard error when it has ended. Without a store (store.redis) each
run keeps a pace of its own: several at once, or beside a serve, do not share it.

Where standard error is a terminal, a line says there what the requests wait for,
while none is under way and the next is not due. It leaves alone a terminal that
the command reads key by key. --status always keeps it there, beside the command's
own output; where there is no terminal, that is a line at most every 10 seconds.`,
		Example: `  robotsproxy run -- scrapy crawl books
  robotsproxy run -A 'FooBot/1.0 (+https://foo.example)' -- curl -sS https://example.com/
  robotsproxy run -c robotsproxy.yaml --audit crawl.jsonl --report crawl.html -- python3 crawl.py`,
		DisableFlagsInUseLine: true,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 || args[0] == "" {
				return errors.New("no command after run --")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, argv []string) error {
			return runBehind(cmd, f, argv)
		},
	}
	f.Add(cmd)
	cmd.Flags().StringVarP(&f.userAgent, "user-agent", "A", "", "a whole User-Agent `HEADER`, sent in place of the command's own")
	cmd.Flags().StringVar(&f.audit, "audit", "", "`FILE` for the audit, instead of one in the run's own directory")
	cmd.Flags().StringVar(&f.report, "report", "", "`FILE` for a report of the run, as audit report makes it: .html, .json, .csv or .txt")
	cmd.Flags().StringVar(&f.status, "status", statusAuto, "`WHEN` a line says what the requests wait for: "+cli.OneOf(statuses))
	cmd.Flags().BoolVarP(&f.quiet, "quiet", "q", false, "say nothing of what happened: neither that line nor a summary")
	cli.Offer(cmd, "status", statuses...)
	cmd.Flags().SetInterspersed(false) // flags behind the command are the command's
	return cmd
}

// runBehind builds a daemon of the run's own, runs argv behind it and says what has happened.
func runBehind(cmd *cobra.Command, f runFlags, argv []string) error {
	cfg, err := f.Load()
	if err != nil {
		return err
	}
	said, err := f.telling()
	if err != nil {
		return err
	}
	child, err := findCommand(argv)
	if err != nil {
		return err
	}
	dir, err := f.settle(&cfg)
	if err != nil {
		return err
	}
	said.begin(cfg.Audit.File, time.Now())
	// Standard error is the child's: the proxy's own log goes beside the audit.
	logFile, err := os.OpenFile(filepath.Join(dir, "proxy.log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer logFile.Close()
	var tally audit.Counter
	h, err := daemon.New(cfg, daemon.Storage{Dir: dir}, cli.NewLogger(cfg.Log, logFile, new(slog.LevelVar)), &tally) // no store: nobody would read it again
	if err != nil {
		os.RemoveAll(dir) // nothing has happened there, and the next try makes its own
		return err
	}
	caught, release := catchSignals()
	defer release()
	ctx, stop := context.WithCancel(cmd.Context())
	defer stop()
	urged, urge := context.WithCancel(context.Background())
	defer urge()
	served := make(chan error, 1)
	go func() { served <- h.Run(ctx, urged) }()

	child.Stdin, child.Stdout, child.Stderr = cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr()
	wipe, unwatch := watchRun(cmd.ErrOrStderr(), f.status, &tally, h.Pacer)
	end, err := behind(h, dir, child, caught, wipe)
	unwatch()
	stop()
	if failed := ended(served, caught, urge); failed != nil {
		cli.Report(cmd.ErrOrStderr(), fmt.Errorf("the proxy has not ended well: %w", failed))
	}
	if err != nil {
		return err
	}
	f.tell(cmd.ErrOrStderr(), argv, end, tally.Summary(), h.AuditFile(), said)
	if end.status != 0 {
		return cli.ExitError(end.status)
	}
	return nil
}

// behind runs child with the environment that leads it through h; for asked see runChild.
func behind(h *daemon.Daemon, dir string, child *exec.Cmd, caught <-chan os.Signal, asked func()) (childEnd, error) {
	files, err := writeRunFiles(dir, h.Addr(), h.CAPEM(), os.Getenv)
	defer files.remove()
	if err == nil {
		err = writeAbout(files.about, h)
	}
	if err != nil {
		return childEnd{}, err
	}
	child.Env = childEnv(os.Environ(), h.Addr(), files)
	return runChild(child, caught, asked)
}

// ended waits until the daemon has finished its last requests, or has broken
// them off because it is asked once more to end: the child is gone, and signals
// are ours now.
func ended(served <-chan error, caught <-chan os.Signal, urge func()) error {
	for len(caught) > 0 {
		<-caught // came while the child was there
	}
	for {
		select {
		case err := <-served:
			return err
		case s := <-caught:
			if s == syscall.SIGINT || s == syscall.SIGTERM || s == syscall.SIGHUP {
				urge()
				return errors.Join(errors.New("cut short by a signal"), <-served)
			}
		}
	}
}

// withoutPasswords leaves of the clients those that a network names: a command
// knows none of their passwords, and nobody else is told of its proxy.
func withoutPasswords(clients []config.Client) (named []config.Client) {
	for _, c := range clients {
		c.PasswordHash = ""
		if len(c.Networks) > 0 {
			named = append(named, c)
		}
	}
	return named
}

// settle makes the run's own directory and puts all that a run does not share
// with others into cfg: listener, who may come in, admin, audit.
func (f *runFlags) settle(cfg *config.Config) (dir string, err error) {
	*cfg = daemon.ForOneUser(*cfg)
	cfg.Listen, cfg.ListenTLS, cfg.Open, cfg.Admin.Listen, cfg.Drain = "127.0.0.1:0", config.ListenTLS{}, true, "", 0
	cfg.Clients = withoutPasswords(cfg.Clients)
	if f.userAgent != "" {
		cfg.Identity.UserAgent = f.userAgent
	}
	if f.audit == "-" {
		return "", cli.UsageErrorf("--audit -: standard output is the command's")
	}
	if err := cfg.Check(); err != nil {
		return "", err
	}
	state, err := cli.StateDir(*cfg)
	if err != nil {
		return "", err
	}
	if dir, err = newRunDir(state, time.Now(), os.Getpid()); err != nil {
		return "", err
	}
	cfg.Audit.File = filepath.Join(dir, cli.AuditName)
	if f.audit == "" {
		return dir, nil
	}
	here := cfg.Audit.File
	if cfg.Audit.File, err = filepath.Abs(f.audit); err != nil {
		return "", err
	}
	return dir, os.Symlink(cfg.Audit.File, here) // by which audit --run finds it
}
