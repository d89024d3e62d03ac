package identity

import (
	"errors"
	"slices"

	"github.com/spf13/cobra"

	"robotsproxy/cmd/internal/cli"
	"robotsproxy/cmd/internal/config"
	"robotsproxy/cmd/internal/daemon"
)

// flags are the flags of the commands that use a key.
type flags struct {
	cli.ConfigFlags
	client string
}

func (f *flags) add(cmd *cobra.Command) {
	f.Add(cmd)
	cmd.Flags().StringVar(&f.client, "client", "",
		"`NAME` of the entry in clients whose key is meant (default: the key of all clients without their own)")
}

// args returns the flags as another command of identity needs them.
func (f *flags) args() string {
	if f.client == "" {
		return f.Args()
	}
	return f.Args() + " --client " + cli.ShellQuote(f.client)
}

var errNoSign = errors.New("no key is configured: set identity.sign.key and identity.sign.agent in the configuration, " +
	"and name its file with -c")

// load reads the configuration and what signs the requests of the client.
func (f *flags) load() (cfg config.Config, sign config.ClientSign, err error) {
	if cfg, err = f.Load(); err != nil {
		return cfg, sign, err
	}
	all := cfg.Identity.Sign
	sign = config.ClientSign{Key: all.Key, KeyNext: all.KeyNext, Agent: all.Agent}
	if f.Flags.Changed("client") {
		// An unset variable of a script must not select another key.
		if f.client == "" {
			return cfg, sign, cli.UsageErrorf("--client: empty name")
		}
		at := slices.IndexFunc(cfg.Clients, func(c config.Client) bool { return c.Name == f.client })
		if at < 0 {
			return cfg, sign, cli.UsageErrorf("--client %q: the configuration has no such entry in clients", f.client)
		}
		sign = cfg.Clients[at].Identity.Sign
	}
	switch {
	case sign.Key != "":
		return cfg, sign, nil
	case slices.ContainsFunc(cfg.Clients, func(c config.Client) bool { return c.Identity.Sign.Key != "" }):
		return cfg, sign, cli.UsageErrorf("only clients have keys: name the client with --client")
	}
	return cfg, sign, errNoSign
}

// agent reads the keys of the client, and all agents of the configuration.
func (f *flags) agent() (cfg config.Config, agent daemon.Agent, all []daemon.Agent, err error) {
	if cfg, _, err = f.load(); err != nil {
		return cfg, agent, nil, err
	}
	if all, err = daemon.Agents(cfg); err != nil {
		return cfg, agent, nil, err
	}
	// load has found the key of the client, so it has an agent.
	at := slices.IndexFunc(all, func(a daemon.Agent) bool { return a.Client == f.client })
	return cfg, all[at], all, nil
}
