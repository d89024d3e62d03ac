package doctor

import (
	"context"

	"robotsproxy/cmd/internal/cli"
	"robotsproxy/cmd/internal/daemon"
	"robotsproxy/cmd/internal/identity"
)

// checkIdentity checks the keys that sign requests, and their published directories. Each is fetched.
func checkIdentity(ctx context.Context, d *doctor) (all []cli.Diagnosis) {
	agents, err := daemon.Agents(d.cfg)
	switch {
	case err != nil:
		return []cli.Diagnosis{cli.Fail("create the key with\nrobotsproxy identity key"+d.flags.Args()+"\nor correct the file", "%v", err)}
	case len(agents) == 0:
		return []cli.Diagnosis{cli.Skip("requests are not signed: identity.sign is not set")}
	}
	for _, a := range agents {
		all = append(all, identity.CheckDirectory(ctx, d.cfg, a))
	}
	if !d.cfg.TLS.Intercept {
		return append(all, cli.Warn("set tls.intercept to true", "the proxy intercepts no HTTPS, so it can sign none of these requests"))
	}
	if len(d.cfg.TLS.Tunnel) > 0 {
		all = append(all, cli.OK("requests to the hosts in tls.tunnel are not signed, because the proxy does not see them"))
	}
	return all
}
