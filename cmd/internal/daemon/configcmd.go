package daemon

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"robotsproxy/cmd/internal/cli"
	"robotsproxy/cmd/internal/config"
	"robotsproxy/cmd/internal/notary"
	"robotsproxy/policy/explain/humanize"
	"robotsproxy/proxy/mitm"
)

// ConfigCommand returns the command config.
func ConfigCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Check or show the configuration",
		Example: `  robotsproxy config example > robotsproxy.yaml
  robotsproxy config check -c robotsproxy.yaml
  robotsproxy config show -c robotsproxy.yaml`,
	}
	cmd.AddCommand(configCheckCommand(), configShowCommand(), configExampleCommand(), configSchemaCommand())
	return cmd
}

func configCheckCommand() *cobra.Command {
	var f cli.ConfigFlags
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Check a configuration and the files that it names",
		Long: `Check a configuration and the files that it names. Entries of hosts that have expired, and
an entry that ignores the robots.txt of all hosts for ever, are warnings: the exit status
is 0.`,
		Example: `  robotsproxy config check -c robotsproxy.yaml`,
		Args:    cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := f.Load()
			if err == nil {
				err = CheckFiles(cfg)
			}
			if err != nil {
				return err
			}
			for _, line := range advice(cfg, time.Now()) {
				fmt.Fprintf(cmd.ErrOrStderr(), "warning: %s\n", humanize.Escape(line))
			}
			name := f.File
			if name == "" {
				name = "the defaults"
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s: ok\n", humanize.Escape(name))
			return err
		},
	}
	f.Add(cmd)
	return cmd
}

// CheckFiles checks what the configuration file alone cannot show: the files that it names, and the
// identity. It creates no file.
func CheckFiles(cfg config.Config) error {
	faults := []error{checkIdentity(cfg)}
	if cfg.TLS.CACert != "" {
		_, err := mitm.Load(cfg.TLS.CACert, cfg.TLS.CAKey)
		faults = append(faults, err)
	}
	_, err := listenTLS(cfg)
	faults = append(faults, err)
	_, _, err = Signers(cfg)
	faults = append(faults, err)
	d, err := NewEgress(cfg)
	if err == nil {
		d.Close()
	}
	faults = append(faults, err, notary.CheckWritable(CheckpointSettings(cfg, "", "")), checkFIFO(cfg))
	if file := cfg.Audit.File; file != "" && file != "-" {
		if _, err := os.Stat(filepath.Dir(file)); err != nil {
			faults = append(faults, fmt.Errorf("audit.file: %w", err))
		}
	}
	return errors.Join(faults...)
}

func configShowCommand() *cobra.Command {
	var f cli.ConfigFlags
	cmd := &cobra.Command{
		Use:   "show",
		Short: "Print the active configuration with every key",
		Long: `Print the active configuration with every key, in the form of a configuration file.
Passwords, password hashes and admin.token are hidden. No password matches a hidden
hash, and the proxy does not start with a hidden token.`,
		Example: `  robotsproxy config show -c robotsproxy.yaml`,
		Args:    cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := f.Load()
			if err != nil {
				return err
			}
			_, err = cmd.OutOrStdout().Write(cfg.Redacted().Marshal())
			return err
		},
	}
	f.Add(cmd)
	return cmd
}

func configExampleCommand() *cobra.Command {
	return printCommand(&cobra.Command{
		Use:     "example",
		Short:   "Print a configuration file in which every key has its default",
		Example: `  robotsproxy config example > robotsproxy.yaml`,
		// The text is made when the command runs, since every start of the program makes this command.
	}, func() []byte { return config.Default().Marshal() })
}

func configSchemaCommand() *cobra.Command {
	return printCommand(&cobra.Command{
		Use:   "schema",
		Short: "Print the JSON schema of the configuration, for editors",
		Long: `Print the JSON schema (draft 2020-12) of the configuration. With it, an editor completes
and explains keys and marks mistakes. Editors with a YAML language server find it by
the first line of a configuration:

  # yaml-language-server: $schema=robotsproxy.schema.json

The schema does not express every rule. robotsproxy config check does.`,
		Example: `  robotsproxy config schema > robotsproxy.schema.json`,
	}, config.Schema)
}

// printCommand makes cmd print what text returns.
func printCommand(cmd *cobra.Command, text func() []byte) *cobra.Command {
	cmd.Args = cli.NoArgs
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		_, err := cmd.OutOrStdout().Write(text())
		return err
	}
	return cmd
}
