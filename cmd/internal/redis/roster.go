package redis

import (
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

	// minGuard is the least time by which the clocks of two replicas are assumed to differ.
	minGuard = 50 * time.Millisecond

	// maxGuard is the most. Replicas whose clocks differ by more keep to their share of the rate, not to the gap.
	maxGuard = time.Minute

	// sampleFor is how long a measurement of the clock is used, unless there is a better one.
	sampleFor = time.Minute

	// quietEvery is the least time between the beginnings of two returns from one outage during which nothing is sent to
	// hosts that have a gap. A store that answers now and then must not silence the replicas.
	quietEvery = 10 * time.Second
)

// The keys of the roster.
const (
	rosterKey  = keyPrefix + "roster"
	numbersKey = keyPrefix + "numbers"
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

	// guard is pace.Turns.Guard.
	guard time.Duration

	members []Member
}

// turns returns the turns of this replica, while the store is away, if times replicas take turns.
func (conn *connection) turns(e enrolment, times int, from time.Time) pace.Turns {
	number := e.number - 1
	if number < 0 {
		// A replica that has never met the others has a turn by its name, so that a restart does not change it.
		hash := fnv.New32a()
		hash.Write([]byte(conn.name))
		number = int(hash.Sum32() >> 1)
	}
	return pace.Turns{Of: times, Number: number % times, Guard: e.guard, From: from}
}

// A clockSample is one measurement of the store's clock.
type clockSample struct {
	at           time.Time
	ahead, error time.Duration
}

// enrol tells the others what self returns, and learns what they have told.
func (f *Fleet) enrol(ctx context.Context, self func() Member) {
	v := f.view.Load()
	if v.StoreAway || time.Since(f.enrolled) < enrolEvery {
		return
	}
	var told Member
	if self != nil {
		told = self()
	}
	told.ClockAhead, told.ClockError = f.clock.ahead, f.clock.error
	number, names, err := f.tell(ctx, v, told.text())
	if err != nil {
		return
	}
	told.ClockAhead, told.ClockError, told.Self = f.clock.ahead, f.clock.error, true
	others, err := f.others(ctx, slices.DeleteFunc(names, func(name string) bool { return name == f.id }))
	if err != nil {
		return
	}
	next := *v
	next.enrolment = enrolment{number: number, members: append(others, told)}
	slices.SortStableFunc(next.members, func(a, b Member) int { return strings.Compare(a.Name, b.Name) })
	next.guard = guard(next.members)
	if f.replaceView(v, &next) {
		f.enrolled = time.Now()
	}
}

// tell tells the others of this replica, and measures the store's clock.
func (f *Fleet) tell(ctx context.Context, v *view, text string) (number int, names []string, err error) {
	keys := []string{epochKey, replicasKey, rosterKey, numbersKey}
	asked := time.Now()
	err = f.do(ctx, func(ctx context.Context, c *redis.Client) error {
		reply, err := rosterScript.Run(ctx, c, keys, v.epoch, f.id, text, enrolledFor.Milliseconds(), maxMembers, v.number).Slice()
		if err != nil {
			return err
		}
		took := time.Since(asked)
		micros, ok := element[int64](reply, 0)
		if ok && micros < 0 {
			return errEmptied
		}
		n, hasNumber := element[int64](reply, 1)
		if !ok || !hasNumber || n < 1 {
			return errReply
		}
		number = int(n)
		for i := 2; i < len(reply); i++ {
			if name, ok := element[string](reply, i); ok {
				names = append(names, name)
			}
		}
		if took/2 <= f.clock.error || asked.Sub(f.clock.at) >= sampleFor {
			f.clock = clockSample{asked, time.UnixMicro(micros).Sub(asked.Round(0).Add(took / 2)), took / 2}
		}
		return nil
	})
	return number, names, err
}

// others returns what other replicas have told of themselves.
func (f *Fleet) others(ctx context.Context, names []string) (all []Member, err error) {
	if len(names) == 0 {
		return nil, nil
	}
	err = f.do(ctx, func(ctx context.Context, c *redis.Client) error {
		texts, err := c.HMGet(ctx, rosterKey, names...).Result()
		for _, text := range texts {
			var m Member
			// A replica that has joined just now has not told anything yet.
			if s, ok := text.(string); ok && json.Unmarshal([]byte(s), &m) == nil {
				all = append(all, m)
			}
		}
		return err
	})
	return all, err
}

// guard returns by how much the clocks of the members may differ.
func guard(members []Member) time.Duration {
	if len(members) == 0 {
		return minGuard
	}
	least, most := members[0].ClockAhead, members[0].ClockAhead
	for _, m := range members {
		least, most = min(least, m.ClockAhead-m.ClockError), max(most, m.ClockAhead+m.ClockError)
	}
	return min(max(most-least, minGuard), maxGuard)
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
	if !s.StoreAway && s.Times > 1 {
		const fewer = "%d of %d replicas (store.replicas) share the store, so requests are sent %.3g times slower than permitted"
		all = append(all, fmt.Sprintf(fewer, s.Replicas, s.Expected, s.Times))
	}
	slices.Sort(all)
	return all
}
