package redis

import (
	"cmp"
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"robotsproxy/policy/stops"
)

// The keys of the stops of all replicas, see stop.lua. None of them expires.
const (
	stopsKey    = keyPrefix + "stops"
	stopNewsKey = keyPrefix + "stop-news"
	stopEndsKey = keyPrefix + "stop-ends"
)

const (
	// pollStops is how often a replica looks for changes of stops, and lookForStore for a store that it has not read yet.
	pollStops    = time.Second
	lookForStore = 100 * time.Millisecond

	// maxStops is how many stops the server has.
	maxStops = stops.MaxPauses + stops.MaxCoolDowns

	// stopsRead is how many stops are read at once.
	stopsRead = 100

	// maxStopKey is the maximum size of a stop's key in a reply, and maxStop that of a stop. A longer one is not the proxy's.
	maxStopKey = 1 << 10
	maxStop    = stops.MaxText + 32
)

// A stopSharer shares the stops of one replica with the others. It belongs to one goroutine.
type stopSharer struct {
	fleet *Fleet
	table *stops.Table

	// epoch is that of the store for which sent and read hold.
	epoch string

	// sent is the number of the last change in the table that the store has; 0: the store has none of its stops.
	sent uint64

	// read is the number of the last change in the store that the table has.
	read float64

	// warned says that a stop was not understood.
	warned bool
}

// shareStops is the part of Run that tells the store of changes in a table, and the table of those that other replicas have made. While
// the store is away, changes wait in the table. A store that was emptied is told everything again.
func (f *Fleet) shareStops(ctx context.Context, table *stops.Table) error {
	if table == nil {
		return nil
	}
	s := stopSharer{fleet: f, table: table}
	ticks := time.NewTicker(lookForStore)
	defer ticks.Stop()
	var polled time.Time
	for {
		woken := false
		select {
		case <-ctx.Done():
			s.step(context.WithoutCancel(ctx))
			return nil
		case <-ticks.C:
		case <-table.Wake():
			woken = true
		}
		if woken || f.view.Load().epoch != s.epoch || time.Since(polled) >= pollStops {
			s.step(context.WithoutCancel(ctx))
			polled = time.Now()
		}
	}
}

// step sends and receives once, if the store is there. After a failure, the next step goes on.
func (s *stopSharer) step(ctx context.Context) {
	v := s.fleet.view.Load()
	if v.StoreAway {
		return
	}
	if v.epoch != s.epoch {
		s.epoch, s.sent, s.read = v.epoch, 0, 0
	}
	if s.send(ctx) == nil {
		_ = s.receive(ctx)
	}
}

// send sends the changes that the store does not have.
func (s *stopSharer) send(ctx context.Context) error {
	changed, last := s.table.Changes(s.sent, s.sent > 0)
	for len(changed) > 0 {
		some := changed[:min(batch, len(changed))]
		err := s.fleet.do(ctx, func(ctx context.Context, c *redis.Client) error {
			return pipeline(ctx, c, func(p redis.Pipeliner) {
				now := time.Now()
				for i := range some {
					stopScript.EvalSha(ctx, p, []string{stopsKey, stopNewsKey, stopEndsKey}, stopArgs(some[i], now, s.fleet.id)...)
				}
			})
		})
		if err != nil {
			return err
		}
		changed = changed[len(some):]
	}
	s.sent = last
	return nil
}

// stopArgs returns the arguments of stop.lua. The clocks of the replicas may differ, so the text has no Changed.
func stopArgs(s stops.Stop, now time.Time, sender string) []any {
	kept := int64(-1)
	if until := s.KeptUntil(); !until.IsZero() {
		kept = max(0, until.Sub(now.Round(0)).Milliseconds())
	}
	key, ago := s.Key().String(), max(0, now.Sub(s.Changed))
	s.Changed = time.Time{}
	return []any{maxStops, key, string(s.Text()), ago.Microseconds(), kept, sender}
}

// receive merges what has changed in the store into the table.
func (s *stopSharer) receive(ctx context.Context) error {
	for {
		var news []redis.Z
		var values []any
		var clock time.Time
		err := s.fleet.do(ctx, func(ctx context.Context, c *redis.Client) (err error) {
			after := "(" + strconv.FormatFloat(s.read, 'f', -1, 64)
			news, err = c.ZRangeByScoreWithScores(ctx, stopNewsKey, &redis.ZRangeBy{Min: after, Max: "+inf", Count: stopsRead}).Result()
			if err != nil || len(news) == 0 {
				return err
			}
			if values, err = stopTexts(ctx, c, news); err == nil {
				clock, err = c.Time(ctx).Result()
			}
			return err
		})
		if err != nil || len(news) == 0 {
			return err
		}
		behind := time.Since(clock)
		for i, z := range news {
			if !s.merge(z.Member, values[i], behind) {
				// The next step sends the change, and reads on here.
				return nil
			}
			s.read = max(s.read, z.Score)
		}
		if len(news) < stopsRead {
			return nil
		}
	}
}

// stopTexts returns what the store has of the stops with these keys; nil: nothing, or what is too long to be a stop.
func stopTexts(ctx context.Context, c *redis.Client, of []redis.Z) ([]any, error) {
	keys, lengths := make([]string, len(of)), make([]*redis.IntCmd, len(of))
	_, err := c.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i := range of {
			keys[i], _ = of[i].Member.(string)
			lengths[i] = p.HStrLen(ctx, stopsKey, keys[i])
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	for i, n := range lengths {
		if n.Val() > maxStop {
			keys[i] = ""
		}
	}
	values, err := c.HMGet(ctx, stopsKey, keys...).Result()
	if err == nil && len(values) != len(of) {
		err = errReply
	}
	return values, err
}

// merge merges one stop, whose time in the store is earlier by behind than this replica's. It reports false, and does nothing, if this
// replica has changed the stop meanwhile: the store decides which change is the later one.
func (s *stopSharer) merge(key, value any, behind time.Duration) bool {
	text, ok := value.(string)
	if !ok {
		// It was of no more use, or is too long.
		return true
	}
	changed, text, _ := strings.Cut(text, " ")
	_, text, _ = strings.Cut(text, " ")
	micro, err := strconv.ParseInt(changed, 10, 64)
	var stop stops.Stop
	if err == nil {
		stop, err = stops.Read([]byte(text))
	}
	if err == nil && stop.Key().String() != key {
		err = errReply
	}
	if err != nil {
		if !s.warned {
			s.warned = true
			s.fleet.log.Warn("stop in the store not understood, further ones are not logged", "error", err)
		}
		return true
	}
	stop.Changed = time.UnixMicro(micro).Add(behind)
	if now := time.Now(); stop.Changed.After(now) {
		stop.Changed = now
	}
	changedHere, merged := s.table.MergeAfter(stop, s.sent)
	if merged && stop.Kind == stops.Paused {
		s.fleet.log.Info("pause changed by another replica", "host", cmp.Or(stop.Host, "all hosts"), "ended", stop.Ended)
	}
	return !changedHere
}
