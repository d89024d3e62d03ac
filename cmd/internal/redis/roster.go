package redis

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"robotsproxy/policy/pace"
)

const (
	// enrolEvery is how often a replica tells the others of itself.
	enrolEvery = 5 * time.Second

	// enrolledFor is how long what a replica tells is kept after the last one has told something.
	enrolledFor = 10 * time.Minute

	// maxMembers is the maximum number of replicas of which a replica knows more than their number.
	maxMembers = 64

	// maxMember is the maximum length in bytes of what a replica tells of itself.
	maxMember = 2 << 10

	// minGuard is the least time by which the clocks of two replicas are assumed to differ. A longer one doubles it, once or
	// more, up to maxGuard: replicas whose clocks differ by more take no turns.
	minGuard = 50 * time.Millisecond
	maxGuard = minGuard << 5

	// maxAhead and maxLastHour bound what a replica may tell of its clock and of its requests, so that sums stay in range.
	maxAhead    = 24 * time.Hour
	maxLastHour = 1 << 40

	// sampleFor is how long a measurement of the clock is used, unless there is a better one.
	sampleFor = time.Minute

	// quietEvery is the least time between two returns during which no turns are used. A store that answers now and then
	// must not silence the replicas.
	quietEvery = 10 * time.Second

	// settledFor is how long a replica must have shared the store before its next outage begins with a time without turns.
	settledFor = 5 * time.Second
)

// The keys of the roster.
const (
	rosterKey  = keyPrefix + "roster"
	numbersKey = keyPrefix + "numbers"
	guardKey   = keyPrefix + "guard"
)

// A Member is what a replica tells the others of itself. Its text may come from anybody who can write to the store.
type Member struct {
	// Name is store.replica.
	Name string `json:"name"`

	// Version is the version of the program.
	Version string `json:"version"`

	// Config is the same for replicas whose configurations mean the same.
	Config string `json:"config"`

	// Dashboard is the URL of its dashboard; empty: the others are not told.
	Dashboard string `json:"dashboard,omitzero"`

	// Problems are the names of what is wrong with it.
	Problems []string `json:"problems,omitempty"`

	// LastHour counts its requests of the last hour, by their outcome.
	LastHour map[string]int64 `json:"last_hour,omitempty"`

	// Started is when the process has started.
	Started time.Time `json:"started"`

	// ClockAhead is how far the store's clock is ahead of the replica's, in nanoseconds, and ClockError by how much that may
	// be wrong.
	ClockAhead time.Duration `json:"clock_ahead_ns"`
	ClockError time.Duration `json:"clock_error_ns"`

	// Self means that this is the replica that was asked.
	Self bool `json:"-"`
}

// text returns what a replica tells of itself. It leaves out what makes it too long.
func (m Member) text() string {
	text, err := json.Marshal(m)
	if err == nil && len(text) > maxMember {
		m.Problems, m.LastHour, m.Dashboard = []string{"what is wrong is too long to be told"}, nil, ""
		text, err = json.Marshal(m)
	}
	if err != nil || len(text) > maxMember {
		return "{}"
	}
	return string(text)
}

// An enrolment is what a replica knows of the others from the last time that it has told of itself. It never changes.
type enrolment struct {
	// number is the replica's number, from 1; 0: it has none.
	number int

	// guard is pace.Turns.Guard, of all replicas.
	guard time.Duration

	members []Member
}

// turns returns the turns of this replica, while the store is away, if times replicas take turns.
func (conn *connection) turns(e enrolment, times int) pace.Turns {
	if e.guard > maxGuard {
		return pace.Turns{}
	}
	number := e.number - 1
	if number < 0 {
		// A replica that has never met the others has a turn by its name, so that a restart does not change it.
		hash := fnv.New32a()
		hash.Write([]byte(conn.name))
		number = int(hash.Sum32() >> 1)
	}
	return pace.Turns{Of: times, Number: number % times, Guard: max(e.guard, minGuard)}
}

// A clockSample is one measurement of the store's clock.
type clockSample struct {
	at time.Time

	// ahead is how far the store's clock is ahead of this one, and within is by how much that may be wrong.
	ahead, within time.Duration
}

// enrol tells the others what self returns, and learns what they have told. Nothing but turns needs it: if the server refuses
// it, the pace is shared all the same.
func (f *Fleet) enrol(ctx context.Context, self func() Member) {
	v := f.view.Load()
	if v.StoreAway || time.Since(f.enrolled) < enrolEvery {
		return
	}
	f.enrolled = time.Now()
	var told Member
	if self != nil {
		told = self()
	}
	if f.measure(ctx) != nil {
		return
	}
	told.ClockAhead, told.ClockError = f.clock.ahead, f.clock.within
	next := *v
	names, err := f.tell(ctx, v, told.text(), &next.enrolment)
	if err != nil {
		return
	}
	told.Self = true
	others, err := f.others(ctx, slices.DeleteFunc(names, func(name string) bool { return name == f.id }))
	if err != nil {
		return
	}
	next.members = append(others, told)
	slices.SortStableFunc(next.members, func(a, b Member) int { return strings.Compare(a.Name, b.Name) })
	f.replaceView(v, &next)
}

// measure measures the store's clock.
func (f *Fleet) measure(ctx context.Context) error {
	return f.do(ctx, func(ctx context.Context, c *redis.Client) error {
		asked := time.Now()
		there, err := c.Time(ctx).Result()
		if is[redis.Error](err) {
			// A server that does not tell its time is of use all the same.
			return nil
		}
		if err != nil {
			return err
		}
		within := time.Since(asked)/2 + time.Microsecond
		is := clockSample{asked, there.Sub(asked.Round(0).Add(within)), within}
		was := &f.clock
		if apart := (is.ahead - was.ahead).Abs(); within <= was.within || apart > within+was.within || asked.Sub(was.at) >= sampleFor {
			*was = is
		}
		return nil
	})
}

