package main

import (
	"context"
	"log/slog"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/spf13/cobra"

	"robotsproxy/cmd/internal/config"
)

// gcPercent trades memory for speed: a proxy's live heap is small, and
// collecting it often is where much of its time would go. The environment's
// GOGC takes precedence.
const gcPercent = 400

func serveCommand() *cobra.Command {
	var f configFlags
	var listen string
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run the proxy until SIGINT or SIGTERM",
		Long: `Run the proxy until SIGINT or SIGTERM. Requests in flight may then finish;
a second signal ends it at once.`,
		Example: `  robotsproxy serve
  robotsproxy serve -c /etc/robotsproxy.yaml --listen 127.0.0.1:3128
  curl -x http://127.0.0.1:8080 --cacert "$(robotsproxy ca path)" https://example.com/`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := f.load()
			if err != nil {
				return err
			}
			if cmd.Flags().Changed("listen") {
				cfg.Listen = listen
			}
			if err := cfg.Check(); err != nil {
				return err
			}
			log := newLogger(cfg.Log, cmd.ErrOrStderr())
			return serve(cmd.Context(), cfg, log)
		},
	}
	f.add(cmd)
	cmd.Flags().StringVar(&listen, "listen", "", "address to listen on, instead of the configuration's")
	return cmd
}

// serve runs a house until the first signal; a second ends the process at once.
func serve(ctx context.Context, cfg config.Config, log *slog.Logger) error {
	ctx, release := untilSignal(ctx)
	defer release()
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	h, err := build(cfg, log)
	if err != nil {
		return err
	}
	log.Info("robotsproxy serves", "listen", h.Addr(), "audit", h.AuditFile())
	defer log.Info("robotsproxy has ended")
	return h.Run(ctx)
}

// untilSignal is a context that ends with the first SIGINT or SIGTERM. One
// goroutine hears both signals, so that a second close behind cannot be lost.
func untilSignal(parent context.Context) (ctx context.Context, release func()) {
	ctx, cancel := context.WithCancel(parent)
	caught := make(chan os.Signal, 2)
	signal.Notify(caught, syscall.SIGINT, syscall.SIGTERM)
	over := make(chan struct{})
	go func() {
		for asked := false; ; asked = true {
			select {
			case <-over:
				return
			case s := <-caught:
				if asked {
					os.Exit(exitSignal + int(s.(syscall.Signal)))
				}
				cancel()
			}
		}
	}()
	return ctx, func() {
		signal.Stop(caught)
		close(over)
		cancel()
	}
}
