package identity

import (
	"errors"
	"slices"

	"github.com/spf13/cobra"

	"robotsproxy/cmd/internal/cli"
	"robotsproxy/cmd/internal/config"
	"robotsproxy/cmd/internal/daemon"
)

// flags are those of each command.
type flags struct {
	cli.ConfigFlags
	client string
}

func (f *flags) add(cmd *cobra.Command) {
	f.Add(cmd)
	cmd.Flags().StringVar(&f.client, "client", "", "`NAME` of the entry in clients whose key is meant (default: the key of all clients without their own)")
}

// args returns the flags as another command of identity needs them.
func (f *flags) args() string {
	if f.client == "" {
		return f.Args()
	}
	return f.Args() + " --client " + cli.ShellQuote(f.client)
}

var errNoSign = errors.New("no key is configured: set identity.sign.key and identity.sign.agent in the configuration, and name its file with -c")

// load reads the configuration and what signs the requests of the client.
func (f *flags) load() (cfg config.Config, sign config.ClientSign, err error) {
	if cfg, err = f.Load(); err != nil {
		return cfg, sign, err
	}
	// An unset variable of a script must not select another key.
	if f.client == "" && f.Flags.Changed("client") {
		return cfg, sign, cli.UsageErrorf("--client: empty name")
	}
	if f.client == "" {
		s := cfg.Identity.Sign
		sign = config.ClientSign{Key: s.Key, KeyNext: s.KeyNext, Agent: s.Agent}
	} else {
		at := slices.IndexFunc(cfg.Clients, func(c config.Client) bool { return c.Name == f.client })
		if at < 0 {
			return cfg, sign, cli.UsageErrorf("--client %q: the configuration has no such entry in clients", f.client)
		}
		sign = cfg.Clients[at].Identity.Sign
	}
	if sign.Key == "" {
		err = errNoSign
		if slices.ContainsFunc(cfg.Clients, func(c config.Client) bool { return c.Identity.Sign.Key != "" }) {
			err = cli.UsageErrorf("only clients have keys: name the client with --client")
		}
		return cfg, sign, err
	}
	return cfg, sign, nil
}

// agent reads the keys of the client, and all agents of the configuration.
func (f *flags) agent() (cfg config.Config, agent daemon.Agent, all []daemon.Agent, err error) {
	if cfg, _, err = f.load(); err != nil {
		return cfg, agent, nil, err
	}
	if all, err = daemon.Agents(cfg); err != nil {
		return cfg, agent, nil, err
	}
	// load has found its key.
	at := slices.IndexFunc(all, func(a daemon.Agent) bool { return a.Client == f.client })
	return cfg, all[at], all, nil
}
