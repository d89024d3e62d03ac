package doctor

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"robotsproxy/cmd/internal/cli"
	"robotsproxy/cmd/internal/confine"
	"robotsproxy/cmd/internal/daemon"
	"robotsproxy/cmd/internal/runner"
)

// Command returns the command doctor.
func Command() *cobra.Command {
	var f doctorFlags
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check whether clients on this machine use the proxy and trust its CA",
		Long: `Check everything that a client on this machine needs: the configuration, the state
directory, the CA and the clock; whether the proxy answers a request and a tunnel;
where the proxy variables of this environment lead; and whether the installed
clients trust the CA, by running each of them. The command prints one line for each
check: ok, warn, FAIL, or skip if the check was not possible. The next line says what
to do. The exit status is 1 if a check has failed. A client that does not trust the CA
is a failure if --client names it, if a variable of this environment prepares it, or if
no client trusts the CA. Otherwise it is a warning: it may just be on this machine.

Under robotsproxy run, the command checks that run: its proxy, its CA and its
variables.

The command changes nothing. It sends the clients to a server of its own on loopback,
and contacts another machine only for --site, and to fetch the key directory of
identity.sign. The audit of the proxy contains the test requests, with the agent
robotsproxy-doctor.`,
		Example: `  robotsproxy doctor
  robotsproxy doctor -c robotsproxy.yaml --client curl,requests --site example.com
  robotsproxy doctor --proxy http://proxy.example:8080
  robotsproxy run -- robotsproxy doctor`,
		Args: cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			d, err := newDoctor(cmd.Context(), &f)
			if err != nil {
				return err
			}
			// A signal also ends the clients that were started.
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
			defer stop()
			printer := cli.NewDiagnosisPrinter(cmd.OutOrStdout(), f.json, configCheck)
			if err := runChecks(ctx, d, printer); err != nil {
				return err
			}
			return printer.Verdict("doctor")
		},
	}
	f.Add(cmd)
	flags := cmd.Flags()
	flags.StringVar(&f.proxy, "proxy", "", "`URL` of the proxy to check, in place of the configured one; NAME:PASSWORD@ logs in")
	flags.StringVar(&f.site, "site", "", "also open a tunnel to `HOST[:PORT]` and check its certificate, without a request")
	flags.StringSliceVar(&f.clients, "client", nil,
		"`NAMES` of the clients to check, which must be installed: "+cli.OneOf(clientChoices())+" (default: all that are installed)")
	flags.BoolVar(&f.json, "json", false, "print one JSON object a line")
	cli.OfferList(cmd, "client", clientChoices()...)
	return cmd
}

// configCheck is the name on the first line. No other name is longer.
const configCheck = "configuration"

// checks run in this order. Each bounds its own time.
var checks = []check{
	{"state", here(single(checkState))},
	{"audit", here(single(checkAudit))},
	{"archive", here(single(checkArchive))},
	{"store", here(single(checkStore))},
	{"proxy", single(checkProxy)},
	{"health", here(single(checkHealth))},
	{"CA", single(checkCA)},
	{"clock", single(checkClock)},
	{"identity", here(checkIdentity)},
	{"HTTP", single(checkHTTP)},
	{"HTTPS", single(checkHTTPS)},
	{"site", checkSite},
	{"confinement", single(checkConfinement)},
	{"variables", checkVariables},
	{"clients", checkUncovered},
	{"trust", checkTrust},
}

// single converts a check with one result into a check function.
func single(run func(context.Context, *doctor) cli.Diagnosis) runCheck {
	return func(ctx context.Context, d *doctor) []cli.Diagnosis { return []cli.Diagnosis{run(ctx, d)} }
}

// here skips a check of files or listeners of this machine if the proxy runs on another one.
func here(run runCheck) runCheck {
	return func(ctx context.Context, d *doctor) []cli.Diagnosis {
		if d.remote {
			return []cli.Diagnosis{cli.Skip("cannot be checked here: the proxy of --proxy runs on another machine")}
		}
		return run(ctx, d)
	}
}

