// Package castore implements the command ca: it shows and replaces the proxy's certificate authority, and installs it in the machine's
// trust stores (system, Firefox, Chromium, Java). It also reads the system's root certificates, for the commands run and doctor.
package castore

import (
	"fmt"

	"github.com/spf13/cobra"

	"robotsproxy/cmd/internal/cli"
	"robotsproxy/cmd/internal/config"
	"robotsproxy/policy/explain/humanize"
	"robotsproxy/proxy/guide"
)

// Command returns the command ca.
func Command() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "ca",
		Short: "Show, install or replace the CA that clients must trust",
		Example: `  robotsproxy ca show
  curl -x http://127.0.0.1:8080 --cacert "$(robotsproxy ca path)" https://example.com/`,
	}
	cmd.AddCommand(caPathCommand(), caShowCommand(), caInstallCommand(), caUninstallCommand(), caNextCommand(), caRotateCommand())
	return cmd
}

func caPathCommand() *cobra.Command {
	var f cli.ConfigFlags
	cmd := &cobra.Command{
		Use:   "path",
		Short: "Print the path of the CA certificate",
		Long: `Print the path of the CA certificate, a PEM file. If there is no CA yet, this command
creates it, so that scripts can install it before the proxy runs for the first time.`,
		Example: `  curl -x http://127.0.0.1:8080 --cacert "$(robotsproxy ca path)" https://example.com/`,
		Args:    cli.NoArgs,
		RunE: f.RunE(func(cmd *cobra.Command, cfg config.Config) error {
			_, file, err := usedCA(cfg)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), file)
			return err
		}),
	}
	f.Add(cmd)
	return cmd
}

func caShowCommand() *cobra.Command {
	var f cli.ConfigFlags
	var asPEM bool
	cmd := &cobra.Command{
		Use:   "show",
		Short: "Print the subject, the fingerprint and the validity of the CA",
		Long: `Print the subject, the fingerprint and the validity of the CA, then those of the CA that
will sign next (ca next), and of the CAs that ca rotate has replaced. --pem prints the
certificates that clients must trust: the CA, and the next one.`,
		Example: `  robotsproxy ca show --state /var/lib/robotsproxy
  robotsproxy ca show --pem > ca.pem`,
		Args: cli.NoArgs,
		RunE: f.RunE(func(cmd *cobra.Command, cfg config.Config) error {
			a, file, err := usedCA(cfg)
			if err != nil {
				return err
			}
			next, err := nextInUse(cfg)
			if err != nil {
				return err
			}
			if asPEM {
				_, err = cmd.OutOrStdout().Write(published(a, next))
				return err
			}
			c, out := a.Certificate(), cmd.OutOrStdout()
			if _, err := fmt.Fprintf(out, "subject  %s\nsha256   %s\nvalid    %s\nfile     %s\n",
				humanize.Escape(c.Subject.String()), guide.Fingerprint(c.Raw), validity(c), file); err != nil {
				return err
			}
			if next != nil {
				if _, err := fmt.Fprintf(out, "\nnext     %s\nsha256   %s\nvalid    %s\n",
					humanize.Escape(next.Subject.String()), guide.Fingerprint(next.Raw), validity(next)); err != nil {
					return err
				}
			}
			previous, file, err := replacedCAs(cfg)
			if err != nil {
				return err
			}
			return printPrevious(out, c, previous, file)
		}),
	}
	f.Add(cmd)
	cmd.Flags().BoolVar(&asPEM, "pem", false, "print the certificate, for example to copy it out of a container")
	return cmd
}
