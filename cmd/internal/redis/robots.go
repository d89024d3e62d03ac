package redis

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"robotsproxy/robots"
	"robotsproxy/robots/cache"
)

// fileKeys are the keys of one kind of files, of all origins.
type fileKeys struct {
	// entry is the beginning of the keys of files, see frame. A cache.StoreKey follows it.
	entry string

	// fetch is the beginning of the keys of fetch leases. A cache.StoreKey follows it. While a replica fetches the file, the
	// value is the name of its lease.
	fetch string

	// news is the key of a stream of purges and replacements. Unlike with pub/sub, a replica that was disconnected reads on
	// where it stopped.
	news string
}

var (
	robotsKeys = fileKeys{keyPrefix + "robots:", keyPrefix + "fetch:", keyPrefix + "news"}
	tdmrepKeys = fileKeys{keyPrefix + "tdmrep:", keyPrefix + "tdmrep-fetch:", keyPrefix + "tdmrep-news"}
)

// robotsTime is how long a call for an entry may take before the local store is used.
const robotsTime = 700 * time.Millisecond

// sharedFiles loads, saves and purges the files of one kind that all replicas share.
type sharedFiles struct {
	*connection
	keys   fileKeys
	outbox outbox
	counts *robotsCounts

	// loadTime is robotsTime, except in tests.
	loadTime time.Duration
}

// A fileStore is the [cache.SharedStore] of one replica: the server, and a local store with
// everything that the replica has seen, for use while the server is unavailable.
type fileStore struct {
	shared *sharedFiles

	// local may be nil.
	local cache.Store

	// fetchLeases has the files that this replica has a lease to fetch, by cache.StoreKey. The value is the mark of the last
	// purge of the file that the replica knows, a string.
	fetchLeases sync.Map

	// purges is how often something was purged from the local store.
	purges atomic.Uint64
}

func (s *sharedFiles) store(local cache.Store) cache.Store {
	return &fileStore{shared: s, local: local}
}

// purged records the mark of a purge of k, if this replica has the lease to fetch it.
func (f *fileStore) purged(k cache.StoreKey, mark string) {
	if was, ours := f.fetchLeases.Load(k); ours {
		f.fetchLeases.CompareAndSwap(k, was, mark)
	}
}

// Load implements [cache.SharedStore].
func (f *fileStore) Load(ctx context.Context, k cache.StoreKey) ([]byte, error) {
	s := f.shared
	j := s.outbox.newestOf(k)
	purged := j != nil && j.kind == purging
	// The purge is sent before any later save, which therefore may take it into account.
	if purged {
		f.purged(k, j.frame.mark())
	}
	switch {
	case s.Standing().StoreAway, purged:
		return f.loadLocal(ctx, k)
	case j != nil:
		return bytes.Clone(j.frame.entry(time.Now())), nil
	}
	purges := f.purges.Load()
	value, err := s.get(ctx, k)
	// get has counted the error.
	if err != nil || !value.valid() {
		return f.loadLocal(ctx, k)
	}
	s.counts.loads.Add(1)
	if value.purge() {
		f.purged(k, value.mark())
		// Watch may not know of the purge yet, or the stream may have lost it.
		f.forgetLocal(k)
		return nil, cache.ErrPurged
	}
	entry := value.entry(time.Now())
	if entry != nil {
		f.saveLocal(ctx, k, entry, value.until())
		// If this entry was purged before it was saved, the purge has missed it.
		if f.purges.Load() != purges {
			f.forgetLocal(k)
		}
	}
	return entry, nil
}

func (f *fileStore) loadLocal(ctx context.Context, k cache.StoreKey) ([]byte, error) {
	if f.local == nil {
		return nil, nil
	}
	return f.local.Load(ctx, k)
}

// saveLocal stores what another replica has fetched.
func (f *fileStore) saveLocal(ctx context.Context, k cache.StoreKey, entry []byte, until time.Time) {
	if f.local == nil {
		return
	}
	if had, err := f.local.Load(ctx, k); err == nil && !bytes.Equal(had, entry) {
		f.local.Save(k, entry, until, "")
	}
}

