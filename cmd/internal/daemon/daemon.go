// Package daemon runs the proxy as a process: it makes every package from one configuration, serves,
// reloads and shuts down. It has the commands serve, config and health.
package daemon

import (
	"crypto/sha256"
	"log/slog"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"robotsproxy/cmd/internal/admin"
	"robotsproxy/cmd/internal/bolt"
	"robotsproxy/cmd/internal/castore"
	"robotsproxy/cmd/internal/config"
	"robotsproxy/cmd/internal/filestore"
	"robotsproxy/cmd/internal/pacefile"
	"robotsproxy/cmd/internal/prom"
	"robotsproxy/policy/audit"
	"robotsproxy/policy/audit/live"
	"robotsproxy/policy/audit/snapshot"
	"robotsproxy/policy/memory"
	"robotsproxy/policy/pace"
	"robotsproxy/proxy"
	"robotsproxy/proxy/archive"
	"robotsproxy/proxy/inbound"
	"robotsproxy/proxy/mitm"
	"robotsproxy/robots"
	"robotsproxy/robots/cache"
)

// A Daemon is a running proxy: every package, made from one configuration in the order in which they
// need each other. The functions in options.go turn the configuration into the packages' own Options.
type Daemon struct {
	log *slog.Logger

	// The active generation.
	Active atomic.Pointer[generation]

	// nil: no state outlives the process.
	store *bolt.Store

	// nil: the process shares no robots.txt and tdmrep.json files by the state directory.
	files *filestore.Store

	// nil: there are no other replicas.
	fleet fleet

	// nil: fleet shares the pace, or nobody does.
	paceFile *pacefile.Table

	// The stored robots.txt files of store, files and fleet; nil without any.
	robotsStore cache.Store

	// Likewise of tdmrep.json files.
	tdmrepStore   cache.Store
	fetchTimer    *prom.Stopwatch
	robotsCache   *cache.Cache
	Pacer         *pace.Pacer
	evidence      *audit.Log
	snapshots     *snapshot.Store
	anchorWriters []*anchorWriter
	memory        *memory.Budget

	// The audit, its snapshots and its key.
	auditDir  string
	auditFile string

	// Of the active configuration's file; zero: there is none.
	configSum [sha256.Size]byte
	savedEnd  savedEnd

	// What audit.max_total_size: auto means, in bytes; 0: nobody has needed it yet.
	autoTotal int64

	// nil without admin.
	feed *live.Feed

	// nil: nothing is archived.
	archive *archive.Archive

	// Of archive.
	payloads *bolt.Payloads

	// archive.max_total_size: auto; 0: not derived yet.
	autoArchive int64

	// nil without admin and monitor.
	metrics *prom.Metrics
	handler *proxy.Handler

	// nil: the configuration is not reloaded.
	reloader *reloader
	listener net.Listener

	// Of redirected connections; nil: there are none.
	transparent net.Listener

	// See Resources.
	nameOf inbound.NameOf

	// listener and transparent are in another network namespace.
	elsewhere bool

	// nil: it is off.
	admin         *admin.Server
	adminListener net.Listener

	// nil: it is off.
	monitor         *admin.Monitor
	monitorListener net.Listener
	draining        atomic.Bool
}

// A savedEnd is the end of the audit that saveAuditEnd has saved last.
type savedEnd struct {
	sync.Mutex
	end audit.End
}

// Resources are what one Daemon has for itself, besides its configuration. The Daemon closes them.
type Resources struct {
	// For the audit and what belongs to it; "": the state directory.
	Dir string

	// That the configuration was read from; "": none.
	ConfigFile string

	// Fetched robots.txt and tdmrep.json files are kept in the state directory for other processes with ShareFiles.
	ShareFiles bool

	// nil: no state outlives the process.
	store *bolt.Store

	// In another network namespace, in place of one on the configured addresses.
	Listener net.Listener

	// Of redirected connections there.
	Transparent net.Listener

	// Names of the destinations of Transparent's connections; nil: there are none.
	NameOf inbound.NameOf
}

// Addr returns the proxy's address as host:port.
func (d *Daemon) Addr() string { return d.listener.Addr().String() }

// CAPEM returns the certificate that clients have to trust.
func (d *Daemon) CAPEM() []byte { return d.Active.Load().rules.Authority.CertPEM() }

// Untrusted are the hosts in whose tunnels a client did not trust the proxy's certificate, or may not have.
type Untrusted struct {
	// The client rejected the certificate.
	Rejected []string

	// It closed the connection during the TLS handshake.
	Closed []string

	// It closed the connection after the TLS handshake, without a request.
	Unused []string
}

// Untrusted returns the hosts for which clients did not trust the proxy's certificate so far.
func (d *Daemon) Untrusted() Untrusted {
	a := d.Active.Load().rules.Authority
	return Untrusted{a.FaultHosts(mitm.FaultUntrusted), a.FaultHosts(mitm.FaultClosed), a.FaultHosts(mitm.FaultUnused)}
}

// AwaitedRobots returns the origin for whose robots.txt requests have waited longest, and since when; zero: none waits.
func (d *Daemon) AwaitedRobots() (robots.Origin, time.Time) { return d.robotsCache.Awaited() }

// token returns admin.token.
func (d *Daemon) token() string { return d.Active.Load().Cfg.Admin.Token }

// AuditFile returns the path of the audit.
func (d *Daemon) AuditFile() string { return d.auditFile }

// tap returns the function that receives each line of the audit; nil: there is none.
func (d *Daemon) tap() func(seq uint64, line []byte) {
	if d.feed == nil || isLeftOut("metrics") {
		return nil
	}
	return d.feed.Tap
}

// paceKey returns the current key of a host's pace.
func (d *Daemon) paceKey(host string) string {
	rules := &d.Active.Load().rules
	if rules.PerAddress {
		if at := rules.Egress.KnownAddress(host); at.IsValid() {
			return at.String()
		}
	}
	return rules.Engine.PaceKey(host)
}

// monitors reports whether decisions are only recorded.
func (d *Daemon) monitors() bool { return d.Active.Load().rules.Monitor }

// clientNames returns the names of the configured clients.
func (d *Daemon) clientNames() (all []string) {
	for _, c := range d.Active.Load().Cfg.Clients {
		all = append(all, c.Name)
	}
	return all
}

// AdminURL returns the URL of the admin listener; "": it is off.
func (d *Daemon) AdminURL() string {
	if d.adminListener == nil {
		return ""
	}
	return ownURL("http", d.adminListener)
}

// ownURL returns the URL of a listener for clients on this machine.
func ownURL(scheme string, l net.Listener) string {
	at := l.Addr().(*net.TCPAddr)
	if at.IP.IsUnspecified() {
		return scheme + "://localhost:" + strconv.Itoa(at.Port) + "/"
	}
	return scheme + "://" + at.String() + "/"
}

// places returns the places that whoever starts the proxy needs next, as attributes for the log: the help page, the
// file of the CA if clients need it, the dashboard and the audit.
func (d *Daemon) places(cfg config.Config) []any {
	scheme := "http"
	if cfg.ListenTLS.Cert != "" {
		scheme = "https"
	}
	all := []any{"help", ownURL(scheme, d.listener)}
	if file, _, err := castore.CAFile(cfg); err == nil && cfg.TLS.Intercept {
		all = append(all, "ca", AbsolutePath(file))
	}
	return append(all, "admin", d.AdminURL(), "audit", d.AuditFile())
}
