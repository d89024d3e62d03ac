// Package clientfault counts the clients whose settings do not fit the proxy, so that none of their requests
// arrive: they do not trust its CA, or speak TLS to a port without it.
//
// It only counts, and says when a client is due for another warning. It keeps at most maxStrangers clients without
// a name, each by its share (policy.ShareKey), and counts further ones together; the configuration bounds the
// number of the others.
package clientfault

import (
	"slices"
	"strings"
	"sync"
	"time"

	"robotsproxy/policy"
)

// A Kind is what is wrong with a client.
type Kind uint8

// The kinds.
const (
	// Distrust says that the client rejects the certificate in a tunnel.
	Distrust Kind = iota
	// MaybeDistrust says that the client closes a tunnel during or at once after the TLS handshake.
	MaybeDistrust
	// TLS says that the client speaks TLS to a port that expects plain HTTP.
	TLS
	// PlainHTTP says that the client speaks plain HTTP to a port that requires TLS.
	PlainHTTP
)

const trustCA = "Make the client trust the CA whose file `robotsproxy ca path` prints, for example by `robotsproxy ca install`. " +
	"`robotsproxy doctor` says what each client on this machine needs (docs/https.md)."

// kinds has what is wrong, as a predicate of the client, and what to do, for each Kind.
var kinds = [...]struct{ text, advice string }{
	Distrust:      {"does not trust the proxy's CA", trustCA},
	MaybeDistrust: {"closed a tunnel without a request, perhaps because it does not trust the proxy's CA", trustCA},
	TLS:           {"speaks TLS to the proxy's port, which expects plain HTTP", "Use an http:// URL for the proxy."},
	PlainHTTP:     {"speaks plain HTTP to the proxy's port, which requires TLS", "Use an https:// URL for the proxy."},
}

// String says what is wrong, as a predicate of the client: "does not trust the proxy's CA".
func (k Kind) String() string { return kinds[k].text }

// Advice says what to do, in sentences.
func (k Kind) Advice() string { return kinds[k].advice }

const (
	// warnInterval is the minimum time between two warnings about the same fault of a client. A fault that does
	// not occur for so long may be forgotten.
	warnInterval = time.Hour
	// maxStrangers is how many faults of clients without a name are kept apart.
	maxStrangers = 100
)

// A Fault is one kind of fault of one client.
type Fault struct {
	Kind Kind

	// Client is the client of the last connection as policy.Engine.Admit returns it; "": strangers that are not kept apart.
	Client string

	// Host is where the last tunnel led to, as in a Host header; "": the last connection was not a tunnel.
	Host string

	// Count counts the connections, and Last is the time of the last one.
	Count uint64
	Last  time.Time
}

// A Table has the faults of all clients. Its zero value has none. Any number of goroutines may share one.
type Table struct {
	// mu guards faults.
	mu     sync.Mutex
	faults map[key]*entry
}

type key struct {
	// share is the share of the client; "": strangers that are not kept apart.
	share string
	kind  Kind
}

type entry struct {
	Fault
	warned time.Time
}

// Add counts a connection of a client, in a tunnel to host ("": in none). It reports whether a warning is due.
func (t *Table) Add(k Kind, client, host string, now time.Time) (warn bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	of := t.keyOf(k, client, now)
	e := t.faults[of]
	// The strings are parts of the head of a request, which must not stay in memory.
	if e == nil {
		if t.faults == nil {
			t.faults = make(map[key]*entry)
		}
		e = new(entry)
		t.faults[key{strings.Clone(of.share), k}] = e
	}
	if of.share != "" && e.Client != client {
		e.Client = strings.Clone(client)
	}
	if e.Host != host {
		e.Host = strings.Clone(host)
	}
	e.Kind, e.Last = k, now
	e.Count++
	if warn = e.warned.IsZero() || now.Sub(e.warned) >= warnInterval; warn {
		e.warned = now
	}
	return warn
}

// keyOf returns the key of a client's fault, or that of all strangers that are not kept apart. The caller holds t.mu.
func (t *Table) keyOf(kind Kind, client string, now time.Time) key {
	k := key{policy.ShareKey(client), kind}
	if t.faults[k] == nil && len(t.faults) >= maxStrangers && !t.hasSpace(client, now) {
		k.share = ""
	}
	return k
}

// hasSpace forgets old faults and reports whether there is an entry left for a client. The caller holds t.mu.
func (t *Table) hasSpace(client string, now time.Time) bool {
	strangers := 0
	for k, e := range t.faults {
		if now.Sub(e.Last) >= warnInterval {
			delete(t.faults, k)
		} else if policy.IsStranger(e.Client) {
			strangers++
		}
	}
	return strangers < maxStrangers || !policy.IsStranger(client)
}

// All returns the faults, the latest first.
func (t *Table) All() []Fault {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := make([]Fault, 0, len(t.faults))
	for _, e := range t.faults {
		all = append(all, e.Fault)
	}
	slices.SortFunc(all, func(a, b Fault) int { return b.Last.Compare(a.Last) })
	return all
}
