package cache

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"strings"
	"time"

	"robotsproxy/robots"
)

// A StoreKey is the key of an entry in a Store. The response of an origin may depend on who asks, so
// Caches that fetch as different agents have different entries.
type StoreKey struct {
	robots.Origin

	// Agent is a name that agentOf returns. To a Store it is any string.
	Agent string
}

// String returns a text that differs between keys.
func (k StoreKey) String() string { return k.Agent + " " + k.Origin.String() }

// agentOf returns the name of the agent that fetches with a User-Agent: its product tokens, so that a
// new version of a crawler has the entries of the old one. It contains no space.
func agentOf(userAgent string) string {
	names := strings.ToLower(strings.Join(robots.ProductTokens(userAgent), "+"))
	sum := sha256.Sum256([]byte(userAgent))
	return cmp.Or(names, hex.EncodeToString(sum[:8]))
}

// A Store keeps entries for longer than memory does. An entry is a sequence of bytes that only
// this package reads. Any number of goroutines may use a Store. Package robots/cache/storetest
// tests implementations.
type Store interface {
	// Load returns the last entry that was saved for k, or nil. The caller must not modify it.
	// Load returns soon after ctx ends.
	Load(ctx context.Context, k StoreKey) ([]byte, error)

	// Save takes over entry, which is useless after until. It waits for no disk and no network, and
	// reports no error. The entry counts against the share of client, which caused its fetch.
	// client is "" if no client did.
	Save(k StoreKey, entry []byte, until time.Time, client string)
}

// ErrPurged is the error of Load of a SharedStore for a key that was purged and not saved
// since. The caller must not use earlier state.
var ErrPurged = errors.New("the entry was purged")

// A SharedStore is a Store that the Caches of several processes share. Each of them has
// its own SharedStore value. They fetch a file once for all of them, and purge it
// together.
//
// After a purge, a SharedStore saves nothing until its process knows of the purge: because
// it announced it, or learnt of it by Watch or, since its Lease, by Load. Otherwise it
// could save an entry that is based on earlier state.
type SharedStore interface {
	// Lease asks for the right to fetch the file of k. Only one Cache at a time has the right,
	// which ends by itself after term. Lease returns soon, whoever has the right. After an error
	// every Cache fetches for itself.
	Lease(ctx context.Context, k StoreKey, term time.Duration) (Lease, error)

	// Announce tells the other processes of a change. If it is Purged, the store also deletes the
	// entry of k. Announce waits for no disk and no network.
	Announce(k StoreKey, change Change)

	// Watch calls onChange for each change that other processes announce, one after the other,
	// until ctx ends. What was saved before an announcement can be loaded when onChange is called.
	// A change may be reported twice.
	Watch(ctx context.Context, onChange func(StoreKey, Change))
}

// A Lease is the result of asking for the right to fetch.
type Lease struct {
	// Release returns the right after everything that was saved before can be loaded. It does not wait.
	// It is nil if another Cache has the right.
	Release func()

	// Version is that of the saved entry: every Save changes it.
	Version string
}

// A Change is a change to an entry.
type Change uint8

// The changes. Zero is none.
const (
	// The entry was deleted.
	Purged Change = iota + 1
	// The entry was fetched again before it was due.
	Replaced
)