// tell tells the others of this replica, and stores its number and the guard in e. It returns the names of replicas that are
// there. An error that the server has answered with is logged once, and does not make this replica alone.
func (f *Fleet) tell(ctx context.Context, v *view, text string, e *enrolment) (names []string, err error) {
	var refused error
	keys := []string{epochKey, replicasKey, rosterKey, numbersKey, guardKey}
	err = f.do(ctx, func(ctx context.Context, c *redis.Client) error {
		reply, err := rosterScript.Run(ctx, c, keys, v.epoch, f.id, text, enrolledFor.Milliseconds(), maxMembers, v.number,
			f.replicas, guard(v.members).Milliseconds()).Slice()
		if is[redis.Error](err) {
			refused = err
			return nil
		}
		if err != nil {
			return err
		}
		number, ok := element[int64](reply, 0)
		if ok && number < 0 {
			return errEmptied
		}
		ms, hasGuard := element[int64](reply, 1)
		if !ok || !hasGuard || number < 1 {
			return errReply
		}
		e.number, e.guard = int(number), time.Duration(min(max(0, ms), maxAhead.Milliseconds()))*time.Millisecond
		for i := 2; i < len(reply); i++ {
			if name, ok := element[string](reply, i); ok {
				names = append(names, name)
			}
		}
		return nil
	})
	if refused != nil && !f.refused {
		f.log.Warn("store refuses what this replica tells of itself", "err", refused)
	}
	f.refused = refused != nil
	return names, cmp.Or(refused, err)
}

// others returns what other replicas have told of themselves.
func (f *Fleet) others(ctx context.Context, names []string) (all []Member, err error) {
	if len(names) == 0 {
		return nil, nil
	}
	err = f.do(ctx, func(ctx context.Context, c *redis.Client) error {
		texts, err := c.HMGet(ctx, rosterKey, names...).Result()
		if is[redis.Error](err) {
			return nil
		}
		for _, text := range texts {
			// A replica that has joined just now has not told anything yet.
			if m, ok := memberOf(text); ok {
				all = append(all, m)
			}
		}
		return err
	})
	return all, err
}

// memberOf reads what a replica has told, if it is anything, within bounds.
func memberOf(value any) (m Member, ok bool) {
	text, ok := value.(string)
	if !ok || len(text) > maxMember || json.Unmarshal([]byte(text), &m) != nil {
		return m, false
	}
	m.ClockAhead, m.ClockError = min(max(-maxAhead, m.ClockAhead), maxAhead), min(max(0, m.ClockError), maxAhead)
	for name, n := range m.LastHour {
		m.LastHour[name] = min(max(0, n), maxLastHour)
	}
	return m, true
}

// guard returns the guard that the clocks of the members make necessary: minGuard, doubled often enough. Its steps are few,
// so that what replicas find at different times is the same.
func guard(members []Member) time.Duration {
	guard := minGuard
	if len(members) == 0 {
		return guard
	}
	least, most := maxAhead, -maxAhead
	for _, m := range members {
		least, most = min(least, m.ClockAhead-m.ClockError), max(most, m.ClockAhead+m.ClockError)
	}
	for guard < most-least && guard <= maxGuard {
		guard *= 2
	}
	return guard
}

// Variants returns how many configurations and how many versions the members have. More than one means that the replicas do
// not all do the same.
func (s *Stats) Variants() (configs, versions int) {
	return len(s.names(func(m *Member) string { return m.Config })), len(s.names(func(m *Member) string { return m.Version }))
}

// names returns the names of the members by a property; those without it are left out.
func (s *Stats) names(property func(*Member) string) map[string][]string {
	all := make(map[string][]string)
	for i := range s.Members {
		if p := property(&s.Members[i]); p != "" {
			all[p] = append(all[p], s.Members[i].Name)
		}
	}
	return all
}

// Warnings returns what an operator should know about the replicas together, except that the store is away. It may contain
// text of the other replicas.
func (s *Stats) Warnings() (all []string) {
	for what, property := range map[string]func(*Member) string{
		"configurations": func(m *Member) string { return m.Config },
		"versions":       func(m *Member) string { return m.Version },
	} {
		if found := s.names(property); len(found) > 1 {
			var parts []string
			for p, names := range found {
				parts = append(parts, p+" at "+strings.Join(names, ", "))
			}
			slices.Sort(parts)
			all = append(all, "replicas run different "+what+": "+strings.Join(parts, "; "))
		}
	}
	for name, those := range s.names(func(m *Member) string { return m.Name }) {
		if len(those) > 1 {
			all = append(all, fmt.Sprintf("%d replicas are called %s: give each its own store.replica", len(those), name))
		}
	}
	if s.Guard > maxGuard {
		all = append(all, fmt.Sprintf("the clocks of the replicas differ by more than %v: without the store, two requests to a site "+
			"may be closer together than its delay", maxGuard))
	}
	if n := s.Replicas - len(s.Members); len(s.Members) > 0 && len(s.Members) < maxMembers && n > 0 && !s.StoreAway {
		all = append(all, fmt.Sprintf("%d of %d replicas tell nothing of themselves, as those of older versions", n, s.Replicas))
	}
	if !s.StoreAway && s.Times > 1 {
		const fewer = "%d of %d replicas (store.replicas) share the store, so requests are sent %.3g times slower than permitted"
		all = append(all, fmt.Sprintf(fewer, s.Replicas, s.Expected, s.Times))
	}
	slices.Sort(all)
	return all
}
