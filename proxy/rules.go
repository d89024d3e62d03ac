package proxy

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"

	"robotsproxy/policy"
	"robotsproxy/policy/pace"
	"robotsproxy/proxy/egress"
	"robotsproxy/proxy/guide"
	"robotsproxy/proxy/inbound"
	"robotsproxy/proxy/mitm"
	"robotsproxy/robots"
)

// Rules are the part of the configuration that can be replaced, as a whole, while a Handler
// serves; see [Handler.Use]. Engine, Egress and Authority are required.
type Rules struct {
	Engine *policy.Engine

	// Egress sends the requests, through the upstream proxies that the entries of hosts name. Its pseudonym must not change during the
	// life of the Handler: it identifies requests that return to the proxy.
	Egress    *egress.Client
	Authority *mitm.Authority
	Identity

	// Monitor is set if the proxy only decides and records, and neither refuses nor delays a request.
	Monitor bool

	// PassThrough reports whether the tunnels of a host are passed through; nil: none.
	PassThrough func(string) bool

	Recording

	// BackOff honours 429 and 503 of origins.
	BackOff bool

	// PerAddress paces by the address of the host that Egress uses, not by the host.
	PerAddress bool

	// OwnPage answers requests for the proxy itself; nil: these are refused.
	OwnPage *guide.Page

	// MaxURL is the maximum length of a URL, in bytes; zero: 8 KiB.
	MaxURL int
	Ports
}

// A Recording says how requests are recorded.
type Recording struct {
	// RecordFirst ends a response only after its record is written, and breaks it off if that fails.
	RecordFirst bool

	// Digests records the SHA-256 of what was received. Without it, that of an archived body is recorded.
	Digests bool
}

// An Identity is what requests to origins say about who sends them. The zero Identity leaves what the client says.
type Identity struct {
	// UserAgent and From are sent instead of the client's; "": the client's own.
	UserAgent, From string

	// Signers sign the requests that are sent; zero: none are signed.
	Signers Signers

	// NoVia is set if requests to origins have no Via field of the proxy.
	NoVia bool
}

// Ports are the Rules of the proxy's own ports.
type Ports struct {
	// TLS is for the ports; nil: no TLS. It cannot be turned on or off.
	TLS *tls.Config

	// MaxConns is the maximum of open connections of all clients; zero: 20,000. MaxConnsPerClient is that of one client;
	// zero: 10,000.
	MaxConns, MaxConnsPerClient int
}

// maxRedials is how many more addresses of a host are dialled for one CONNECT or one fetch.
const maxRedials = 3

// tryAddresses calls f again while it fails with egress.ErrElsewhere, because another address of the host may work: at
// most maxRedials times.
func tryAddresses(f func() error) error {
	err := f()
	for range maxRedials {
		if !errors.Is(err, egress.ErrElsewhere) {
			break
		}
		err = f()
	}
	return err
}

// withDefaults returns r with defaults in its zero fields, or an error.
func (r Rules) withDefaults() (Rules, error) {
	for name, missing := range map[string]bool{
		"Engine": r.Engine == nil, "Egress": r.Egress == nil, "Authority": r.Authority == nil,
	} {
		if missing {
			return Rules{}, fmt.Errorf("proxy: option %s is missing", name)
		}
	}
	if min(r.MaxURL, r.MaxConns, r.MaxConnsPerClient) < 0 {
		return Rules{}, errors.New("proxy: a limit is negative")
	}
	if r.PassThrough == nil {
		r.PassThrough = func(string) bool { return false }
	}
	r.MaxURL = cmp.Or(r.MaxURL, 8<<10)
	r.MaxConns, r.MaxConnsPerClient = cmp.Or(r.MaxConns, 20_000), cmp.Or(r.MaxConnsPerClient, 10_000)
	if r.TLS != nil {
		r.TLS = r.TLS.Clone()
		// Go's own client accepts h2 from a proxy, but then speaks HTTP/1.1.
		r.TLS.NextProtos = nil
	}
	return r, nil
}

// A generation is one immutable set of Rules and the number of requests that still use it.
type generation struct {
	Rules
	*usage

	// number is 1 for the first generation.
	number uint64

	// from is the From header to send; nil: the client's.
	from []string
}

