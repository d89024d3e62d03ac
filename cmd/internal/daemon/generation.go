package daemon

import (
	"bytes"
	"crypto/tls"
	"reflect"
	"time"

	"robotsproxy/cmd/internal/config"
	"robotsproxy/policy/audit"
	"robotsproxy/policy/audit/snapshot"
	"robotsproxy/proxy"
	"robotsproxy/proxy/archive"
	"robotsproxy/proxy/egress"
	"robotsproxy/proxy/guide"
	"robotsproxy/robots"
	"robotsproxy/robots/cache"
)

// A generation is one configuration and all that was made from it and can be replaced while the daemon
// runs.
type generation struct {
	Cfg     config.Config
	rules   proxy.Rules
	egress  egress.Options // of rules.Egress
	agents  []Agent        // whose signatures requests get
	dialect robots.Dialect // of clients without one of their own
	cache   cache.Options
	audit   audit.Options   // without its Snapshots
	archive archive.Options // without its Index

	tdmrep        *tdmrepCache // nil: tdmrep.json files are not read
	tdmrepOptions cache.Options

	snapshots snapshot.Options
	memory    int64 // the budget of the process in bytes
}

// close closes what was made for f alone, if f is not activated.
func (f *generation) close(before *generation) {
	if f.rules.Egress != nil && (before == nil || f.rules.Egress != before.rules.Egress) {
		f.rules.Egress.Close()
	}
}

// newEgress makes an egress client with the pseudonym of the one before, since a request that it has
// sent may still come back, and with its counters.
func newEgress(way egress.Options, before *generation) (*egress.Client, error) {
	if before != nil {
		way.Previous = before.rules.Egress
	}
	return egress.New(way)
}

// sameEgress reports whether two egress clients would behave alike.
func sameEgress(a, b egress.Options) bool {
	if !a.Roots.Equal(b.Roots) {
		return false
	}
	a.Roots, b.Roots = nil, nil
	return reflect.DeepEqual(a, b)
}

// certChanges returns what differs from before although no key does, as attributes for the log.
func (f *generation) certChanges(before *generation) (all []any) {
	if f.rules.Authority != before.rules.Authority {
		ca := f.rules.Authority.Certificate()
		all = append(all, "ca_sha256", guide.Fingerprint(ca.Raw), "ca_until", ca.NotAfter.UTC().Format(time.DateOnly))
	}
	if !bytes.Equal(chainOf(f.rules.TLS), chainOf(before.rules.TLS)) {
		leaf := f.rules.TLS.Certificates[0].Leaf
		all = append(all, "listen_tls_sha256", guide.Fingerprint(leaf.Raw), "listen_tls_until", leaf.NotAfter.UTC().Format(time.DateOnly))
	}
	if now := keyIDs(f.agents); now != keyIDs(before.agents) {
		all = append(all, "signing_keys", now)
	}
	if f.rules.Egress != before.rules.Egress {
		all = append(all, "egress", "new connections")
	}
	return all
}

// chainOf returns the certificate chain of the proxy's own port; nil: it does not use TLS.
func chainOf(c *tls.Config) []byte {
	if c == nil {
		return nil
	}
	return bytes.Join(c.Certificates[0].Certificate, nil)
}
