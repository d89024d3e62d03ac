// Package doctor is the command doctor: it looks for what keeps clients from using the proxy.
package doctor

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"robotsproxy/cmd/internal/cli"
	"robotsproxy/cmd/internal/config"
	"robotsproxy/cmd/internal/runner"
	"robotsproxy/proxy/mitm"
)

type doctorFlags struct {
	cli.ConfigFlags
	proxy, site string
	clients     []string
	json        bool
}

func Command() *cobra.Command {
	var f doctorFlags
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Find out whether a client's traffic passes the proxy, and whether it trusts the CA",
		Long: `Look at all that has to be right for a client on this machine: configuration,
state, CA and clock; whether the proxy answers, and what it does with a request
and a tunnel; where the variables of this environment lead; and whether the
clients that are installed trust the CA, by running each of them. A line for
each thing that was looked at: ok, warn, FAIL, or skip where it could not be
looked at; below it what to do. The exit status is 1 if one has failed.

Within robotsproxy run it looks at that run: its proxy, its CA, its variables.

Nothing is changed, and nobody outside is asked but for --site: the clients are
sent to a server of doctor's own on loopback. The proxy's audit has the requests
that it was tried with, of the agent robotsproxy-doctor.`,
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
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM) // to end what it has started
			defer stop()
			told := cli.NewDiagnoses(cmd.OutOrStdout(), f.json, checkConfig)
			if err := d.examine(ctx, told); err != nil {
				return err
			}
			return told.Verdict("doctor")
		},
	}
	f.Add(cmd)
	flags := cmd.Flags()
	flags.StringVar(&f.proxy, "proxy", "", "the `URL` of another proxy than the configuration's; maybe with NAME:PASSWORD@")
	flags.StringVar(&f.site, "site", "", "open a tunnel to `HOST[:PORT]` too, and look at its certificate; no request is sent")
	flags.StringSliceVar(&f.clients, "client", nil, "the `NAMES` of the clients that matter, all of them installed: "+cli.OneOf(clientChoices())+" (default: those that are)")
	flags.BoolVar(&f.json, "json", false, "one JSON object a line")
	cli.OfferList(cmd, "client", clientChoices()...)
	return cmd
}

// A doctor looks at one proxy and at the clients of this machine. Its checks run in
// the order of the table, and what one has learned stands here for those behind it.
type doctor struct {
	flags   *doctorFlags
	cfg     config.Config
	invalid error // of the configuration
	getenv  func(string) string
	now     func() time.Time

	proxy *url.URL // where it is asked
	place string   // where it listens, as host:port: maybe everywhere
	apart bool     // it is another one than the configuration's: files of this machine are not its own

	within bool // this process is in the run that has it: the configuration is that run's

	answers   bool      // the proxy does
	date      time.Time // what it says that it is; zero: nothing
	dated     time.Time // when it said so
	served    *x509.Certificate
	ca        *x509.Certificate // that clients have to trust; nil: not known
	caFile    string            // where it is, for people and for variables
	authority *mitm.Authority   // with the key of ca; nil: it is not on this machine
}

// A look is at one thing; it may find several.
type look struct {
	name string
	run  func(*doctor, context.Context) []cli.Diagnosis
}

const checkConfig = "configuration" // of the first line; no name of a line is longer

// looks are taken in this order. The time of each is bounded by what it does.
var looks = []look{
	{"state", single((*doctor).checkState)},
	{"audit", single((*doctor).checkAudit)},
	{"store", single((*doctor).checkStore)},
	{"proxy", single((*doctor).checkProxy)},
	{"health", single((*doctor).checkHealth)},
	{"CA", single((*doctor).checkCA)},
	{"clock", single((*doctor).checkClock)},
	{"HTTP", single((*doctor).checkHTTP)},
	{"HTTPS", single((*doctor).checkHTTPS)},
	{"site", (*doctor).checkSite},
	{"variables", (*doctor).checkVariables},
	{"clients", (*doctor).checkIgnores},
	{"trust", (*doctor).checkTrust},
}

// single is a check that finds one thing.
func single(run func(*doctor, context.Context) cli.Diagnosis) func(*doctor, context.Context) []cli.Diagnosis {
	return func(d *doctor, ctx context.Context) []cli.Diagnosis { return []cli.Diagnosis{run(d, ctx)} }
}

