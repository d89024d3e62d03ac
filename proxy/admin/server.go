package admin

import (
	"context"
	"iter"
	"log/slog"
	"net"
	"net/http"
	"time"

	"robotsproxy/policy"
	"robotsproxy/policy/audit/live"
	"robotsproxy/policy/pace"
	"robotsproxy/robots"
	"robotsproxy/robots/cache"
)

// timeout is for a request to come and for its answer to be read, where nothing that
// takes longer is asked for.
const requestTimeout = 10 * time.Second

// Options make a Server. All are required but Metrics, Token, PaceKey, Reload,
// Reloads, Store, About, Clients and Version.
type Options struct {
	Healthy func() error  // why the proxy is not well
	Ready   func() error  // why it takes no requests
	Metrics http.Handler  // answers GET /metrics; nil: nothing is there
	Token   func() string // that all but health asks for; nil or "": none, and then only this machine's own names are answered for
	Log     *slog.Logger

	Live    *live.Feed
	Cache   RobotsCache
	Pacer   *pace.Pacer
	Dialect func() robots.Dialect                                 // by which the files of the Book are shown
	PaceKey func(host string) string                              // what the pace of a host is kept under; nil: its name
	Explain func(context.Context, policy.Request) policy.Decision // what would be decided, by the code that decides
	Query   func(policy.Request) cache.Query                      // which robots.txt that code judges by
	Clients func() []string                                       // names of those of the configuration; nil: there are none
	Reload  func(context.Context) error                           // reads the configuration anew; its error has a line for each thing that is wrong; nil: it cannot be
	// Reloads says how often that came to something, how often it was refused, when it
	// last came to something, and why it did not the last time, line by line; nil: nothing
	// is reloaded.
	Reloads func() (ok, refused uint64, lastOK time.Time, lastErr error)
	Store   func() Store  // how this one of several replicas stands to the others; nil: it is on its own
	About   func() About  // nil: nothing is known
	CAPEM   func() []byte // the certificate that clients have to trust
	Proxy   net.Addr      // where the proxy listens
	Version string

	ProxyTLS bool // clients speak TLS to it there
}

// missing names the first that is required and not there.
func (o *Options) missing() string {
	for _, need := range []struct {
		name string
		is   bool
	}{
		{"Healthy", o.Healthy != nil}, {"Ready", o.Ready != nil}, {"Log", o.Log != nil}, {"Live", o.Live != nil},
		{"Cache", o.Cache != nil}, {"Pacer", o.Pacer != nil}, {"Dialect", o.Dialect != nil}, {"Explain", o.Explain != nil}, {"Query", o.Query != nil},
		{"CAPEM", o.CAPEM != nil}, {"Proxy", o.Proxy != nil},
	} {
		if !need.is {
			return need.name
		}
	}
	return ""
}

// A Book is what is known of origins; [cache.Cache] is one.
type RobotsCache interface {
	All() iter.Seq[*cache.Entry]
	Peek(robots.Origin) *cache.Entry
	Purge(robots.Origin) bool
	Refetch(ctx context.Context, q cache.Query) (*cache.Entry, error)
}

// A Server serves the operator's listener. Make one with New, run it with Serve and
// stop it with Shutdown. Its methods may be called by any number of goroutines.
type Server struct {
	http        http.Server
	opts        Options
	sessions    *sessions
	streamSlots slots         // one slot for each open stream
	waitSlots   slots         // one slot for each request that waits for an origin
	streamsDone chan struct{} // closed when all streams must end
	stopStreams func()        // closes ending
	apiMux      *http.ServeMux
	rootMux     *http.ServeMux
}

// About is what only who starts the proxy knows of it.
type About struct {
	Commit  string    // that it was built from; "": that is not known
	Started time.Time // zero: that is not known
	Config  string    // the file of the configuration; "": there is none that could be read again
	State   string    // the directory of its state
	Audit   string    // the file of the audit
}

// A Store is how this proxy, one of several replicas, stands to the others, by way of
// what they share.
type Store struct {
	Replica   string    // what this one is called
	Alone     bool      // it paces by itself, since the store is away or was until a moment ago
	Returning bool      // it does still, but the store answers
	Why       string    // Alone: the cause, in a few words
	Since     time.Time // when Alone last began or ended; zero: that is not known
	Times     float64   // how many times slower than permitted this one paces; less than 1 counts as 1
	Members   int       // replicas that were last seen, this one among them
	Expected  int       // replicas that there may be
}

// slots bounds how many goroutines do something at once; its capacity is the bound.
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
