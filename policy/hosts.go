package policy

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	"robotsproxy/policy/hours"
	"robotsproxy/policy/pace"
	"robotsproxy/robots"
)

// Treatment says how robots.txt is treated for a host.
type Treatment uint8

// The zero value enforces.
const (
	Enforce Treatment = iota // robots.txt decides
	Ignore                   // every request is allowed, and robots.txt is not fetched
	Deny                     // every request is refused, and robots.txt is not fetched
)

// A Host is an entry with settings for the hosts that match a pattern, or for some paths of these hosts.
type Host struct {
	// Match is the pattern: a host, *.suffix, or *.
	Match string

	// Paths are patterns as in rules of robots.txt, each beginning with a slash: the entry is for requests of which one matches
	// the path and query; empty: it is for all requests to the hosts.
	Paths []string

	// Robots says how robots.txt is treated; zero: Enforce.
	Robots Treatment

	// Reason says who permitted it, or why the host is denied, in one line of printable text; required with Ignore, Deny
	// and IgnoreUsage.
	Reason string

	// Until is when the entry expires; zero: never.
	Until time.Time

	// IgnoreUsage has usage preferences only recorded.
	IgnoreUsage bool

	// Forbidden is what status 401 or 403 for robots.txt means; zero: that of Options.
	Forbidden OnForbidden

	// Readings are the forms in which paths are matched; zero: those of Options.
	Readings Readings

	// Hours are when requests may be sent: while all of them are open. Empty: always.
	Hours []*hours.Schedule

	// RobotsHours lets requests be sent only at the times of the Visit-time lines of robots.txt, if there are any.
	RobotsHours bool

	// CoolDown says when a client is stopped at one of the hosts; nil: that of Options applies.
	CoolDown *CoolDown

	// Parent names the upstream proxy that requests go through, without a password; "": the one for all hosts. It does not change the
	// verdict.
	Parent string

	// Pace has PerSecond, Burst, MaxConcurrent, MaxWait and MaxQueue of each host; a zero field: that of Options.Pace.
	Pace pace.Limits

	// Budget limits what is sent to each host or, with Paths, to these paths of each host.
	Budget Budget
}

// Names returns what [Decision].Entry can be if the entry applies: a name for each of Paths or, without any, Match.
func (h *Host) Names() (all []string) {
	if len(h.Paths) == 0 {
		return []string{h.Match}
	}
	for _, path := range h.Paths {
		all = append(all, h.Match+path)
	}
	return all
}

func (h *Host) check() error {
	for _, path := range h.Paths {
		if !strings.HasPrefix(path, "/") || strings.ContainsFunc(path, isNotInPattern) {
			return fmt.Errorf("the entry for %s has the path %q: no pattern of a robots.txt that begins with a slash", h.Match, path)
		}
	}
	switch {
	case h.Robots > Deny:
		return fmt.Errorf("the entry for %s has an unknown treatment of robots.txt", h.Match)
	case h.Forbidden > RefuseForbidden:
		return fmt.Errorf("the entry for %s has an unknown value of Forbidden", h.Match)
	case h.Readings > LiteralReadings:
		return fmt.Errorf("the entry for %s has unknown readings", h.Match)
	case (h.Robots != Enforce || h.IgnoreUsage) && h.Reason == "":
		return fmt.Errorf("the entry for %s has no reason", h.Match)
	case h.CoolDown != nil && h.CoolDown.check() != nil:
		return fmt.Errorf("the entry for %s: %w", h.Match, h.CoolDown.check())
	case strings.ContainsFunc(h.Reason, func(r rune) bool { return !unicode.IsPrint(r) }):
		return fmt.Errorf("the reason in the entry for %s is not one line of text", h.Match)
	case !(h.Pace.PerSecond >= 0) || min(h.Pace.Burst, h.Pace.MaxConcurrent, h.Pace.MaxQueue) < 0 || h.Pace.MaxWait < 0:
		return fmt.Errorf("the entry for %s has a negative pace", h.Match)
	}
	if err := h.Budget.check(); err != nil {
		return fmt.Errorf("the entry for %s: %w", h.Match, err)
	}
	return nil
}

// isNotInPattern reports whether a pattern cannot have r, because it would end there in a robots.txt.
func isNotInPattern(r rune) bool { return r <= ' ' || r == '#' || r == 0x7f }

// Denied returns a function that reports whether an entry denies a target at the time of the call. The fetcher of robots.txt
// uses it for redirects.
func Denied(entries []Host) (func(robots.Target) bool, error) {
	h, err := newHosts(entries, pace.Limits{}, CoolDown{})
	if err != nil {
		return nil, fmt.Errorf("policy: %w", err)
	}
	return func(t robots.Target) bool {
		found := h.of(&Request{Target: t})
		return found.tooComplex || found.Robots == Deny
	}, nil
}

