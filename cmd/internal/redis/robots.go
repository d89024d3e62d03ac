package redis

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"robotsproxy/robots"
	"robotsproxy/robots/cache"
)

// The keys of an origin.
const (
	robotsPrefix = keyPrefix + "robots:" // what is known of its robots.txt, see frame
	fetchPrefix  = keyPrefix + "fetch:"  // while a replica fetches it: the name of the claim
)

// robotsTime is how long the server is asked for an entry, before the local store is.
const robotsTime = 700 * time.Millisecond

// A bookshelf is the [cache.SharedStore] of one replica: the server, and a store of its own,
// which has all that it has seen for as long as the server is away.
type bookshelf struct {
	fleet  *Fleet
	local  cache.Store // may be nil
	claims claims
}

// claims are the origins that this replica has the right to fetch, with the mark of the
// last purge of each that it knows of, "" for none.
type claims struct {
	mu  sync.Mutex // guards all
	all map[robots.Origin]string
}

func (c *claims) add(o robots.Origin) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all[o] = ""
}

func (c *claims) remove(o robots.Origin) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.all, o)
}

// purged takes note of a purge.
func (c *claims) purged(o robots.Origin, mark string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ours := c.all[o]; ours {
		c.all[o] = mark
	}
}

func (c *claims) purge(o robots.Origin) (mark string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.all[o]
}

// Robots gives the store of robots.txt files that all replicas share. Behind it is
// local, which may be nil: it is asked where the server does not know or is away, and is
// given whatever this replica fetches or loads. Of what one replica has fetched while
// the server was away, the others learn when it is fetched again.
//
// It is a [cache.SharedStore]. It saves and announces by [Fleet.Run]; purges wait there for
// the server, and all else that it is away for is dropped.
func (f *Fleet) Robots(local cache.Store) cache.Store {
	return &bookshelf{fleet: f, local: local, claims: claims{all: make(map[robots.Origin]string)}}
}

// Load is [cache.Store]'s.
func (b *bookshelf) Load(ctx context.Context, o robots.Origin) ([]byte, error) {
	f := b.fleet
	j, waits := f.outbox.ahead(o)
	purged := waits && j.kind == purging
	if purged {
		b.claims.purged(o, j.frame.mark()) // the purge is sent before what is saved from now on
	}
	switch {
	case f.away(), purged:
		return b.loadLocal(ctx, o)
	case waits:
		return bytes.Clone(j.frame.entry(time.Now())), nil
	}
	value, err := f.get(ctx, o)
	if err != nil || !value.whole() {
		return b.loadLocal(ctx, o) // the error is counted, and the rest as if there were no server
	}
	f.robots.loads.Add(1)
	if value.purge() {
		b.claims.purged(o, value.mark())
		return nil, cache.ErrPurged
	}
	entry := value.entry(time.Now())
	if entry != nil {
		b.saveLocal(ctx, o, entry, value.until())
	}
	return entry, nil
}

func (b *bookshelf) loadLocal(ctx context.Context, o robots.Origin) ([]byte, error) {
	if b.local == nil {
		return nil, nil
	}
	return b.local.Load(ctx, o)
}

// saveLocal keeps what another has fetched.
func (b *bookshelf) saveLocal(ctx context.Context, o robots.Origin, entry []byte, until time.Time) {
	if b.local == nil {
		return
	}
	if had, err := b.local.Load(ctx, o); err == nil && !bytes.Equal(had, entry) {
		b.local.Save(o, entry, until, "")
	}
}

// get gives what the server has of o; nil: nothing.
func (f *Fleet) get(ctx context.Context, o robots.Origin) (value frame, err error) {
	ctx, cancel := context.WithTimeout(ctx, f.robotsTime)
	defer cancel()
	err = f.ask(ctx, func(ctx context.Context, c *redis.Client) error {
		value, err = c.Get(ctx, robotsPrefix+o.String()).Bytes()
		return err
	})
	if errors.Is(err, redis.Nil) {
		return nil, nil
	}
	return value, err
}