// get returns the server's entry for k, or nil.
func (s *sharedFiles) get(ctx context.Context, k cache.StoreKey) (value frame, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.loadTime)
	defer cancel()
	err = s.ask(ctx, func(ctx context.Context, c *redis.Client) error {
		// The range is one byte longer than a valid frame, so that a longer value is not valid.
		value, err = c.GetRange(ctx, s.keys.entry+k.String(), 0, frameSize+maxEntry).Bytes()
		return err
	})
	return value, err
}

// ask is do for calls about robots.txt files. A reply of the server, even an error, does not make
// this replica alone. If the server has a fault, the calls for slots find it too.
func (s *sharedFiles) ask(ctx context.Context, call func(ctx context.Context, c *redis.Client) error) (err error) {
	failed := s.do(ctx, func(ctx context.Context, c *redis.Client) error {
		if err = call(ctx, c); is[redis.Error](err) {
			return nil
		}
		return err
	})
	if failed != nil {
		err = failed
	}
	if err != nil && !errors.Is(err, redis.Nil) {
		s.counts.failures.Add(1)
	}
	return err
}

// Save implements [cache.SharedStore].
func (f *fileStore) Save(k cache.StoreKey, entry []byte, until time.Time, client string) {
	if f.local != nil {
		f.local.Save(k, entry, until, client)
	}
	if len(entry) > maxEntry {
		f.shared.counts.lost.Add(1)
		return
	}
	purge, _ := f.fetchLeases.Load(k)
	mark, _ := purge.(string)
	f.shared.enqueue(&job{kind: saving, key: k, frame: newFrame(entry, until), purge: mark})
}

// Lease implements [cache.SharedStore].
func (f *fileStore) Lease(ctx context.Context, k cache.StoreKey, term time.Duration) (cache.Lease, error) {
	s := f.shared
	if s.Standing().StoreAway {
		return cache.Lease{}, errAlone
	}
	name := rand.Text()
	var taken int64
	var mark string
	err := s.ask(ctx, func(ctx context.Context, c *redis.Client) error {
		keys := []string{s.keys.fetch + k.String(), s.keys.entry + k.String()}
		reply, err := claimScript.Run(ctx, c, keys, name, max(term.Milliseconds(), 1), frameMark).Slice()
		if err != nil {
			return err
		}
		var ok, also bool
		taken, ok = element[int64](reply, 0)
		if mark, also = element[string](reply, 1); !ok || !also {
			return errReply
		}
		return nil
	})
	giveBack := func() {
		f.fetchLeases.Delete(k)
		s.enqueue(&job{kind: releasing, key: k, lease: name})
	}
	if err != nil {
		// The server may have granted the lease.
		giveBack()
		return cache.Lease{}, err
	}
	lease := cache.Lease{Version: mark}
	if taken == 1 {
		s.counts.fetchLeases.Add(1)
		f.fetchLeases.Store(k, "")
		lease.Release = giveBack
	} else {
		s.counts.waits.Add(1)
	}
	return lease, nil
}

// Announce implements [cache.SharedStore].
func (f *fileStore) Announce(k cache.StoreKey, what cache.Change) {
	switch what {
	case cache.Purged:
		f.forgetLocal(k)
		purge := newFrame(nil, time.Now().Add(purgeKept))
		f.purged(k, purge.mark())
		f.shared.enqueue(&job{kind: purging, key: k, frame: purge})
	case cache.Replaced:
		f.shared.enqueue(&job{kind: replacing, key: k})
	}
}

func (f *fileStore) forgetLocal(k cache.StoreKey) {
	f.purges.Add(1)
	if f.local != nil {
		// What is saved is no valid entry, and has already expired.
		f.local.Save(k, []byte{0}, time.Now(), "")
	}
}

