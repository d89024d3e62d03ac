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
	Healthy func() error  // why the proxy is not healthy, or nil
	Ready   func() error  // why the proxy takes no requests, or nil
	Metrics http.Handler  // answers GET /metrics; nil: 404
	Token   func() string // admin.token, required for all but health; nil or "": no token, only requests to local names from this machine are answered
	Log     *slog.Logger

	Live    *live.Feed
	Cache   RobotsCache
	Pacer   *pace.Pacer
	Dialect func() robots.Dialect                                                  // dialect in which robots.txt files are shown
	PaceKey func(host string) string                                               // key under which the Pacer keeps a host; nil: the host itself
	Explain func(context.Context, policy.Request) (policy.Decision, time.Duration) // decides a request without sending it, and says how long it would wait
	Query   func(policy.Request) cache.Query                                       // the cache query that decides a request
	Engine  func() *policy.Engine                                                  // the active engine, whose entries of hosts and clients are shown
	Clients func() []string                                                        // names of the configured clients; nil: none
	Monitor func() bool                                                            // reports whether decisions are only recorded (mode: monitor); nil: they are enforced
	Reload  func(context.Context) error                                            // reloads the configuration; its error has one line for each mistake; nil: the proxy cannot reload
	// Reloads returns how many reloads succeeded and failed, the time of the last success, and
	// the error of the last reload, one line for each mistake. Nil means that the proxy cannot
	// reload.
	Reloads  func() (ok, refused uint64, lastOK time.Time, lastErr error)
	Store    func() Store               // state of this replica in a fleet; nil: the proxy is no replica
	About    func() About               // nil: all unknown
	Warnings func() []string            // what the operator should see to before it stops requests; nil: nothing
	Faults   func() []clientfault.Fault // clients whose settings do not fit the proxy, the latest first; nil: none are known
	Evidence *Evidence                  // access to the audit; nil: the audit cannot be read
	Config   func() []byte              // the active configuration without its secrets, as YAML; nil: it is not shown
	Space    func() audit.Space         // how much of the disk the audit takes; nil: unknown
	CAPEM    func() []byte              // the CA certificate that clients must trust
	Proxy    net.Addr                   // address on which the proxy listens
	Version  string

	ProxyTLS bool // clients speak TLS to the proxy

	BackOffEnded func(host string) error // records that an operator has ended the back-off of a host
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
	http        *http.Server
	opts        Options
	sessions    *sessions
	streamSlots slots // one slot for each open stream
	waitSlots   slots // one slot for each request that waits for an origin
	reportSlots slots // one slot for each report that is made
	chain       chainCheck
	streamsDone chan struct{} // closed when all streams must end
	stopStreams func()        // closes streamsDone
	apiMux      *http.ServeMux
	rootMux     *http.ServeMux
}

// About has what only the starting code knows about the proxy.
type About struct {
	Commit  string    // the commit of the build; "": unknown
	Started time.Time // zero: unknown
	Config  string    // configuration file; "": none
	State   string    // state directory
	Audit   string    // audit file
	Archive *Archive  // nil: nothing is archived
	Signing []Signing // none: requests are not signed
}

// An Archive is the state of the archive of what is fetched.
type Archive struct {
	Dir            string
	Records        uint64 // written so far
	Revisits, Lost uint64 // of the records, those without a payload; responses that could not be archived
	Bytes, Free    int64  // of the files; that the disk has left
	Err            error  // why it cannot be written; nil: it can
}

// A Signing is an identity with which requests are signed.
type Signing struct {
	Client string // whose requests; "": those of all clients without one of their own
	Agent  string // URL of the key directory
	KeyID  string
}

// A Store is the state of this replica and of its connection to the store that the replicas
// share.
type Store struct {
	Replica   string    // name of this replica
	Alone     bool      // it paces alone, because the store is unavailable or has only just come back
	Returning bool      // Alone, although the store answers again
	Why       string    // the cause of Alone, in a few words
	Since     time.Time // when Alone last changed; zero: unknown
	Times     float64   // how many times slower than permitted this replica paces; values below 1 count as 1
	Members   int       // replicas seen last, including this one
	Expected  int       // configured number of replicas
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
