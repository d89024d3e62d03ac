// Package castore is the command ca: where the proxy's certificate authority is, and which of the
// machine's trust stores (system, Firefox, Java) know it.
package castore

import (
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"

	"robotsproxy/cmd/internal/cli"
	"robotsproxy/cmd/internal/config"
	"robotsproxy/policy/explain/humanize"
	"robotsproxy/proxy/guide"
	"robotsproxy/proxy/mitm"
)

func Command() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "ca",
		Short: "The CA that clients have to trust",
		Example: `  robotsproxy ca show
  curl -x http://127.0.0.1:8080 --cacert "$(robotsproxy ca path)" https://example.com/`,
	}
	cmd.AddCommand(caPathCommand(), caShowCommand(), caInstallCommand(), caUninstallCommand(), caRotateCommand())
	return cmd
}

func caPathCommand() *cobra.Command {
	var f cli.ConfigFlags
	cmd := &cobra.Command{
		Use:   "path",
		Short: "Print where the CA's certificate is",
		Long: `Print one line: where the CA's certificate is, as PEM. Where there is no CA
yet it is made, so that scripts can install it before the proxy first runs.`,
		Example: `  curl -x http://127.0.0.1:8080 --cacert "$(robotsproxy ca path)" https://example.com/`,
		Args:    cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, file, err := usedCA(&f)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), file)
			return err
		},
	}
	f.Add(cmd)
	return cmd
}

func caShowCommand() *cobra.Command {
	var f cli.ConfigFlags
	var asPEM bool
	cmd := &cobra.Command{
		Use:   "show",
		Short: "Print whose the CA is, its fingerprint and how long it is valid",
		Long: `Print whose the CA is, its fingerprint and how long it is valid; behind it those
that ca rotate has replaced. With --pem print the certificate itself.`,
		Example: `  robotsproxy ca show --state /var/lib/robotsproxy
  robotsproxy ca show --pem > ca.pem`,
		Args: cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			a, file, err := usedCA(&f)
			if err != nil {
				return err
			}
			if asPEM {
				_, err = cmd.OutOrStdout().Write(a.CertPEM())
				return err
			}
			c, out := a.Certificate(), cmd.OutOrStdout()
			if _, err := fmt.Fprintf(out, "subject  %s\nsha256   %s\nvalid    %s\nfile     %s\n",
				humanize.Escape(c.Subject.String()), Fingerprint(c.Raw), validity(c), file); err != nil {
				return err
			}
			previous, file, err := replacedCAs(&f)
			if err != nil {
				return err
			}
			return printPrevious(out, c, previous, file)
		},
	}
	f.Add(cmd)
	cmd.Flags().BoolVar(&asPEM, "pem", false, "the certificate itself, where its file cannot be reached: out of a container")
	return cmd
}

// usedCA is the CA that the proxy would use, and the file of its certificate.
func usedCA(f *cli.ConfigFlags) (*mitm.Authority, string, error) {
	cfg, err := f.Load()
	if err != nil {
		return nil, "", err
	}
	file, state, err := caFile(cfg)
	if err != nil {
		return nil, "", err
	}
	a, err := Authority(cfg, state)
	return a, file, err
}

// caFile is where the CA's certificate is, and the state directory where that is in use.
func caFile(cfg config.Config) (file, state string, err error) {
	if cfg.TLS.CACert != "" {
		file, err = filepath.Abs(cfg.TLS.CACert)
		return file, "", err
	}
	if state, err = cli.StateDir(cfg); err != nil {
		return "", "", err
	}
	return filepath.Join(state, "ca.pem"), state, nil
}

// Fingerprint is a SHA-256 as browsers show it, and the proxy's own page.
func Fingerprint(der []byte) string { return guide.Fingerprint(der) }

// Authority loads the CA of the configuration, or the state directory's own.
func Authority(cfg config.Config, state string) (*mitm.Authority, error) {
	if cfg.TLS.CACert != "" {
		return mitm.Load(cfg.TLS.CACert, cfg.TLS.CAKey)
	}
	return mitm.LoadOrCreate(state)
}
