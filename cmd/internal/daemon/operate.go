package daemon

import (
	"path/filepath"
	"runtime/debug"
	"time"

	"robotsproxy/cmd/internal/version"
	"robotsproxy/policy"
	"robotsproxy/policy/audit"
	"robotsproxy/policy/audit/live"
	"robotsproxy/proxy/admin"
	"robotsproxy/robots"
	"robotsproxy/robots/cache"
)

// openFeed makes what the operator is shown of requests while they come, where there
// is an admin listener.
func (h *Daemon) openFeed() (err error) {
	if h.adminAt == nil {
		return nil
	}
	h.feed, err = live.New(live.Options{Waiting: func() int { return h.Pacer.Stats().Waiting }})
	return err
}

// tap is told of each line of the audit; nil: nobody is.
func (h *Daemon) tap() func(seq uint64, line []byte) {
	if h.feed == nil || without("metrics") {
		return nil
	}
	return h.feed.Tap
}

// sinks are told of each request: the evidence first, then others, then what the
// operator is shown.
func (h *Daemon) sinks(others []audit.Sink) (all []audit.Sink, err error) {
	if !without("audit") {
		all = append(all, h.evidence)
	}
	all = append(all, others...)
	if h.adminAt == nil {
		return all, nil
	}
	if h.counts, err = h.metrics(); err != nil || without("metrics") {
		return all, err
	}
	return append(all, h.counts, h.feed), nil
}

// keep gives the function that keeps the robots.txt files that decisions rest on.
func (h *Daemon) keep() func(*audit.Record) error {
	if without("audit") {
		return func(*audit.Record) error { return nil }
	}
	return h.evidence.Keep
}

// paceKey says what the pace of a host is kept under now.
func (h *Daemon) paceKey(host string) string {
	rules := &h.Now.Load().rules
	if rules.PerAddress {
		if at := rules.Egress.KnownAddress(host); at.IsValid() {
			return at.String()
		}
	}
	return rules.Engine.PaceKey(host)
}

// clientNames are those of the configuration in force.
func (h *Daemon) clientNames() (all []string) {
	for _, c := range h.Now.Load().Cfg.Clients {
		all = append(all, c.Name)
	}
	return all
}

func buildInfo() (number, commit string) {
	info, _ := debug.ReadBuildInfo()
	return version.Of(info)
}

// openAdmin makes the operator's side, when all that it shows is there.
func (h *Daemon) openAdmin() (err error) {
	if h.adminAt == nil {
		return nil
	}
	version, commit := buildInfo()
	started := time.Now()
	h.admin, err = admin.New(admin.Options{
		Healthy: h.evidence.Err, Ready: h.ready, Metrics: h.counts.Handler(), Log: h.log,
		Token:   h.token,
		Live:    h.feed,
		Book:    h.book,
		Pacer:   h.Pacer,
		Dialect: func() robots.Dialect { return h.Now.Load().dialect },
		PaceKey: h.paceKey,
		Explain: h.handler.Explain,
		Query:   func(r policy.Request) cache.Query { return h.Now.Load().rules.Engine.Query(r) },
		Clients: h.clientNames,
		Reload:  h.Reload,
		Reloads: h.Reloads,
		Store:   h.sharing(),
		About: func() admin.About {
			about := admin.About{Commit: commit, Started: started, State: h.home, Audit: h.auditFile}
			if h.reloader != nil {
				about.Config = AbsolutePath(h.reloader.from.file)
			}
			return about
		},
		CAPEM: h.CAPEM,
		Proxy: h.listener.Addr(), ProxyTLS: h.Now.Load().rules.TLS != nil, // which no reload changes
		Version: version,
	})
	return err
}

// AbsolutePath is the whole path of a file, or its name where there is no telling.
func AbsolutePath(file string) string {
	if abs, err := filepath.Abs(file); err == nil && file != "" {
		return abs
	}
	return file
}

// AdminURL is where the operator's side is; "" where it is off.
func (h *Daemon) AdminURL() string {
	if h.adminAt == nil {
		return ""
	}
	return "http://" + h.adminAt.Addr().String() + "/"
}