// checkConfinement tells whether run --confine works here.
func checkConfinement(context.Context, *doctor) cli.Diagnosis {
	if err := confine.Check(); err != nil {
		return cli.Skip("robotsproxy run --confine does not work here: %v", err)
	}
	return cli.OK("robotsproxy run --confine works here")
}

// newDoctor prepares the checks. An invalid configuration is a result, an invalid command line an error.
func newDoctor(ctx context.Context, f *doctorFlags) (*doctor, error) {
	d := &doctor{flags: f, getenv: os.Getenv, now: time.Now}
	for _, name := range f.clients {
		if !slices.Contains(clientChoices(), name) {
			return nil, cli.UsageErrorf("--client %q: use %s", name, cli.OneOf(clientChoices()))
		}
	}
	if f.site != "" {
		if _, err := authorityOf(f.site); err != nil {
			return nil, cli.UsageErrorf("--site %q: %w", f.site, err)
		}
	}
	if d.cfg, d.configErr = f.Load(); d.configErr != nil {
		if status, _ := cli.ExitStatus(d.configErr); status == cli.ExitUsage {
			return nil, d.configErr
		}
	}
	var other *url.URL
	if f.Flags.Changed("proxy") {
		var err error
		if other, err = proxyURL(f.proxy); err != nil {
			return nil, cli.UsageErrorf("--proxy: %w", err)
		}
	}
	findProxy(ctx, d, other)
	return d, nil
}

// findProxy selects the proxy to check: that of --proxy if other is not nil, else that of the run around this process, else the
// configured one.
func findProxy(ctx context.Context, d *doctor, other *url.URL) {
	if run, file, ok := runner.EnclosingRun(d.getenv); ok && (other == nil || sameListener(ctx, other.Host, run.Listen)) {
		d.insideRun, d.cfg = true, run
		// The commands in hints use these flags. The state directory exists after the run as well.
		d.flags.File, d.flags.State = "", run.StateDir
		if run.TLS.CACert != "" {
			d.flags.File, d.flags.State = file, ""
		}
	}
	d.listen = d.cfg.Listen
	d.proxy = &url.URL{Scheme: "http", Host: dialableAddress(d.listen)}
	if d.cfg.ListenTLS.Cert != "" {
		d.proxy.Scheme = "https"
	}
	if other != nil {
		d.remote = !sameListener(ctx, other.Host, d.listen)
		d.proxy, d.listen = other, other.Host
		return
	}
	d.proxy.User = credentials(ctx, d)
}

// credentials returns the name and password in the first proxy variable that points to the proxy and has any.
func credentials(ctx context.Context, d *doctor) *url.Userinfo {
	for _, name := range daemon.ProxyVariables {
		if u, err := proxyURL(d.getenv(name)); err == nil && u.User != nil && sameListener(ctx, u.Host, d.proxy.Host) {
			return u.User
		}
	}
	return nil
}

// runChecks runs all checks and prints each result at once.
func runChecks(ctx context.Context, d *doctor, printer *cli.DiagnosisPrinter) error {
	if checksConfig(d) {
		found := checkConfig(d)
		found.Check = configCheck
		if err := printer.Add(found); err != nil || d.configErr != nil {
			return err
		}
	}
	for _, c := range checks {
		all := c.run(ctx, d)
		if err := context.Cause(ctx); err != nil {
			return fmt.Errorf("doctor: %w", err)
		}
		for _, found := range all {
			if found.Check == "" {
				found.Check = c.name
			}
			if err := printer.Add(found); err != nil {
				return err
			}
		}
	}
	return nil
}

// checksConfig reports whether the configuration belongs to the checked proxy or was given with -c. A configuration that cannot be read
// is always reported.
func checksConfig(d *doctor) bool {
	return d.configErr != nil || d.flags.proxy == "" || !d.remote && (d.insideRun || d.flags.File != "")
}
