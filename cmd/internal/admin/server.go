package admin

import (
	"context"
	"iter"
	"log/slog"
	"net"
	"net/http"
	"time"

	"robotsproxy/cmd/internal/redis"
	"robotsproxy/policy"
	"robotsproxy/policy/audit"
	"robotsproxy/policy/audit/live"
	"robotsproxy/policy/pace"
	"robotsproxy/policy/stops"
	"robotsproxy/proxy/archive"
	"robotsproxy/proxy/clientfault"
	"robotsproxy/robots"
	"robotsproxy/robots/cache"
)

// requestTimeout bounds the time to read a request, and the time to write its response.
// Handlers that take longer set their own deadlines.
const requestTimeout = 10 * time.Second

// extendDeadlines gives the response to w more time than the deadlines of the server, which end after requestTimeout.
func extendDeadlines(w http.ResponseWriter, d time.Duration) {
	control, deadline := http.NewResponseController(w), time.Now().Add(d)
	control.SetReadDeadline(deadline)
	control.SetWriteDeadline(deadline)
}

// Options configure a Server. All are required except Metrics, Token, PaceKey, Reload,
// Reloads, Store, About, Clients, Monitor, Warnings, Faults, Evidence, Config, Space, Version, ProxyTLS and SaveStops.
type Options struct {
	// Healthy returns why the proxy is not healthy, or nil.
	Healthy func() error

	// Ready returns why the proxy takes no requests, or nil.
	Ready func() error

	// Metrics answers GET /metrics; nil: the answer is 404.
	Metrics http.Handler

	// Token returns admin.token, which is required for all but health. Nil or "" means that there is no token, and that
	// only requests to local names from this machine are answered.
	Token func() string
	Log   *slog.Logger

	Live  *live.Feed
	Cache RobotsCache
	Pacer *pace.Pacer

	// Dialect returns the dialect in which robots.txt files are shown.
	Dialect func() robots.Dialect

	// PaceKey returns the key under which the Pacer keeps a host; nil: the host itself.
	PaceKey func(host string) string

	// Explain decides a request without sending it, and says how long the request would wait.
	Explain func(context.Context, policy.Request) (policy.Decision, time.Duration)

	// Query returns the query of the cache that decides a request.
	Query func(policy.Request) cache.Query

	// Engine returns the active engine, whose entries of hosts and clients are shown.
	Engine func() *policy.Engine

	// Clients returns the names of the configured clients; nil: there are none.
	Clients func() []string

	// Monitor reports whether decisions are only recorded (mode: monitor); nil: they are enforced.
	Monitor func() bool

	// Reload reloads the configuration. Its error has one line for each mistake. Nil means that the proxy cannot reload.
	Reload func(context.Context) error

	// Reloads returns how many reloads succeeded and failed, the time of the last success, and
	// the error of the last reload, one line for each mistake. Nil means that the proxy cannot
	// reload.
	Reloads func() (ok, refused uint64, lastOK time.Time, lastErr error)

	// NeedRestart returns the keys whose values in the configuration file apply only after a restart; nil: there are none.
	NeedRestart func() []string

	// Store returns the state of this replica in a fleet; nil: the proxy is no replica.
	Store func() Store

	// About returns what only the starting code knows; nil: all of it is unknown.
	About func() About

	// Warnings returns what the operator should see to before it stops requests; nil: nothing.
	Warnings func() []string

	// Faults returns the clients whose settings do not fit the proxy, the latest first; nil: none are known.
	Faults func() []clientfault.Fault

	// Evidence gives access to the audit; nil: the audit cannot be read.
	Evidence *Evidence

	// Config returns the active configuration without its secrets, as YAML; nil: it is not shown.
	Config func() []byte

	// Checkpoint returns the newest checkpoint of the audit, a signed note; nil: there is none.
	Checkpoint func() []byte

	// Space returns how much of the disk the audit takes; nil: unknown.
	Space func() audit.Space

	// CAPEM returns the CA certificate that clients must trust.
	CAPEM func() []byte

	// Proxy is the address on which the proxy listens.
	Proxy   net.Addr
	Version string

	// ProxyTLS is set if clients speak TLS to the proxy.
	ProxyTLS bool

	// BackOffEnded records that an operator has ended the back-off of a host.
	BackOffEnded func(host string) error

	// Stops has the pauses.
	Stops *stops.Table

	// SaveStops stores Stops, and returns when the disk has them. Nil: they end with the process.
	SaveStops func(context.Context) error

	// Paused records that an operator has begun or ended a pause.
	Paused func(stops.Stop) error
}

