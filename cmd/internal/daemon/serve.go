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

// ServeCommand returns the command serve.
func ServeCommand() *cobra.Command {
	var f cli.ConfigFlags
	var listen, adminListen string
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run the proxy until SIGINT or SIGTERM",
		Long: `Run the proxy until SIGINT or SIGTERM. Requests in flight then have up to 20 s to
finish. A second signal breaks them off, and the exit status is 128 plus the number
of the signal. A third signal ends the proxy without waiting for their records.

The proxy reads the configuration again on SIGHUP, and when the file or a
certificate that it names changes. The new configuration applies to requests that
begin after that. If it has an error, the log says so and the proxy keeps the active
configuration. A change that needs a restart waits for one; the log names it, and the
rest applies. Without -c, the proxy reads only certificates again.`,
		Example: `  robotsproxy serve
  robotsproxy serve -c /etc/robotsproxy.yaml --listen 127.0.0.1:3128
  curl -x http://127.0.0.1:8080 --cacert "$(robotsproxy ca path)" https://example.com/`,
		Args: cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			from := settings{file: f.ReloadFile(), level: new(slog.LevelVar)}
			from.load = func() (config.Config, error) {
				cfg, err := f.Load()
				if err != nil {
					return config.Config{}, err
				}
				if cmd.Flags().Changed("listen") {
					cfg.Listen = listen
				}
				if cmd.Flags().Changed("admin-listen") {
					cfg.Admin.Listen = adminListen
				}
				return cfg, cfg.Check()
			}
			from.sum, _ = fileSum(from.file)
			cfg, err := from.load()
			if err != nil {
				return err
			}
			from.files = fileSums(cfg)
			return serve(cmd.Context(), cfg, from, cli.NewLogger(cfg.Log, cmd.ErrOrStderr(), from.level))
		},
	}
	f.Add(cmd)
	cmd.Flags().StringVar(&listen, "listen", "", "`ADDR` to listen on, in place of listen in the configuration")
	cmd.Flags().StringVar(&adminListen, "admin-listen", "",
		"`ADDR` of the admin listener, in place of admin.listen in the configuration; \"\" turns it off")
	return cmd
}

// serve runs a daemon until the first signal.
func serve(ctx context.Context, cfg config.Config, from settings, log *slog.Logger) error {
	end := catchSignals(ctx)
	defer end.release()
	// Several signals that arrive at once cause one reload.
	hup := make(chan os.Signal, 1)
	signal.Notify(hup, syscall.SIGHUP)
	defer signal.Stop(hup)
	from.sighup = hup
	// If the audit goes to a pipe, its reader may exit: then the audit fails, not the process.
	signal.Ignore(syscall.SIGPIPE)
	tuneGC()
	// The store is opened before the daemon listens, so that a second serve reports this error.
	store, err := openStore(cfg, log)
	if err != nil {
		return err
	}
	d, err := New(cfg, Resources{ConfigFile: from.file, store: store}, log)
	if err != nil {
		return err
	}
	d.reloader = newReloader(d, from)
	if d.transparent != nil {
		log.Info("redirected connections accepted", "listen_transparent", d.transparent.Addr().String())
	}
	if d.monitorListener != nil {
		log.Info("metrics and health served without a token", "metrics_listen", d.monitorListener.Addr().String())
	}
	version, _ := buildInfo()
	log.Info("proxy started", append([]any{"version", version, "listen", d.Addr()}, d.places(cfg)...)...)
	defer log.Info("proxy stopped")
	err = d.Run(end.first, end.second)
	if s, ok := errors.AsType[signalError](context.Cause(end.second)); ok && err == nil {
		return cli.ExitError(cli.ExitSignal + int(s.Signal.(syscall.Signal)))
	}
	return err
}

// shutdownSignals says how many signals to shut down have arrived.
type shutdownSignals struct {
	// first ends with the first signal.
	first context.Context

	// second ends with the second signal, which is its cause.
	second  context.Context
	release func()
}

// A signalError is the cause of a shutdown by a signal.
type signalError struct{ os.Signal }

func (s signalError) Error() string { return s.String() }

// catchSignals handles SIGINT and SIGTERM; a third signal exits at once. One goroutine receives all signals,
// so that two in quick succession are not lost.
func catchSignals(parent context.Context) shutdownSignals {
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
					urge(signalError{s})
				}
				ask()
			}
		}
	}()
	return shutdownSignals{asked, urged, func() {
		signal.Stop(caught)
		close(over)
		ask()
		urge(nil)
	}}
}
