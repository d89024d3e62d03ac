package redis

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"robotsproxy/robots"
	"robotsproxy/robots/cache"
)

const (
	// newsKey is a stream of what was purged or replaced. Who was cut off reads on where
	// it was, which it could not with pub/sub.
	newsKey = keyPrefix + "news"

	// maxNews is about how many are kept. Who has missed more goes by what it knows
	// until the time of that is over.
	maxNews = 10_000

	// purgeKept is how long a purge is remembered, longer than anything purged might be
	// of use to a replica that was away.
	purgeKept = 31 * 24 * time.Hour

	// newsWait is how long the server waits for news to give.
	newsWait = time.Second
	newsRead = 1000 // at once

	// watchEvery is how often a server that is away is asked again.
	watchEvery = 250 * time.Millisecond
)

var changes = map[string]cache.Change{"purged": cache.Purged, "replaced": cache.Replaced}

func (f *Fleet) queueNews(ctx context.Context, p redis.Pipeliner, j job) {
	what, mark := "replaced", ""
	if j.kind == purging {
		what, mark = "purged", j.frame.mark()
	}
	p.XAdd(ctx, &redis.XAddArgs{
		Stream: newsKey, MaxLen: maxNews, Approx: true,
		Values: []string{"what", what, "scheme", j.origin.Scheme, "at", j.origin.Addr(), "from", f.id, "mark", mark},
	})
	p.PExpire(ctx, newsKey, purgeKept)
}

// Watch is [cache.SharedStore]'s. It begins with all that is remembered, since the local
// store may be of before.
func (b *bookshelf) Watch(ctx context.Context, heard func(robots.Origin, cache.Change)) {
	last := "0-0"
	for ctx.Err() == nil {
		if !b.fleet.away() {
			last = b.listen(ctx, last, heard)
		}
		select {
		case <-time.After(watchEvery):
		case <-ctx.Done():
		}
	}
}

// listen reads the news after last until the server fails, or ctx ends, and gives the
// last one's name.
func (b *bookshelf) listen(ctx context.Context, last string, heard func(robots.Origin, cache.Change)) string {
	c := b.fleet.connect() // its own: it is closed with what it waits for
	defer c.Close()
	defer context.AfterFunc(ctx, func() { c.Close() })()
	last, err := b.fleet.resume(ctx, c, last)
	for err == nil && ctx.Err() == nil {
		var all []redis.XMessage
		if all, err = b.fleet.readNews(ctx, c, last); err != nil {
			break
		}
		for _, n := range all {
			last = n.ID
			b.tellOf(n.Values, heard)
		}
	}
	if ctx.Err() == nil {
		b.fleet.robots.failures.Add(1)
	}
	return last
}

// resume gives where to read on after last: from the beginning where the news are not
// those that last was of.
func (f *Fleet) resume(ctx context.Context, c *redis.Client, last string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, f.callTime)
	defer cancel()
	newest, err := c.XRevRangeN(ctx, newsKey, "+", "-", 1).Result()
	if err != nil {
		return last, err
	}
	if len(newest) == 0 || before(newest[0].ID, last) {
		return "0-0", nil
	}
	return last, nil
}

// before compares the names of news, MILLISECONDS-NUMBER.
func before(a, b string) bool {
	ms, n := split(a)
	otherMS, other := split(b)
	return ms < otherMS || ms == otherMS && n < other
}

func split(id string) (ms, n uint64) {
	first, second, _ := strings.Cut(id, "-")
	ms, _ = strconv.ParseUint(first, 10, 64) // they are the server's: what is none counts as 0
	n, _ = strconv.ParseUint(second, 10, 64)
	return ms, n
}

// readNews waits for news after last; none is no error.
func (f *Fleet) readNews(ctx context.Context, c *redis.Client, last string) ([]redis.XMessage, error) {
	ctx, cancel := context.WithTimeout(ctx, newsWait+f.callTime)
	defer cancel()
	streams, err := c.XRead(ctx, &redis.XReadArgs{Streams: []string{newsKey, last}, Count: newsRead, Block: newsWait}).Result()
	if errors.Is(err, redis.Nil) {
		return nil, nil
	}
	if err != nil || len(streams) != 1 {
		return nil, errors.Join(errReply, err)
	}
	return streams[0].Messages, nil
}

// tellOf passes one on, unless it is our own, or not to be understood.
func (b *bookshelf) tellOf(values map[string]any, heard func(robots.Origin, cache.Change)) {
	field := func(name string) string { s, _ := values[name].(string); return s }
	what, known := changes[field("what")]
	o, err := robots.ParseOrigin(field("scheme"), field("at"))
	if !known || err != nil || field("from") == b.fleet.id {
		return
	}
	b.fleet.robots.heard.Add(1)
	if what == cache.Purged {
		b.fleet.outbox.forget(o)
		b.forgetLocal(o)
	}
	heard(o, what)
	if what == cache.Purged { // what is saved from now on does not rest on what was purged
		b.claims.purged(o, field("mark"))
		b.forgetLocal(o)
	}
}