// ask is do for what is about a key or a stream of robots.txt files: what the server
// answers to it, be it an error, is no reason to pace alone. Where it is one, the pace's
// own calls have it too.
func (f *Fleet) ask(ctx context.Context, call func(ctx context.Context, c *redis.Client) error) (err error) {
	failed := f.do(ctx, func(ctx context.Context, c *redis.Client) error {
		var answered redis.Error
		if err = call(ctx, c); errors.As(err, &answered) {
			return nil
		}
		return err
	})
	if failed != nil {
		err = failed
	}
	if err != nil && !errors.Is(err, redis.Nil) {
		f.robots.failures.Add(1)
	}
	return err
}

// Save is [cache.Store]'s.
func (b *bookshelf) Save(o robots.Origin, entry []byte, until time.Time, client string) {
	if b.local != nil {
		b.local.Save(o, entry, until, client)
	}
	if len(entry) > maxEntry {
		b.fleet.robots.lost.Add(1)
		return
	}
	b.fleet.post(job{kind: saving, origin: o, frame: newFrame(entry, until), purge: b.claims.purge(o)})
}

// Lease is [cache.SharedStore]'s.
func (b *bookshelf) Lease(ctx context.Context, o robots.Origin, term time.Duration) (cache.Lease, error) {
	f := b.fleet
	if f.away() {
		return cache.Lease{}, errAway
	}
	name := rand.Text()
	var given *redis.BoolCmd
	var mark *redis.StringCmd
	err := f.ask(ctx, func(ctx context.Context, c *redis.Client) error {
		_, err := c.TxPipelined(ctx, func(p redis.Pipeliner) error {
			given = p.SetNX(ctx, fetchPrefix+o.String(), name, term)
			mark = p.GetRange(ctx, robotsPrefix+o.String(), 0, frameMark-1)
			return nil
		})
		return err
	})
	giveBack := func() {
		b.claims.remove(o)
		f.post(job{kind: releasing, origin: o, claim: name})
	}
	if err != nil {
		giveBack() // it may have been given all the same
		return cache.Lease{}, err
	}
	c := cache.Lease{Version: mark.Val()}
	if given.Val() {
		f.robots.claims.Add(1)
		b.claims.add(o)
		c.Release = giveBack
	} else {
		f.robots.waits.Add(1)
	}
	return c, nil
}

// Announce is [cache.SharedStore]'s.
func (b *bookshelf) Announce(o robots.Origin, what cache.Change) {
	switch what {
	case cache.Purged:
		b.forgetLocal(o)
		f := newFrame(nil, time.Now().Add(purgeKept))
		b.claims.purged(o, f.mark())
		b.fleet.post(job{kind: purging, origin: o, frame: f})
	case cache.Replaced:
		b.fleet.post(job{kind: replacing, origin: o})
	}
}

func (b *bookshelf) forgetLocal(o robots.Origin) {
	if b.local != nil {
		b.local.Save(o, []byte{0}, time.Now(), "") // which is no entry, and over
	}
}

// A frame is what the server has of an origin: a format, 8 octets at random, until when
// it is of use in ms since 1970, and the entry. Without one it is a purge's, and hides
// what local stores have.
type frame []byte

const (
	frameFormat = 1
	frameMark   = 1 + 8 // octets that differ from those of any other
	frameOctets = frameMark + 8

	// maxEntry is the most octets that are kept of an origin; robots/cache has no more.
	maxEntry = 2 << 20
)

func newFrame(entry []byte, until time.Time) frame {
	v := make(frame, frameOctets, frameOctets+len(entry))
	v[0] = frameFormat
	rand.Read(v[1:frameMark]) // never fails (crypto/rand since Go 1.24)
	binary.BigEndian.PutUint64(v[frameMark:], uint64(until.UnixMilli()))
	return append(v, entry...)
}

func (v frame) whole() bool {
	return len(v) >= frameOctets && len(v) <= frameOctets+maxEntry && v[0] == frameFormat
}

func (v frame) until() time.Time {
	return time.UnixMilli(int64(binary.BigEndian.Uint64(v[frameMark:])))
}

func (v frame) mark() string { return string(v[:frameMark]) }
func (v frame) purge() bool  { return len(v) == frameOctets }

// entry gives it, nil where it is over or there is none.
func (v frame) entry(now time.Time) []byte {
	if v.purge() || !now.Before(v.until()) {
		return nil
	}
	return v[frameOctets:]
}
