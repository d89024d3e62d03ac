package main

import (
	"crypto/sha256"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"robotsproxy/cmd/internal/config"
	"robotsproxy/proxy/mitm"
)

func caCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "ca",
		Short: "The CA that clients have to trust",
		Example: `  robotsproxy ca show
  curl -x http://127.0.0.1:8080 --cacert "$(robotsproxy ca path)" https://example.com/`,
	}
	cmd.AddCommand(caPathCommand(), caShowCommand())
	return cmd
}

func caPathCommand() *cobra.Command {
	var f configFlags
	cmd := &cobra.Command{
		Use:   "path",
		Short: "Print where the CA's certificate is",
		Long: `Print one line: where the CA's certificate is, as PEM. Where there is no CA
yet it is made, so that scripts can install it before the proxy first runs.`,
		Example: `  curl -x http://127.0.0.1:8080 --cacert "$(robotsproxy ca path)" https://example.com/`,
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, file, err := f.authority()
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), file)
			return err
		},
	}
	f.add(cmd)
	return cmd
}

func caShowCommand() *cobra.Command {
	var f configFlags
	cmd := &cobra.Command{
		Use:     "show",
		Short:   "Print whose the CA is, its fingerprint and how long it is valid",
		Example: `  robotsproxy ca show --state /var/lib/robotsproxy`,
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			a, file, err := f.authority()
			if err != nil {
				return err
			}
			c := a.Certificate()
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "subject  %s\nsha256   %s\nvalid    %s to %s\nfile     %s\n",
				harmless(c.Subject.String()), fingerprint(c.Raw),
				c.NotBefore.UTC().Format(time.DateOnly), c.NotAfter.UTC().Format(time.DateOnly), file)
			return err
		},
	}
	f.add(cmd)
	return cmd
}

// authority is the CA that the proxy would use, and the file of its certificate.
func (f *configFlags) authority() (*mitm.Authority, string, error) {
	cfg, err := f.load()
	if err != nil {
		return nil, "", err
	}
	file, state, err := caFile(cfg)
	if err != nil {
		return nil, "", err
	}
	a, err := authority(cfg, state)
	return a, file, err
}

// caFile is where the CA's certificate is, and the state directory where that is in use.
func caFile(cfg config.Config) (file, state string, err error) {
	if cfg.TLS.CACert != "" {
		file, err = filepath.Abs(cfg.TLS.CACert)
		return file, "", err
	}
	if state, err = stateDir(cfg); err != nil {
		return "", "", err
	}
	return filepath.Join(state, "ca.pem"), state, nil
}

// fingerprint is a SHA-256 as browsers show it.
func fingerprint(der []byte) string {
	sum := sha256.Sum256(der)
	return strings.ReplaceAll(fmt.Sprintf("% X", sum), " ", ":")
}
