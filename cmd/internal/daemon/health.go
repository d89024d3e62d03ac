package daemon

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/spf13/cobra"

	"robotsproxy/cmd/internal/cli"
	"robotsproxy/cmd/internal/config"
	"robotsproxy/policy/explain/humanize"
	"robotsproxy/proxy/socket"
)

const (
	healthTimeout = 2 * time.Second
	// maxHealthText bounds the bytes of the response that are read.
	maxHealthText = 4 << 10
)

// HealthCommand returns the command health.
func HealthCommand() *cobra.Command {
	var f cli.ConfigFlags
	var admin string
	cmd := &cobra.Command{
		Use:   "health",
		Short: "Check whether a running proxy is healthy",
		Long: `Request /healthz of a running proxy, for containers and monitors. The exit status is 0
if the proxy is healthy, else 1.`,
		Example: `  robotsproxy health
  robotsproxy health --admin 127.0.0.1:8081`,
		Args: cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			// An unset variable of a script must not select another proxy.
			if admin == "" && cmd.Flags().Changed("admin") {
				return cli.UsageErrorf("--admin: empty address")
			}
			if hint := config.AddressHint(admin); hint != "" {
				return cli.UsageErrorf("--admin: %q %s", admin, hint)
			}
			if admin == "" {
				cfg, err := f.Load()
				if err != nil {
					return err
				}
				if admin = cmp.Or(cfg.Admin.Listen, cfg.Admin.MetricsListen); admin == "" {
					return errors.New("health: admin.listen and admin.metrics_listen are off: name an address with --admin")
				}
			}
			lines, err := Health(cmd.Context(), admin)
			for _, line := range lines {
				fmt.Fprintln(cmd.OutOrStdout(), humanize.Escape(line))
			}
			return err
		},
	}
	f.Add(cmd)
	cmd.Flags().StringVar(&admin, "admin", "",
		"`ADDR` of the proxy's admin listener, in place of admin.listen, or of admin.metrics_listen if that is off")
	return cmd
}

// ownClient returns a client for the listeners of a proxy. http.DefaultClient would use the proxy in the environment, which may be the
// one that is asked.
func ownClient() *http.Client {
	return &http.Client{
		Transport:     &http.Transport{DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// Health returns the lines of the proxy's response, of which those after the first are warnings, and an error
// unless the proxy is healthy.
func Health(ctx context.Context, admin string) (lines []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, healthTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+admin+"/healthz", nil)
	if err != nil {
		return nil, fmt.Errorf("health: %w", err)
	}
	resp, err := ownClient().Do(req)
	if err != nil {
		if e, ok := errors.AsType[*url.Error](err); ok {
			// The error of url.Error names the URL a second time.
			err = e.Err
		}
		if errors.Is(err, socket.ECONNREFUSED) {
			return nil, fmt.Errorf("health: nothing listens at %s: start robotsproxy serve, or name its address with --admin", admin)
		}
		return nil, fmt.Errorf("health: %w", err)
	}
	defer resp.Body.Close()
	for body := bufio.NewScanner(io.LimitReader(resp.Body, maxHealthText)); body.Scan(); {
		lines = append(lines, body.Text())
	}
	if resp.StatusCode != http.StatusOK {
		return lines, fmt.Errorf("health: %s answers %s", admin, resp.Status)
	}
	return lines, nil
}
