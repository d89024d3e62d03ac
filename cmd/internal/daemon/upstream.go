package daemon

import (
	"cmp"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"reflect"
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

// hostParents returns the upstream proxy of each entry of hosts as policy.Host.Parent names it, and as egress.Options.Parents has
// it. A name has no login, so that decisions and pages may contain it; upstream proxies that differ in the login alone are numbered.
func hostParents(entries []config.Host) (names []string, parents map[string]*url.URL) {
	parents = make(map[string]*url.URL)
	for _, h := range entries {
		name := h.Parent
		switch name {
		case "":
		case config.ParentDirect:
			parents[name] = nil
		default:
			name = addParent(parents, h.Parent)
		}
		names = append(names, name)
	}
	return names, parents
}

// addParent adds an upstream proxy to parents unless they have it, and returns its name there.
func addParent(parents map[string]*url.URL, text string) (name string) {
	u, err := url.Parse(text)
	if err != nil {
		// The configuration was checked. egress.New refuses a URL without a scheme.
		u = new(url.URL)
	}
	shown := url.URL{Scheme: u.Scheme, Host: u.Host}
	name = shown.String()
	for n := 2; parents[name] != nil && !reflect.DeepEqual(parents[name], u); n++ {
		name = fmt.Sprintf("%s (%d)", &shown, n)
	}
	parents[name] = u
	return name
}

// fileParents returns what decides through which upstream proxy the robots.txt of each host is fetched: match and parent of the
// entries without paths, up to the last that has a parent.
func fileParents(entries []config.Host) (all []string) {
	var seen []string
	for _, h := range entries {
		if len(h.Paths) > 0 {
			continue
		}
		if seen = append(seen, h.Match+" "+h.Parent); h.Parent != "" {
			all = seen
		}
	}
	return all
}

// logNoEnvironment says that egress.parent: env means no upstream proxy, if so.
func logNoEnvironment(cfg config.Config, log *slog.Logger) {
	if cfg.Egress.Parent == config.ParentEnv && environment(os.Getenv).IsZero() {
		log.Info("no upstream proxy in the environment, connecting to origins directly", "egress.parent", config.ParentEnv,
			"variables", "http_proxy, https_proxy, all_proxy")
	}
}