// newDoctor reads what it is asked to look at. A bad configuration is a finding, a
// bad command line an error.
func newDoctor(ctx context.Context, f *doctorFlags) (*doctor, error) {
	d := &doctor{flags: f, getenv: os.Getenv, now: time.Now}
	for _, name := range f.clients {
		if !slices.Contains(clientChoices(), name) {
			return nil, cli.UsageErrorf("--client %q: %s is wanted", name, cli.OneOf(clientChoices()))
		}
	}
	if f.site != "" {
		if _, err := authorityOf(f.site); err != nil {
			return nil, cli.UsageErrorf("--site %q: %w", f.site, err)
		}
	}
	if d.cfg, d.invalid = f.Load(); d.invalid != nil {
		if _, ok := errors.AsType[cli.UsageError](d.invalid); ok {
			return nil, d.invalid
		}
	}
	var other *url.URL
	if f.Flags.Changed("proxy") {
		var err error
		if other, err = proxyURL(f.proxy); err != nil {
			return nil, cli.UsageErrorf("--proxy: %w", err)
		}
	}
	d.find(ctx, other)
	return d, nil
}

// find settles which proxy is looked at: the one of --proxy, if other is not nil, else that
// of the run around this process, else the configuration's.
func (d *doctor) find(ctx context.Context, other *url.URL) {
	if run, file, ok := runner.RunAround(d.getenv); ok && (other == nil || samePlace(ctx, other.Host, run.Listen)) {
		d.within, d.cfg = true, run
		d.flags.File, d.flags.State = file, "" // for what is to be done
		if run.TLS.CACert == "" {
			d.flags.File, d.flags.State = "", run.StateDir // which outlasts the run
		}
	}
	d.place = d.cfg.Listen
	d.proxy = &url.URL{Scheme: "http", Host: askable(d.place)}
	if d.cfg.ListenTLS.Cert != "" {
		d.proxy.Scheme = "https"
	}
	if other != nil {
		d.apart = !samePlace(ctx, other.Host, d.place)
		d.proxy, d.place = other, other.Host
	}
}

// examine makes all checks, and says what each has found as soon as it has.
func (d *doctor) examine(ctx context.Context, told *cli.Diagnoses) error {
	if d.speaksOfConfig() {
		found := d.checkConfig()
		found.Check = checkConfig
		if err := told.Add(found); err != nil || d.invalid != nil {
			return err
		}
	}
	for _, c := range looks {
		all := c.run(d, ctx)
		if err := context.Cause(ctx); err != nil {
			return fmt.Errorf("doctor: %w", err)
		}
		for _, found := range all {
			if found.Check == "" {
				found.Check = c.name
			}
			if err := told.Add(found); err != nil {
				return err
			}
		}
	}
	return nil
}

// speaksOfConfig says whether the configuration is of the proxy that is looked at, or was
// named for it; one that cannot be read always counts.
func (d *doctor) speaksOfConfig() bool {
	return d.invalid != nil || d.flags.proxy == "" || !d.apart && (d.within || d.flags.File != "")
}

// proxyURL reads where a proxy is, as variables and flags say it: without a scheme
// it is http.
func proxyURL(s string) (*url.URL, error) {
	if !strings.Contains(s, "://") {
		s = "http://" + s
	}
	u, err := url.Parse(s)
	if err != nil || u.Hostname() == "" {
		return nil, errors.New("not the URL of a proxy, as in http://127.0.0.1:8080") // err would have the password
	}
	if u.Scheme != "http" && u.Scheme != "https" {
		return nil, fmt.Errorf("%s is not a proxy of ours: the scheme is http, or https", u.Redacted())
	}
	if u.Port() == "" {
		u.Host = net.JoinHostPort(u.Hostname(), map[string]string{"http": "80", "https": "443"}[u.Scheme])
	}
	return u, nil
}

// authorityOf is HOST:PORT for CONNECT, 443 where no port is given.
func authorityOf(site string) (string, error) {
	host, port, err := net.SplitHostPort(site)
	if err != nil {
		host, port = strings.Trim(site, "[]"), "443"
	}
	if host == "" || strings.ContainsAny(host, "/@ \t\r\n") || strings.Trim(port, "0123456789") != "" {
		return "", errors.New("not a host, nor host:port")
	}
	return net.JoinHostPort(host, port), nil
}