// robotsCounts are the counters of RobotsStats.
type robotsCounts struct {
	loads, saves, fetchLeases, waits, lost, failures, purges, heard atomic.Uint64
}

// RobotsStats counts the use of the shared robots.txt and tdmrep.json files by a replica since Open.
type RobotsStats struct {
	// Loads is the number of files loaded from the server.
	Loads uint64

	// Saves is the number of files saved to the server.
	Saves uint64

	// Claims is the number of fetch leases that this replica got.
	Claims uint64

	// Waits is the number of times that another replica had the fetch lease.
	Waits uint64

	// Purges is the number of purges sent to the other replicas.
	Purges uint64

	// Heard is the number of purges and replacements by other replicas.
	Heard uint64

	// Lost is the number of saves and purges that never reached the server.
	Lost uint64

	// Failures is the number of failed calls.
	Failures uint64
}

// enqueue sends a job soon. While the server is unavailable, a purge waits, and any other job
// is lost.
func (s *sharedFiles) enqueue(j *job) {
	if !s.outbox.add(j, s.Standing().StoreAway) && j.frame != nil {
		s.counts.lost.Add(1)
	}
}

// run sends the jobs in their order until ctx ends.
func (s *sharedFiles) run(ctx context.Context) error {
	retry := time.NewTicker(retryEvery)
	defer retry.Stop()
	for {
		select {
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), finalTimeout)
			defer cancel()
			s.sendAll(last)
			return nil
		case <-s.outbox.wake:
		case <-retry.C:
		}
		s.sendAll(context.WithoutCancel(ctx))
	}
}

// sendAll sends the waiting jobs, or as many as the server accepts.
func (s *sharedFiles) sendAll(ctx context.Context) {
	for {
		some := s.outbox.take()
		if len(some) == 0 {
			return
		}
		if s.Standing().StoreAway || s.sendJobs(ctx, some) != nil {
			s.counts.lost.Add(uint64(s.outbox.dropAllButPurges(some)))
			return
		}
		s.outbox.done(some)
	}
}

// sendJobs sends jobs in one round trip.
func (s *sharedFiles) sendJobs(ctx context.Context, some []*job) error {
	err := s.ask(ctx, func(ctx context.Context, c *redis.Client) error {
		return pipeline(ctx, c, func(p redis.Pipeliner) {
			now := time.Now()
			for _, j := range some {
				s.queueJob(ctx, p, j, now)
			}
		})
	})
	if err != nil {
		return err
	}
	for _, j := range some {
		switch j.kind {
		case saving:
			s.counts.saves.Add(1)
		case purging:
			s.counts.purges.Add(1)
		}
	}
	return nil
}

func (s *sharedFiles) queueJob(ctx context.Context, p redis.Pipeliner, j *job, now time.Time) {
	key := s.keys.entry + j.key.String()
	switch j.kind {
	case purging:
		p.Set(ctx, key, []byte(j.frame), purgeKept)
	case saving:
		left := max(j.frame.until().Sub(now).Milliseconds(), 1)
		saveScript.EvalSha(ctx, p, []string{key}, []byte(j.frame), left, frameSize, frameMark, j.purge)
	case releasing:
		releaseScript.EvalSha(ctx, p, []string{s.keys.fetch + j.key.String()}, j.lease)
	}
	if j.kind == purging || j.kind == replacing {
		s.queueNews(ctx, p, j)
	}
}

const (
	// maxNews is about how many entries are kept. A replica that has missed more uses its
	// files until they expire.
	maxNews = 10_000

	// purgeKept is how long a purge is remembered. No purged file is useful to a replica
	// after that time.
	purgeKept = 31 * 24 * time.Hour

	// newsWait is how long the server waits for new entries.
	newsWait = time.Second

	// watchEvery is how often an unavailable server is tried again.
	watchEvery = 250 * time.Millisecond

	// firstNews is the ID before all entries.
	firstNews = "0-0"
)

