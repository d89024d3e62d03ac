package auditcmd

import (
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/spf13/cobra"

	"robotsproxy/cmd/internal/cli"
	"robotsproxy/cmd/internal/config"
	"robotsproxy/cmd/internal/daemon"
	"robotsproxy/policy/explain/humanize"
)

func auditKeyCommand() *cobra.Command {
	var f cli.ConfigFlags
	var public, add, retire bool
	cmd := &cobra.Command{
		Use:   "key",
		Short: "Create, print or rotate the key that signs checkpoints",
		Long: `Create the Ed25519 key that signs checkpoints of the audit, in the file of
audit.checkpoint.key or, without it, in the state directory, with mode 0600, and print
its public key. Without --add or --retire, it replaces no file. serve creates a missing
key in the state directory by itself. Run the command as the user that runs the proxy.

--public prints the public keys, for audit verify --key. Give them to those who verify
the audit before they need them.

To rotate the key, add a second one: both sign from then on. When everybody who verifies
the audit has the new public key, retire the old one. The proxy reads the file again for
each checkpoint.`,
		Example: `  robotsproxy audit key --public > audit.pub
  robotsproxy audit key --add`,
		Args: cli.NoArgs,
		RunE: f.RunE(func(cmd *cobra.Command, cfg config.Config) error {
			state, err := cli.StateDir(cfg)
			if err != nil {
				return err
			}
			s := daemon.CheckpointSettings(cfg, state, "")
			switch {
			case public:
			case add:
				err = s.Keys.Add(s.Origin)
			case retire:
				err = s.Keys.Retire()
			default:
				if err = s.Keys.Create(s.Origin); errors.Is(err, fs.ErrExist) {
					err = fmt.Errorf("%s exists already: print its public key with --public, or add another one with --add",
						humanize.Escape(s.Keys.Path))
				}
			}
			if err != nil {
				return err
			}
			text, err := s.Keys.Public()
			if err != nil {
				return err
			}
			_, err = io.WriteString(cmd.OutOrStdout(), text)
			return err
		}),
	}
	f.Add(cmd)
	flags := cmd.Flags()
	flags.BoolVar(&public, "public", false, "only print the public keys")
	flags.BoolVar(&add, "add", false, "add another key, which signs together with the others")
	flags.BoolVar(&retire, "retire", false, "remove the oldest key, after another one was added")
	cmd.MarkFlagsMutuallyExclusive("public", "add", "retire")
	return cmd
}
