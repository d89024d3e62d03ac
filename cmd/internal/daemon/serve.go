package daemon

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"robotsproxy/cmd/internal/cli"
	"robotsproxy/cmd/internal/config"
)

func ServeCommand() *cobra.Command {
	var f cli.ConfigFlags
	var listen string
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run the proxy until SIGINT or SIGTERM",
		Long: `Run the proxy until SIGINT or SIGTERM. Requests in flight may then finish, for
20 seconds at most. A second signal breaks them off, and the exit status says so
(128 and the signal's number); a third does not wait for their records.

SIGHUP, and a change of the configuration file or of a certificate that it names,
has all of it read anew and put in force, for requests that begin from then on.
What is wrong with it, or would need a restart, is said in the log, and the
configuration in force stays in force whole. Without -c only certificates are
read anew.`,
		Example: `  robotsproxy serve
  robotsproxy serve -c /etc/robotsproxy.yaml --listen 127.0.0.1:3128
  curl -x http://127.0.0.1:8080 --cacert "$(robotsproxy ca path)" https://example.com/`,
		Args: cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			from := settings{file: f.Rereadable(), level: new(slog.LevelVar)}
			from.load = func() (config.Config, error) {
				cfg, err := f.Load()
				if err != nil {
					return config.Config{}, err
				}
				if cmd.Flags().Changed("listen") {
					cfg.Listen = listen
				}
				return cfg, cfg.Check()
			}
			from.stamp, _ = stamp(from.file)
			cfg, err := from.load()
			if err != nil {
				return err
			}
			from.named = filesOf(cfg)
			return serve(cmd.Context(), cfg, from, cli.NewLogger(cfg.Log, cmd.ErrOrStderr(), from.level))
		},
	}
	f.Add(cmd)
	cmd.Flags().StringVar(&listen, "listen", "", "address to listen on, instead of the configuration's")
	return cmd
}

// serve runs a daemon until the first signal.
func serve(ctx context.Context, cfg config.Config, from settings, log *slog.Logger) error {
	end := catchEnd(ctx)
	defer end.release()
	hup := make(chan os.Signal, 1) // of many that come at once the last is enough
	signal.Notify(hup, syscall.SIGHUP)
	defer signal.Stop(hup)
	from.hup = hup
	signal.Ignore(syscall.SIGPIPE) // where the audit goes to a pipe, who reads it may leave: the audit fails then, not the process
	tuneGC()
	store, err := openStore(cfg, log) // before it listens: of a second serve this is what is wrong
	if err != nil {
		return err
	}
	h, err := New(cfg, Storage{store: store}, log)
	if err != nil {
		return err
	}
	h.reloader = newReloader(h, from)
	h.reloader.notifier = newNotifier()
	log.Info("robotsproxy serves", "listen", h.Addr(), "admin", h.AdminURL(), "audit", h.AuditFile())
	defer log.Info("robotsproxy has ended")
	err = h.Run(end.asked, end.urged)
	if s, ok := errors.AsType[signalled](context.Cause(end.urged)); ok && err == nil {
		return cli.ExitError(cli.ExitSignal + int(s.Signal.(syscall.Signal)))
	}
	return err
}

// An ending is how far the process has been told to end.
type ending struct {
	asked   context.Context // over with the first signal
	urged   context.Context // over with the second; its cause says which
	release func()
}

// signalled is the cause of an end by a signal.
type signalled struct{ os.Signal }

func (s signalled) Error() string { return s.String() }

// catchEnd takes the signals that end a process; a third ends it at once. One
// goroutine hears all, so that one close behind another cannot be lost.
func catchEnd(parent context.Context) ending {
	asked, ask := context.WithCancel(parent)
	urged, urge := context.WithCancelCause(context.Background())
	caught := make(chan os.Signal, 3)
	signal.Notify(caught, syscall.SIGINT, syscall.SIGTERM)
	over := make(chan struct{})
	go func() {
		for {
			select {
			case <-over:
				return
			case s := <-caught:
				switch {
				case urged.Err() != nil:
					os.Exit(cli.ExitSignal + int(s.(syscall.Signal)))
				case asked.Err() != nil:
					urge(signalled{s})
				}
				ask()
			}
		}
	}()
	return ending{asked, urged, func() {
		signal.Stop(caught)
		close(over)
		ask()
		urge(nil)
	}}
}
