package daemon

import (
	"cmp"
	"errors"
	"log/slog"
	"net"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"robotsproxy/cmd/internal/config"
	"robotsproxy/policy"
	"robotsproxy/policy/audit"
	"robotsproxy/policy/explain/humanize"
	"robotsproxy/proxy/egress"
)

// ProxyVariables are the environment variables by which programs find an upstream proxy.
var ProxyVariables = []string{"http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"}

// UnusedProxy says which variables name an upstream proxy that cfg does not use, without passwords; "": none does.
func UnusedProxy(cfg config.Config, getenv func(string) string) string {
	if cfg.Egress.Parent != "" {
		return ""
	}
	var set []string
	for _, name := range ProxyVariables {
		if value := getenv(name); value != "" {
			set = append(set, name+"="+shownProxy(value))
		}
	}
	switch len(set) {
	case 0:
		return ""
	case 1:
		return set[0] + " is set; robotsproxy does not use it: set egress.parent: " + config.ParentEnv
	}
	return strings.Join(set, ", ") + " are set; robotsproxy does not use them: set egress.parent: " + config.ParentEnv
}

// shownProxy returns the scheme, host and port in a proxy variable, which may have a password.
func shownProxy(value string) string {
	u, err := url.Parse(value)
	// The value may be host:port without a scheme.
	if err != nil || u.Host == "" {
		u, err = url.Parse("//" + value)
	}
	// The beginning of a password with such characters would look like a host.
	if err != nil || u.Host == "" || u.Path != "" && u.Path != "/" || u.RawQuery != "" || u.Fragment != "" {
		return "(not a proxy)"
	}
	u.User, u.Path = nil, ""
	return humanize.Clip(humanize.Escape(strings.TrimPrefix(u.String(), "//")), maxShown)
}

// maxShown bounds the value of a variable in a message, in bytes.
const maxShown = 200

// Unreached reports whether a request failed because its host's name did not resolve, or no connection to the host
// could be made.
func Unreached(r *audit.Record) bool {
	d := &r.Decision
	if d.Verdict != policy.Allow && d.Reason != policy.ReasonOrigin && d.Reason != policy.ReasonUnreachable {
		return false
	}
	err := cmp.Or(d.Err, r.Err)
	_, dns := errors.AsType[*net.DNSError](err)
	op, ok := errors.AsType[*net.OpError](err)
	return (dns || ok && op.Op == "dial") && !errors.Is(err, egress.ErrParent)
}

// unusedEvery is the shortest time between two warnings about variables.
const unusedEvery = 10 * time.Minute

// An unusedWarning is a Sink that warns of proxy variables that are not used when a request is Unreached. The
// response says nothing of them, because clients may be strangers.
type unusedWarning struct {
	log *slog.Logger

	// unused returns the warning, as UnusedProxy does.
	unused func() string

	// next is the Unix time of the next warning, in nanoseconds.
	next atomic.Int64
}

// Write implements [audit.Sink].
func (w *unusedWarning) Write(r *audit.Record) error {
	if !Unreached(r) {
		return nil
	}
	now, next := time.Now(), w.next.Load()
	if now.UnixNano() < next || !w.next.CompareAndSwap(next, now.Add(unusedEvery).UnixNano()) {
		return nil
	}
	if unused := w.unused(); unused != "" {
		host, err := humanize.Clip(r.Request.Origin.Host, maxShown), cmp.Or(r.Decision.Err, r.Err)
		w.log.Warn("host not reached", "host", host, "error", err, "detail", unused)
	}
	return nil
}