var changes = map[string]cache.Change{"purged": cache.Purged, "replaced": cache.Replaced}

func (s *sharedFiles) queueNews(ctx context.Context, p redis.Pipeliner, j *job) {
	what, mark := "replaced", ""
	if j.kind == purging {
		what, mark = "purged", j.frame.mark()
	}
	p.XAdd(ctx, &redis.XAddArgs{
		Stream: s.keys.news, MaxLen: maxNews, Approx: true,
		Values: []string{"what", what, "scheme", j.key.Scheme, "at", j.key.Addr(), "agent", j.key.Agent, "from", s.id, "mark", mark},
	})
	p.PExpire(ctx, s.keys.news, purgeKept)
}

// Watch implements [cache.SharedStore]. It begins with all known purges, because the local store
// may be older.
func (f *fileStore) Watch(ctx context.Context, heard func(cache.StoreKey, cache.Change)) {
	last := firstNews
	for ctx.Err() == nil {
		if !f.shared.Standing().StoreAway {
			last = f.readAll(ctx, last, heard)
		}
		select {
		case <-time.After(watchEvery):
		case <-ctx.Done():
		}
	}
}

// readAll reads the stream after last until the server fails or ctx ends, and returns the last ID
// read.
func (f *fileStore) readAll(ctx context.Context, last string, heard func(cache.StoreKey, cache.Change)) string {
	// The client is a separate one, because closing it is what ends a blocked read.
	c := f.shared.connect()
	defer c.Close()
	defer context.AfterFunc(ctx, func() { c.Close() })()
	last, err := f.shared.resume(ctx, c, last)
	for err == nil && ctx.Err() == nil {
		var all []redis.XMessage
		if all, err = f.shared.readNews(ctx, c, last); err != nil {
			break
		}
		for _, n := range all {
			last = n.ID
			f.handleNews(n.Values, heard)
		}
	}
	if ctx.Err() == nil {
		f.shared.counts.failures.Add(1)
	}
	return last
}

// resume returns the ID to read after: last, or the beginning if last belongs to another
// stream.
func (s *sharedFiles) resume(ctx context.Context, c *redis.Client, last string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, s.callTime)
	defer cancel()
	// The stream of which last is an ID has last or a later entry, because only older entries are removed.
	newest, err := c.XRevRangeN(ctx, s.keys.news, "+", last, 1).Result()
	if err == nil && len(newest) == 0 {
		last = firstNews
	}
	return last, err
}

// readNews waits for entries after last. It is not an error if there are none.
func (s *sharedFiles) readNews(ctx context.Context, c *redis.Client, last string) ([]redis.XMessage, error) {
	ctx, cancel := context.WithTimeout(ctx, newsWait+s.callTime)
	defer cancel()
	streams, err := c.XRead(ctx, &redis.XReadArgs{Streams: []string{s.keys.news, last}, Count: newsRead, Block: newsWait}).Result()
	if errors.Is(err, redis.Nil) {
		return nil, nil
	}
	if err != nil || len(streams) != 1 {
		return nil, errors.Join(errReply, err)
	}
	return streams[0].Messages, nil
}

// handleNews passes one entry on, unless it is this replica's own or invalid.
func (f *fileStore) handleNews(values map[string]any, heard func(cache.StoreKey, cache.Change)) {
	field := func(name string) string { s, _ := values[name].(string); return s }
	what, known := changes[field("what")]
	o, err := robots.ParseOrigin(field("scheme"), field("at"))
	k := cache.StoreKey{Origin: o, Agent: field("agent")}
	if !known || err != nil || field("from") == f.shared.id {
		return
	}
	f.shared.counts.heard.Add(1)
	if what == cache.Purged {
		f.shared.outbox.dropSave(k)
		f.forgetLocal(k)
	}
	heard(k, what)
	// heard has made the cache forget the file, so later saves are not based on what was purged.
	if what == cache.Purged {
		f.purged(k, field("mark"))
		f.forgetLocal(k)
	}
}
