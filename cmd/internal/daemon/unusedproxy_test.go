package daemon

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"robotsproxy/cmd/internal/config"
	"robotsproxy/policy"
	"robotsproxy/policy/audit"
	"robotsproxy/proxy/egress"
)

func TestUnusedProxy(t *testing.T) {
	const is, are = " is set; robotsproxy does not use it: set egress.parent: env", " are set; robotsproxy does not use them: set egress.parent: env"
	for _, c := range []struct {
		name   string
		parent string
		env    map[string]string
		want   string
	}{
		{"none", "", map[string]string{"no_proxy": "a.test"}, ""},
		{"one", "", map[string]string{"http_proxy": "http://proxy.test:3128"}, "http_proxy=http://proxy.test:3128" + is},
		{"several", "", map[string]string{"HTTPS_PROXY": "proxy.test:3128", "all_proxy": "socks5://proxy.test/"}, "HTTPS_PROXY=proxy.test:3128, all_proxy=socks5://proxy.test" + are},
		{"a password", "", map[string]string{"http_proxy": "http://user:s3cr@proxy.test:3128/"}, "http_proxy=http://proxy.test:3128" + is},
		{"a password without a scheme", "", map[string]string{"http_proxy": "user:s3cr@proxy.test:3128"}, "http_proxy=proxy.test:3128" + is},
		{"a password with a slash", "", map[string]string{"http_proxy": "http://user:s3cr/et@proxy.test"}, "http_proxy=(not a proxy)" + is},
		{"a password with a question mark", "", map[string]string{"http_proxy": "http://s3cr?et@proxy.test"}, "http_proxy=(not a proxy)" + is},
		{"a password with a bad escape", "", map[string]string{"http_proxy": "http://user:s3cr%zz@proxy.test"}, "http_proxy=(not a proxy)" + is},
		{"no URL", "", map[string]string{"http_proxy": "\x1b[2J"}, "http_proxy=(not a proxy)" + is},
		{"used", config.ParentEnv, map[string]string{"http_proxy": "http://proxy.test:3128"}, ""},
		{"another is used", "http://other.test", map[string]string{"http_proxy": "http://proxy.test:3128"}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := config.Default()
			cfg.Egress.Parent = c.parent
			if got := UnusedProxy(cfg, func(name string) string { return c.env[name] }); got != c.want {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}

func TestUnreached(t *testing.T) {
	dial := &net.OpError{Op: "dial", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	for _, c := range []struct {
		name    string
		verdict policy.Verdict
		reason  policy.Reason
		err     error
		want    bool
	}{
		{"refused", policy.Refuse, policy.ReasonOrigin, dial, true},
		{"a name", policy.Refuse, policy.ReasonOrigin, &net.DNSError{IsNotFound: true}, true},
		{"robots.txt", policy.Refuse, policy.ReasonUnreachable, errors.Join(errors.New("fetch"), dial), true},
		{"allowed by a cached robots.txt", policy.Allow, policy.ReasonNoRule, dial, true},
		{"allowed, and sent", policy.Allow, policy.ReasonNoRule, nil, false},
		{"a certificate", policy.Refuse, policy.ReasonOrigin, errors.New("x509"), false},
		{"a connection that broke", policy.Refuse, policy.ReasonOrigin, &net.OpError{Op: "read", Err: syscall.ECONNRESET}, false},
		{"the upstream proxy", policy.Refuse, policy.ReasonParent, dial, false},
		{"the upstream proxy of an entry", policy.Allow, policy.ReasonNoRule, fmt.Errorf("%w: %w", egress.ErrParent, dial), false},
		{"a rule", policy.Refuse, policy.ReasonRule, nil, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := Unreached(&audit.Record{Decision: policy.Decision{Verdict: c.verdict, Reason: c.reason, Err: c.err}}); got != c.want {
				t.Errorf("in the decision: %v, want %v", got, c.want)
			}
			if got := Unreached(&audit.Record{Decision: policy.Decision{Verdict: c.verdict, Reason: c.reason}, Err: c.err}); got != c.want {
				t.Errorf("in the record: %v, want %v", got, c.want)
			}
		})
	}
}

// TestUnusedWarning: the log names the variables at the first failure, and again after ten minutes.
func TestUnusedWarning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var text bytes.Buffer
		unused := "http_proxy=x is set"
		w := &unusedWarning{log: slog.New(slog.NewTextHandler(&text, nil)), unused: func() string { return unused }}
		fails := func(reason policy.Reason) {
			w.Write(&audit.Record{Decision: policy.Decision{Reason: reason, Err: &net.DNSError{Err: "no such host"}}})
		}
		for _, c := range []struct {
			after  time.Duration
			reason policy.Reason
			unused string
			want   int
		}{
			{0, policy.ReasonRule, unused, 0},
			{0, policy.ReasonOrigin, unused, 1},
			{unusedEvery - 1, policy.ReasonOrigin, unused, 1},
			{1, policy.ReasonOrigin, unused, 2},
			{time.Hour, policy.ReasonOrigin, "", 2},
		} {
			time.Sleep(c.after)
			unused = c.unused
			fails(c.reason)
			if n := strings.Count(text.String(), "http_proxy=x is set"); n != c.want {
				t.Errorf("%d warnings, want %d:\n%s", n, c.want, &text)
			}
		}
	})
}