// hosts holds the entries in their order.
type hosts struct {
	entries  []Host
	patterns *HostPatterns

	// paths has the compiled Paths of each entry; nil: it has none.
	paths []*robots.Patterns

	// pace and coolDown are what applies where an entry has none.
	pace     pace.Limits
	coolDown *CoolDown
}

func newHosts(entries []Host, limits pace.Limits, c CoolDown) (h hosts, err error) {
	h.entries, h.pace, h.coolDown = slices.Clone(entries), limits, &c
	var patterns []string
	for i := range entries {
		if err := entries[i].check(); err != nil {
			return hosts{}, err
		}
		patterns = append(patterns, entries[i].Match)
		var paths *robots.Patterns
		if len(entries[i].Paths) > 0 {
			if paths, err = robots.NewPatterns(entries[i].Paths); err != nil {
				return hosts{}, fmt.Errorf("the entry for %s: %w", entries[i].Match, err)
			}
		}
		h.paths = append(h.paths, paths)
	}
	h.patterns, err = NewHostPatterns(patterns)
	return h, err
}

// next returns the position of the first entry, at or after from, that matches a host and has not expired; -1: there is none.
func (h *hosts) next(host string, from int) int {
	for i := h.patterns.next(host, from); i >= 0; i = h.patterns.next(host, i+1) {
		if until := h.entries[i].Until; until.IsZero() || time.Now().Before(until) {
			return i
		}
	}
	return -1
}

// find returns the first entry that is for all requests to a host; &noEntry: there is none.
func (h *hosts) find(host string) *Host {
	for i := h.next(host, 0); i >= 0; i = h.next(host, i+1) {
		if h.paths[i] == nil {
			return &h.entries[i]
		}
	}
	return &noEntry
}

// noEntry is what applies to a host without an entry.
var noEntry Host

// HostPatterns is a list of host patterns: a name or an address, *.suffix for all names
// below a domain, or * for every host. It is immutable; the zero value matches no host.
type HostPatterns struct {
	// at has the positions in the list, ascending, by the pattern without its star.
	at map[string][]int

	// wild says that a pattern has a star.
	wild bool
}

// NewHostPatterns parses patterns. It normalises hosts as [robots.ParseHost] does.
func NewHostPatterns(patterns []string) (*HostPatterns, error) {
	p := &HostPatterns{at: make(map[string][]int, len(patterns))}
	for i, pattern := range patterns {
		name, wild := strings.CutPrefix(pattern, "*")
		key := ""
		if !wild || name != "" {
			below, dotted := strings.CutPrefix(name, ".")
			if wild != dotted {
				return nil, fmt.Errorf("host pattern %q: %w", pattern, errPattern)
			}
			host, err := robots.ParseHost(below)
			if err != nil {
				return nil, fmt.Errorf("host pattern %q: %w", pattern, err)
			}
			key = name[:len(name)-len(below)] + host
		}
		p.at[key] = append(p.at[key], i)
		p.wild = p.wild || wild
	}
	return p, nil
}

var errPattern = errors.New("a star is allowed only alone, or in front of a suffix (*.example.com)")

// First returns the position of the first pattern in the list that matches a host, in the form of [robots.Origin]; -1: none does.
func (p *HostPatterns) First(host string) int { return p.next(host, 0) }

// Has reports whether a host, in the form of [robots.Origin], matches a pattern.
func (p *HostPatterns) Has(host string) bool { return p.next(host, 0) >= 0 }

// next returns the position of the first pattern, at or after from, that matches a host; -1:
// none does. Its time grows with the host's labels, not with the list.
func (p *HostPatterns) next(host string, from int) int {
	first := -1
	try := func(key string) {
		at := p.at[key]
		if i, _ := slices.BinarySearch(at, from); i < len(at) && (first < 0 || at[i] < first) {
			first = at[i]
		}
	}
	try(host)
	if p.wild {
		try("")
		for i := 1; i < len(host); i++ {
			if host[i] == '.' {
				try(host[i:])
			}
		}
	}
	return first
}

// Readings says in which forms an Engine matches a path.
type Readings uint8

// The readings.
const (
	ReadingsOfDialect Readings = iota // those of the dialect, see robots.Dialect.Literal
	AllReadings                       // as it was sent, and in the forms that servers may treat as the same: see Form
	LiteralReadings                   // as it was sent, and without dot segments
)

// OnForbidden says what it means that a site answers 401 or 403 for its robots.txt.
type OnForbidden uint8

// The meanings.
const (
	ForbiddenOfOptions OnForbidden = iota // that of Options.Forbidden, which is AllowForbidden by default
	AllowForbidden                        // there is no file: everything is allowed (RFC 9309 2.3.1.3)
	RefuseForbidden                       // nothing is allowed
)
