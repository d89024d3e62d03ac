package daemon

import (
	"cmp"
	"log/slog"
	"os"
	"strings"

	"robotsproxy/cmd/internal/config"
	"robotsproxy/proxy/egress"
)

// environment returns what the environment says about upstream proxies. Lower case takes precedence.
func environment(getenv func(string) string) egress.Environment {
	value := func(name string) string { return cmp.Or(getenv(name), getenv(strings.ToUpper(name))) }
	all := value("all_proxy")
	return egress.Environment{
		HTTP: cmp.Or(value("http_proxy"), all), HTTPS: cmp.Or(value("https_proxy"), all), FTP: all, NoProxy: value("no_proxy"),
	}
}

// logNoEnvironment says that egress.parent: env means no upstream proxy, if so.
func logNoEnvironment(cfg config.Config, log *slog.Logger) {
	if cfg.Egress.Parent == config.ParentEnv && environment(os.Getenv).IsZero() {
		log.Info("no upstream proxy in the environment, connecting to origins directly", "egress.parent", config.ParentEnv,
			"variables", "http_proxy, https_proxy, all_proxy")
	}
}