// missing returns the name of the first required option that is not set.
func (o *Options) missing() string {
	for _, need := range []struct {
		name string
		is   bool
	}{
		{"Healthy", o.Healthy != nil}, {"Ready", o.Ready != nil}, {"Log", o.Log != nil}, {"Live", o.Live != nil},
		{"Cache", o.Cache != nil}, {"Pacer", o.Pacer != nil}, {"Dialect", o.Dialect != nil}, {"Explain", o.Explain != nil},
		{"Query", o.Query != nil}, {"Engine", o.Engine != nil}, {"BackOffEnded", o.BackOffEnded != nil}, {"CAPEM", o.CAPEM != nil},
		{"Proxy", o.Proxy != nil}, {"Stops", o.Stops != nil}, {"Paused", o.Paused != nil},
	} {
		if !need.is {
			return need.name
		}
	}
	return ""
}

// proxyAddress returns the host:port at which a client reaches the proxy. reached is the host:port at which the client has
// reached this listener: if the proxy listens on all addresses, its host is used. If the proxy speaks TLS, https:// stands
// in front. proxyAddress returns "" if reached has no valid host.
func (o *Options) proxyAddress(reached string) string {
	host, port, err := net.SplitHostPort(o.Proxy.String())
	if err != nil {
		return ""
	}
	if ip := net.ParseIP(host); ip.IsUnspecified() {
		origin, err := robots.ParseOrigin("http", reached)
		if err != nil {
			return ""
		}
		host = origin.Host
	}
	host = net.JoinHostPort(host, port)
	if o.ProxyTLS {
		host = "https://" + host
	}
	return host
}

// A RobotsCache has the robots.txt files of all origins. [cache.Cache] implements it. Purge and
// Refetch may also act on further files of the origin.
type RobotsCache interface {
	All() iter.Seq[*cache.Entry]
	Peek(robots.Origin) *cache.Entry
	Purge(robots.Origin) bool
	Refetch(ctx context.Context, q cache.Query) (*cache.Entry, error)
}

// A Server serves the operator's listener. Make one with New, run it with Serve and
// stop it with Shutdown. Its methods may be called by any number of goroutines.
type Server struct {
	http     *http.Server
	opts     Options
	sessions *sessions

	// streamSlots has one slot for each open stream.
	streamSlots slots

	// waitSlots has one slot for each request that waits for an origin.
	waitSlots slots

	// reportSlots has one slot for each report that is made.
	reportSlots slots
	chain       chainCheck

	// streamsDone is closed when all streams must end.
	streamsDone chan struct{}

	// stopStreams closes streamsDone.
	stopStreams func()
	apiMux      *http.ServeMux
	rootMux     *http.ServeMux
}

// About has what only the starting code knows about the proxy.
type About struct {
	// Commit is the commit of the build; "": unknown.
	Commit string

	// Started is when the process started; zero: unknown.
	Started time.Time

	// Config is the configuration file; "": there is none.
	Config string

	// State is the state directory.
	State string

	// Audit is the file of the audit.
	Audit string

	// ArchiveDir has the archive of what is fetched; "": nothing is archived.
	ArchiveDir string
	Archive    archive.Stats

	// Signing has the identities that sign requests; empty: requests are not signed.
	Signing []Signing
}

// A Signing is an identity with which requests are signed.
type Signing struct {
	// Client is the client whose requests are signed; "": all clients without an identity of their own.
	Client string

	// Agent is the URL of the key directory.
	Agent string
	KeyID string
}

// A Store is the state of this replica and of its connection to the store that the replicas
// share.
type Store struct {
	// Replica is the name of this replica.
	Replica string

	// StoreAway is set while this replica paces alone, because the store is unavailable or has only just come back.
	StoreAway bool

	// Returning is set if StoreAway is, although the store answers again.
	Returning bool

	// Why is the cause of StoreAway in a few words.
	Why string

	// Since is when StoreAway last changed; zero: unknown.
	Since time.Time

	// Times is how many times slower than permitted this replica paces; values below 1 count as 1.
	Times float64

	// Members is the number of replicas that were seen last, including this one.
	Members int

	// Expected is the configured number of replicas.
	Expected int

	// Replicas are replicas that share the store, as they told last. Their text is untrusted.
	Replicas []redis.Member

	// Guard is the time by which their clocks may differ.
	Guard time.Duration
}

// slots bounds how many goroutines do something at the same time. Its capacity is the bound.
type slots chan struct{}

// tryAcquire takes a slot if one is free.
func (s slots) tryAcquire() bool {
	select {
	case s <- struct{}{}:
		return true
	default:
		return false
	}
}

func (s slots) release() { <-s }