// A usage counts the users of a generation: the active configuration, each request that began under
// the generation, and the generation before. It does not refer to the Rules. Therefore a long
// request keeps only its own Rules in memory, not later ones.
type usage struct {
	users atomic.Int64
	once  sync.Once

	// unused is closed when there are no users.
	unused chan struct{}
	all    *sync.WaitGroup

	// next is the usage of the next generation, whose users include this one.
	next *usage
}

// release ends one use.
func (u *usage) release() {
	if u.users.Add(-1) > 0 {
		return
	}
	// An acquire that comes late may count up and down once more.
	u.once.Do(func() {
		close(u.unused)
		u.all.Done()
		if u.next != nil {
			u.next.release()
		}
	})
}

// generations are the active generation and the earlier ones that are still in use.
type generations struct {
	active atomic.Pointer[generation]

	// all counts the generations in use.
	all sync.WaitGroup

	// mu is held to replace the active generation, and guards closed.
	mu sync.Mutex

	// closed says that the active generation is not replaced any more.
	closed bool
}

// install makes r the active generation. The caller holds g.mu or is the only user of g.
func (g *generations) install(r Rules, number uint64) {
	next := &generation{Rules: r, number: number, usage: &usage{unused: make(chan struct{}), all: &g.all}}
	if r.From != "" {
		next.from = []string{r.From}
	}
	g.all.Add(1)
	before := g.active.Load()
	if before == nil {
		next.users.Store(1)
		g.active.Store(next)
		return
	}
	next.users.Store(2)
	before.next = next.usage
	g.active.Store(next)
	before.release()
}

// acquire gives the active generation to a request, which must call release at its end.
func (g *generations) acquire() *generation {
	for {
		r := g.active.Load()
		r.users.Add(1)
		// If another one is active now, r may have become unused before the request was counted.
		if g.active.Load() == r {
			return r
		}
		r.release()
	}
}

// replace makes r the active generation. unused is closed when the previous generation and all
// earlier ones have no users.
func (g *generations) replace(r Rules) (unused <-chan struct{}, err error) {
	if r, err = r.withDefaults(); err != nil {
		return nil, err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	now := g.active.Load()
	switch {
	case g.closed:
		return nil, http.ErrServerClosed
	case r.Egress.Pseudonym() != now.Egress.Pseudonym():
		return nil, errors.New("proxy: the egress client has another pseudonym")
	case (r.TLS == nil) != (now.TLS == nil):
		return nil, errors.New("proxy: TLS of the proxy's own port cannot be turned on or off")
	}
	g.install(r, now.number+1)
	return now.unused, nil
}

// close waits until no generation is in use. No request may begin any more.
func (g *generations) close() {
	g.mu.Lock()
	if !g.closed {
		g.closed = true
		g.active.Load().release()
	}
	g.mu.Unlock()
	g.all.Wait()
}

// inbound returns the Rules of the connections of clients.
func (g *generation) inbound() inbound.Rules {
	return inbound.Rules{
		TLS: g.TLS, MaxConns: g.MaxConns, MaxConnsPerClient: g.MaxConnsPerClient, ShareOf: g.Engine.AddressShare, IsOwn: g.Egress.Made,
		CheckPort: func(host string, port uint16) error {
			if err := g.Egress.Check(host, port); errors.Is(err, egress.ErrForbiddenPort) {
				return err
			}
			return nil
		},
	}
}

// egressTo returns the egress client for what does not depend on a path: CONNECT, and whether a host may be connected to.
func (r *Rules) egressTo(host string) *egress.Client {
	return r.Egress.Through(r.Engine.ParentOf(host))
}

// chooseAddress chooses the address at which out sends a request to o if PerAddress is set, and changes l so that
// it paces by that address. The back-off stays that of the host. at is zero without PerAddress.
func (r *Rules) chooseAddress(ctx context.Context, out *egress.Client, o robots.Origin, l *pace.Limits) (at netip.Addr, err error) {
	if !r.PerAddress {
		return at, nil
	}
	if at, err = out.Address(ctx, o); err == nil && at.IsValid() {
		l.Key, l.BackOffKey = at.String(), l.Key
	}
	return at, err
}

// checkURLLength returns an error for a URL of more bytes than limits.url.
func (r *Rules) checkURLLength(t robots.Target) error {
	n := len(t.Origin.String()) + len(t.PathQuery)
	if n <= r.MaxURL {
		return nil
	}
	return fmt.Errorf("%w: %d bytes, limits.url is %d", errLongURL, n, r.MaxURL)
}
