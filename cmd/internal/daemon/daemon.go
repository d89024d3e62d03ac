// Package daemon runs the proxy as a process: it makes every package from one configuration, serves,
// reloads and shuts down. It has the commands serve, config and health.
package daemon

import (
	"crypto/sha256"
	"log/slog"
	"net"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"robotsproxy/cmd/internal/admin"
	"robotsproxy/cmd/internal/bolt"
	"robotsproxy/cmd/internal/castore"
	"robotsproxy/cmd/internal/config"
	"robotsproxy/cmd/internal/filestore"
	"robotsproxy/cmd/internal/notary"
	"robotsproxy/cmd/internal/pacefile"
	"robotsproxy/cmd/internal/prom"
	"robotsproxy/cmd/internal/version"
	"robotsproxy/policy/audit"
	"robotsproxy/policy/audit/live"
	"robotsproxy/policy/audit/snapshot"
	"robotsproxy/policy/labels"
	"robotsproxy/policy/memory"
	"robotsproxy/policy/pace"
	"robotsproxy/policy/stops"
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

	// Active is the active generation.
	Active atomic.Pointer[generation]

	// store keeps state between processes; nil: no state outlives the process.
	store *bolt.Store

	// files shares robots.txt and tdmrep.json files by the state directory; nil: the process shares none.
	files *filestore.Store

	// fleet is the storage of all replicas; nil: there are no other replicas.
	fleet fleet

	// paceFile shares the pace with processes of this machine; nil: fleet shares the pace, or nobody does.
	paceFile *pacefile.Table

	// robotsStore and tdmrepStore have the stored files of store, files and fleet; nil: there is none of the three.
	robotsStore cache.Store
	tdmrepStore cache.Store
	fetchTimer  *prom.Stopwatch
	robotsCache *cache.Cache
	Pacer       *pace.Pacer
	evidence    *audit.Log
	snapshots   *snapshot.Store
	memory      *memory.Budget

	// notary makes the checkpoints of the audit; nil: the audit is in no regular file.
	notary *notary.Notary

	// started is when New was called.
	started time.Time

	// labels are Resources.Labels.
	labels labels.Set

	// stateDir is the state directory.
	stateDir string

	// auditDir has the audit, unless the configuration names a file, its snapshots and its key.
	auditDir  string
	auditFile string

	// configSum is the checksum of the active configuration's file; zero: there is no file.
	configSum [sha256.Size]byte
	savedEnd  savedEnd

	// stops has the hosts to which nothing may be sent now.
	stops      *stops.Table
	savedStops savedStops

	// autoTotal is what audit.max_total_size: auto means, in bytes; 0: it was not derived yet.
	autoTotal int64

	// feed has the latest requests for admin; nil: there is no admin.
	feed *live.Feed

	// archive receives what is fetched; nil: nothing is archived.
	archive *archive.Archive

	// payloads is the index of archive.
	payloads *bolt.Payloads

	// autoArchive is what archive.max_total_size: auto means, in bytes; 0: it was not derived yet.
	autoArchive int64

	// metrics counts requests for admin and monitor; nil: there is neither.
	metrics *prom.Metrics
	handler *proxy.Handler

	// reloader replaces the active generation; nil: the configuration is not reloaded.
	reloader *reloader
	listener net.Listener

	// transparent accepts redirected connections; nil: there are none.
	transparent net.Listener

	// nameOf is NameOf of the Resources.
	nameOf inbound.NameOf

	// elsewhere is set if listener and transparent are in another network namespace.
	elsewhere bool

	// admin is nil if it is off.
	admin         *admin.Server
	adminListener net.Listener

	// monitor is nil if it is off.
	monitor         *admin.Monitor
	monitorListener net.Listener

	// draining is set when the shutdown begins.
	draining atomic.Bool
}

// A savedEnd is the end of an audit that the store has.
type savedEnd struct {
	sync.Mutex
	bolt.AuditEnd
}

// Resources are what one Daemon has for itself, besides its configuration. The Daemon closes them.
type Resources struct {
	// Dir is the directory for the audit and what belongs to it; "": the state directory.
	Dir string

	// ConfigFile is the file from which the configuration was read; "": there is none.
	ConfigFile string

	// ShareFiles keeps fetched robots.txt and tdmrep.json files in the state directory, for all processes with ShareFiles.
	ShareFiles bool

	// Labels are those of all requests.
	Labels labels.Set

	// store keeps state between processes; nil: no state outlives the process.
	store *bolt.Store

	// Listener is in another network namespace. It replaces those on the configured addresses; nil: it does not.
	Listener net.Listener

	// Transparent accepts redirected connections in the namespace of Listener.
	Transparent net.Listener

	// NameOf names the destinations of Transparent's connections; nil: they have no names.
	NameOf inbound.NameOf
}

// Addr returns the proxy's address as host:port.
func (d *Daemon) Addr() string { return d.listener.Addr().String() }

// CAPEM returns the certificates that clients have to trust: the CA that signs, its issuers, and the one that will sign next.
func (d *Daemon) CAPEM() []byte { return d.Active.Load().caPEM }

// Untrusted are the hosts in whose tunnels a client did not trust the proxy's certificate, or may not have.
type Untrusted struct {
	// Rejected are the hosts whose certificate a client rejected.
	Rejected []string

	// Closed are the hosts to which a client closed a connection during the TLS handshake.
	Closed []string

	// Unused are the hosts to which a client closed a connection after the TLS handshake, without a request.
	Unused []string
}

// Untrusted returns the hosts for which clients did not trust the proxy's certificate so far.
func (d *Daemon) Untrusted() Untrusted {
	a := d.Active.Load().rules.Authority
	return Untrusted{a.FaultHosts(mitm.FaultUntrusted), a.FaultHosts(mitm.FaultClosed), a.FaultHosts(mitm.FaultUnused)}
}

// AwaitedRobots returns the origin for whose robots.txt requests have waited longest, and since when; zero: no request waits.
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
		if at := rules.Egress.Through(rules.Engine.ParentOf(host)).KnownAddress(host); at.IsValid() {
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
	if file, err := castore.CAFile(cfg); err == nil && cfg.TLS.Intercept {
		all = append(all, "ca", AbsolutePath(file))
	}
	return append(all, "admin", d.AdminURL(), "audit", d.AuditFile())
}

// AbsolutePath returns the absolute path of a file, or file itself if that is not known.
func AbsolutePath(file string) string {
	if abs, err := filepath.Abs(file); err == nil && file != "" {
		return abs
	}
	return file
}

func buildInfo() (number, commit string) {
	info, _ := debug.ReadBuildInfo()
	return version.Of(info)
}
