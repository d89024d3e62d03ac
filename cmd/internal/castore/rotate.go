package castore

import (
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"robotsproxy/cmd/internal/cli"
	"robotsproxy/cmd/internal/config"
	"robotsproxy/policy/explain/humanize"
	"robotsproxy/proxy/guide"
	"robotsproxy/proxy/mitm"
)

func caNextCommand() *cobra.Command {
	var f cli.ConfigFlags
	cmd := &cobra.Command{
		Use:   "next",
		Short: "Make the CA that ca rotate will use, so that clients can trust it before",
		Long: `Make the CA that the next ca rotate will use. After a reload, the proxy publishes its
certificate together with that of the present CA, which continues to sign: clients that
trust both see nothing of the rotation. If there is a next CA already, the command prints
it. Run the command as the user that runs the proxy.

For a CA of your own (tls.ca_cert), set tls.ca_next.`,
		Example: `  robotsproxy ca next
  robotsproxy ca rotate`,
		Args: cli.NoArgs,
		RunE: f.RunE(func(cmd *cobra.Command, cfg config.Config) error { return next(&f, cfg, cmd.OutOrStdout()) }),
	}
	f.Add(cmd)
	return cmd
}

func next(f *cli.ConfigFlags, cfg config.Config, out io.Writer) error {
	if cfg.TLS.CACert != "" {
		const why = "ca next: the configuration uses a CA of your own, %s: name the certificate of the next one in tls.ca_next"
		return fmt.Errorf(why, cfg.TLS.CACert)
	}
	state, err := cfg.State(os.Getenv)
	if err != nil {
		return err
	}
	c, err := mitm.Next(state)
	if err != nil {
		return adviseNoCA(err)
	}
	_, err = fmt.Fprintf(out, `next     %s
valid    %s
to do    1. make the running proxy publish it: send SIGHUP to robotsproxy serve, or restart it
         2. make this machine trust both: robotsproxy ca install%[3]s
         3. give clients that have a copy of the CA the new file: robotsproxy ca show --pem%[3]s
         4. when all of them trust both: robotsproxy ca rotate%[3]s
`, guide.Fingerprint(c.Raw), validity(c), humanize.Escape(f.Args()))
	return err
}

func caRotateCommand() *cobra.Command {
	var f cli.ConfigFlags
	cmd := &cobra.Command{
		Use:   "rotate",
		Short: "Replace the CA in the state directory by the next one, or a new one",
		Long: `Replace the CA in the state directory by the one that ca next has made, or else by a new
one, which no client trusts yet. The command replaces both files or none. It keeps the
old certificate in ca-previous.pem, so that ca uninstall can remove it, and deletes the
old key. A running proxy uses the old CA until it reloads or restarts. Run the command
as the user that runs the proxy.

The command does not replace a CA of your own (tls.ca_cert).`,
		Example: `  robotsproxy ca rotate && robotsproxy ca install
  sudo -u robotsproxy robotsproxy ca rotate --state /var/lib/robotsproxy`,
		Args: cli.NoArgs,
		RunE: f.RunE(func(cmd *cobra.Command, cfg config.Config) error { return rotate(&f, cfg, cmd.OutOrStdout()) }),
	}
	f.Add(cmd)
	return cmd
}

func rotate(f *cli.ConfigFlags, cfg config.Config, out io.Writer) error {
	if cfg.TLS.CACert != "" {
		const why = "ca rotate: the configuration uses a CA of your own, %s: replace these files, or change tls.ca_cert and tls.ca_key"
		return fmt.Errorf(why, cfg.TLS.CACert)
	}
	state, err := cfg.State(os.Getenv)
	if err != nil {
		return err
	}
	old, now, err := mitm.Rotate(state)
	if err != nil {
		return adviseNoCA(err)
	}
	_, err = fmt.Fprintf(out, `old      %s
new      %s
valid    %s
file     %s
next     1. make the running proxy use it: send SIGHUP to robotsproxy serve, or restart it
         2. make this machine trust it: robotsproxy ca install%[5]s
         3. replace the old file with the new one wherever you distributed it
         4. when the old one is no longer needed: robotsproxy ca uninstall --previous%[5]s
`, guide.Fingerprint(old.Raw), guide.Fingerprint(now.Raw), validity(now),
		humanize.Escape(filepath.Join(state, certName)), humanize.Escape(f.Args()))
	return err
}

// printPrevious prints the CAs that now has replaced, the newest first.
func printPrevious(out io.Writer, now *x509.Certificate, certs []*x509.Certificate, file string) error {
	by := now
	for _, c := range certs {
		_, err := fmt.Fprintf(out, "\nprevious %s\nsha256   %s\nvalid    %s, replaced %s\nfile     %s\n",
			humanize.Escape(c.Subject.String()), guide.Fingerprint(c.Raw), validity(c),
			mitm.CreatedAt(by).UTC().Format(time.DateOnly), humanize.Escape(file))
		if err != nil {
			return err
		}
		by = c
	}
	return nil
}

// adviseNoCA adds to an ErrNoCA how to create a CA.
func adviseNoCA(err error) error {
	if errors.Is(err, mitm.ErrNoCA) {
		return fmt.Errorf("%w: start the proxy or run robotsproxy ca path to create one", err)
	}
	return err
}
