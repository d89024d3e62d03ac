package admin

import (
	"context"
	"iter"
	"log/slog"
	"net"
	"net/http"
	"time"

	"robotsproxy/policy"
	"robotsproxy/policy/audit"
	"robotsproxy/policy/audit/live"
	"robotsproxy/policy/pace"
	"robotsproxy/proxy/clientfault"
	"robotsproxy/robots"
	"robotsproxy/robots/cache"
)

// requestTimeout bounds the time to read a request, and the time to write its response.
// Handlers that take longer set their own deadlines.
const requestTimeout = 10 * time.Second

// Options configure a Server. All are required except Metrics, Token, PaceKey, Reload,
// Reloads, Store, About, Clients, Monitor, Warnings, Faults, Evidence, Config, Space, Version and ProxyTLS.
type Options struct {
	// Why the proxy is not healthy, or nil.
	Healthy func() error

	// Why the proxy takes no requests, or nil.
	Ready func() error

	// Answers GET /metrics; nil: 404.
	Metrics http.Handler

	// admin.token, required for all but health; nil or "": no token, only requests to local names from this machine are
	// answered.
	Token func() string
	Log   *slog.Logger

	Live  *live.Feed
	Cache RobotsCache
	Pacer *pace.Pacer

	// Dialect in which robots.txt files are shown.
	Dialect func() robots.Dialect

	// Key under which the Pacer keeps a host; nil: the host itself.
	PaceKey func(host string) string

	// Decides a request without sending it, and says how long it would wait.
	Explain func(context.Context, policy.Request) (policy.Decision, time.Duration)

	// The cache query that decides a request.
	Query func(policy.Request) cache.Query

	// The active engine, whose entries of hosts and clients are shown.
	Engine func() *policy.Engine

	// Names of the configured clients; nil: none.
	Clients func() []string

	// Reports whether decisions are only recorded (mode: monitor); nil: they are enforced.
	Monitor func() bool

	// Reloads the configuration; its error has one line for each mistake; nil: the proxy cannot reload.
	Reload func(context.Context) error
	// Reloads returns how many reloads succeeded and failed, the time of the last success, and
	// the error of the last reload, one line for each mistake. Nil means that the proxy cannot
	// reload.
	Reloads func() (ok, refused uint64, lastOK time.Time, lastErr error)

	// State of this replica in a fleet; nil: the proxy is no replica.
	Store func() Store

	// nil: all unknown.
	About func() About

	// What the operator should see to before it stops requests; nil: nothing.
	Warnings func() []string

	// Clients whose settings do not fit the proxy, the latest first; nil: none are known.
	Faults func() []clientfault.Fault

	// Access to the audit; nil: the audit cannot be read.
	Evidence *Evidence

	// The active configuration without its secrets, as YAML; nil: it is not shown.
	Config func() []byte

	// How much of the disk the audit takes; nil: unknown.
	Space func() audit.Space

	// The CA certificate that clients must trust.
	CAPEM func() []byte

	// Address on which the proxy listens.
	Proxy   net.Addr
	Version string

	// Clients speak TLS to the proxy.
	ProxyTLS bool

	// Records that an operator has ended the back-off of a host.
	BackOffEnded func(host string) error
}

// missing returns the name of the first required option that is not set.
func (o *Options) missing() string {
	for _, need := range []struct {
		name string
		is   bool
	}{
		{"Healthy", o.Healthy != nil}, {"Ready", o.Ready != nil}, {"Log", o.Log != nil}, {"Live", o.Live != nil},
		{"Cache", o.Cache != nil}, {"Pacer", o.Pacer != nil}, {"Dialect", o.Dialect != nil}, {"Explain", o.Explain != nil}, {"Query", o.Query != nil}, {"Engine", o.Engine != nil},
		{"BackOffEnded", o.BackOffEnded != nil}, {"CAPEM", o.CAPEM != nil}, {"Proxy", o.Proxy != nil},
	} {
		if !need.is {
			return need.name
		}
	}
	return ""
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

	// One slot for each open stream.
	streamSlots slots

	// One slot for each request that waits for an origin.
	waitSlots slots

	// One slot for each report that is made.
	reportSlots slots
	chain       chainCheck

	// Closed when all streams must end.
	streamsDone chan struct{}

	// Closes streamsDone.
	stopStreams func()
	apiMux      *http.ServeMux
	rootMux     *http.ServeMux
}

// About has what only the starting code knows about the proxy.
type About struct {
	// The commit of the build; "": unknown.
	Commit string

	// Zero: unknown.
	Started time.Time

	// Configuration file; "": none.
	Config string

	// State directory.
	State string

	// audit file.
	Audit string

	// nil: nothing is archived.
	Archive *Archive

	// None: requests are not signed.
	Signing []Signing
}

// An Archive is the state of the archive of what is fetched.
type Archive struct {
	Dir string

	// Written so far.
	Records uint64

	// Of the records, those without a payload; responses that could not be archived.
	Revisits, Lost uint64

	// Of the files; that the disk has left.
	Bytes, Free int64

	// Why it cannot be written; nil: it can.
	Err error
}

// A Signing is an identity with which requests are signed.
type Signing struct {
	// Whose requests; "": those of all clients without one of their own.
	Client string

	// URL of the key directory.
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
