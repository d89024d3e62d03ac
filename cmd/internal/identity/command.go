// Package identity implements the command identity: it creates the keys that sign requests (Web Bot Auth), shows them, writes the key
// directory for the operator's web server, and verifies that directory and signed requests. For doctor it also checks a directory.
package identity

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"

	"github.com/spf13/cobra"

	"robotsproxy/cmd/internal/cli"
	"robotsproxy/cmd/internal/config"
	"robotsproxy/cmd/internal/daemon"
	"robotsproxy/policy/explain/humanize"
	"robotsproxy/proxy/signature"
)

// Command returns the command identity.
func Command() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "identity",
		Short: "Create, show, publish and verify the key that signs requests",
		Long: `Create, show, publish and verify the key that signs requests (Web Bot Auth). Its file
and the URL of the key directory are configured in identity.sign.`,
		Example: `  robotsproxy identity key -c robotsproxy.yaml
  robotsproxy identity directory -c robotsproxy.yaml -o /var/www/bot.example
  robotsproxy identity verify -c robotsproxy.yaml`,
	}
	cmd.AddCommand(keyCommand(), showCommand(), directoryCommand(), verifyCommand())
	return cmd
}

func keyCommand() *cobra.Command {
	var f flags
	var next bool
	cmd := &cobra.Command{
		Use:   "key",
		Short: "Create the key that signs requests",
		Long: `Create an Ed25519 key in the file that identity.sign.key names, with mode 0600, and print
its ID. The command replaces no file. Run it as the user that runs the proxy.`,
		Example: `  robotsproxy identity key -c robotsproxy.yaml
  robotsproxy identity key -c robotsproxy.yaml --next`,
		Args: cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, sign, err := f.load()
			if err != nil {
				return err
			}
			file := sign.Key
			if next {
				if file = sign.KeyNext; file == "" {
					return errors.New("--next: set identity.sign.key_next in the configuration")
				}
			}
			key := signature.NewKey()
			if err := create(file, key.PEM()); err != nil {
				return err
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(),
				"key      %s\nfile     %s\nnext     write the key directory: robotsproxy identity directory%s -o DIR\n",
				key.ID(), humanize.Escape(file), humanize.Escape(f.args()))
			return err
		},
	}
	f.add(cmd)
	cmd.Flags().BoolVar(&next, "next", false, "create the key of the next rotation, in the file that identity.sign.key_next names")
	return cmd
}

// create writes a new file that nobody else can read.
func create(name string, data []byte) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%s exists already: to replace its key, see the rotation in docs/identity.md", name)
	}
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Sync(), f.Close())
}

// A shownAgent is an agent as show prints it in JSON.
type shownAgent struct {
	Client string `json:"client,omitempty"`
	Agent  string `json:"agent"`
	KeyID  string `json:"keyid"`

	// Keys has the key that signs first.
	Keys []signature.PublicKey `json:"keys"`
}

func showCommand() *cobra.Command {
	var f cli.ConfigFlags
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "show",
		Short: "Print the IDs of the keys and the agents that they sign for",
		Long: `Print, for each agent of the configuration, the URL of its key directory and the IDs of
its keys: their JWK thumbprints, which are the keyid of signatures. --json also prints
the public keys. The command never prints a private key.`,
		Example: `  robotsproxy identity show -c robotsproxy.yaml
  robotsproxy identity show -c robotsproxy.yaml --json`,
		Args: cli.NoArgs,
		RunE: f.RunE(func(cmd *cobra.Command, cfg config.Config) error {
			agents, err := daemon.Agents(cfg)
			if err == nil && len(agents) == 0 {
				err = errNoSign
			}
			if err != nil {
				return err
			}
			return show(cmd.OutOrStdout(), agents, asJSON)
		}),
	}
	f.Add(cmd)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object a line, with the public keys")
	return cmd
}

func show(out io.Writer, agents []daemon.Agent, asJSON bool) error {
	gap := ""
	for _, a := range agents {
		if asJSON {
			if err := cli.WriteJSON(out, shownAgent{a.Client, a.URL, a.Key.ID(), a.Keys()}); err != nil {
				return err
			}
			continue
		}
		text := gap + "agent    " + a.URL + "\n"
		if a.Client != "" {
			text += "client   " + a.Client + "\n"
		}
		text += "key      " + a.Key.ID() + "\n"
		if a.Next != nil {
			text += "next     " + a.Next.ID() + "\n"
		}
		if _, err := io.WriteString(out, text); err != nil {
			return err
		}
		gap = "\n"
	}
	return nil
}

func directoryCommand() *cobra.Command {
	var f flags
	var dir string
	cmd := &cobra.Command{
		Use:   "directory",
		Short: "Write the key directory for your web server",
		Long: `Write the key directory, a JWK Set with the keys of identity.sign.key and key_next, for
the web server of identity.sign.agent. The file is put below the directory of -o at
the path of that URL. Without -o it is printed. Keys of clients with the same key
directory are in the same file.`,
		Example: `  robotsproxy identity directory -c robotsproxy.yaml -o /var/www/bot.example
  robotsproxy identity directory -c robotsproxy.yaml > jwks.json`,
		Args: cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, agent, all, err := f.agent()
			if err != nil {
				return err
			}
			keys, err := keysOf(agent.URL, all)
			if err != nil {
				return err
			}
			text := signature.Directory(keys...)
			if !cmd.Flags().Changed("output") {
				_, err = cmd.OutOrStdout().Write(text)
				return err
			}
			file, err := writeDirectory(dir, agent.URL, text)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(),
				"file     %s\nnext     publish it as %s, then check it: robotsproxy identity verify%s\n",
				humanize.Escape(file), agent.URL, humanize.Escape(f.args()))
			return err
		},
	}
	f.add(cmd)
	cmd.Flags().StringVarP(&dir, "output", "o", "", "root `DIR` of the web server's files (default: standard output)")
	return cmd
}

// keysOf returns the keys of all agents whose key directory is that of the URL of an agent. Two URLs may name the same directory: the
// origin alone, and the well-known path there.
func keysOf(agent string, all []daemon.Agent) (keys []signature.PublicKey, err error) {
	of, err := signature.DirectoryURL(agent)
	if err != nil {
		return nil, err
	}
	for _, a := range all {
		if own, err := signature.DirectoryURL(a.URL); err == nil && *own == *of {
			keys = append(keys, a.Keys()...)
		}
	}
	return keys, nil
}

// writeDirectory writes a key directory below dir, at the path that its URL has on the web server.
func writeDirectory(dir, agent string, text []byte) (file string, err error) {
	if dir == "" {
		return "", cli.UsageErrorf("-o: empty directory name")
	}
	u, err := signature.DirectoryURL(agent)
	if err != nil {
		return "", err
	}
	at := path.Clean("/" + u.Path)
	if at == "/" || u.Path[len(u.Path)-1] == '/' {
		return "", fmt.Errorf("%s names no file: print the directory without -o, and publish it there", agent)
	}
	file = filepath.Join(dir, filepath.FromSlash(at))
	if _, err := os.Stat(dir); err != nil {
		return "", fmt.Errorf("-o: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return "", err
	}
	if err := cli.ReplaceFile(file, func(w io.Writer) error { _, err := w.Write(text); return err }); err != nil {
		return "", err
	}
	// A web server, which is another user, reads the file. It has nothing secret.
	return file, os.Chmod(file, 0o644)
}
