package policy

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	"robotsproxy/policy/pace"
	"robotsproxy/robots"
)

// Treatment says what becomes of the robots.txt of a host.
type Treatment uint8

// What may be done. The zero value enforces.
const (
	Enforce Treatment = iota // it decides
	Ignore                   // it is not asked: somebody has permitted that
	Deny                     // nor anything else of the host
)

// A Host is an entry for hosts, and says what is different for them.
type Host struct {
	Match    string      // a pattern: exact, *.suffix, or *
	Robots   Treatment   // zero: Enforce
	Reason   string      // who permitted it, or why it is denied, in a line of printable text; required with Ignore and Deny
	Until    time.Time   // from then on it is as if the entry were not there; zero: for good
	Readings Readings    // in which forms paths are judged; zero: Options.Readings
	Pace     pace.Limits // PerSecond, Burst, MaxConcurrent, MaxWait and MaxQueue for each of the hosts; what is zero is that of Options.Pace
}

func (h *Host) check() error {
	switch {
	case h.Robots > Deny:
		return fmt.Errorf("the entry for %s has no treatment of robots.txt that is known", h.Match)
	case h.Readings > LiteralReadings:
		return fmt.Errorf("the entry for %s has unknown readings", h.Match)
	case h.Robots != Enforce && h.Reason == "":
		return fmt.Errorf("the entry for %s has no reason", h.Match)
	case strings.ContainsFunc(h.Reason, func(r rune) bool { return !unicode.IsPrint(r) }):
		return fmt.Errorf("the entry for %s has a reason that is not one line of text", h.Match)
	case !(h.Pace.PerSecond >= 0) || min(h.Pace.Burst, h.Pace.MaxConcurrent, h.Pace.MaxQueue) < 0 || h.Pace.MaxWait < 0:
		return fmt.Errorf("the entry for %s has a negative pace", h.Match)
	}
	return nil
}

// Denied gives what says of a host, in the form of [robots.Origin], whether an entry
// denies it now: nothing goes there, nor where a redirect of robots.txt leads.
func Denied(entries []Host) (func(host string) bool, error) {
	h, err := newHosts(entries)
	if err != nil {
		return nil, fmt.Errorf("policy: %w", err)
	}
	return func(host string) bool {
		e := h.entry(host)
		return e != nil && e.Robots == Deny
	}, nil
}

// hosts are the entries in their order.
type hosts struct {
	entries  []Host
	patterns *HostPatterns
}

func newHosts(entries []Host) (h hosts, err error) {
	h.entries = slices.Clone(entries)
	var patterns []string
	for i := range entries {
		if err := entries[i].check(); err != nil {
			return hosts{}, err
		}
		patterns = append(patterns, entries[i].Match)
	}
	h.patterns, err = NewHostPatterns(patterns)
	return h, err
}

// entry is the first that fits a host and is in force; nil: none is.
func (h *hosts) entry(host string) *Host {
	for i := h.patterns.next(host, 0); i >= 0; i = h.patterns.next(host, i+1) {
		if e := &h.entries[i]; e.Until.IsZero() || time.Now().Before(e.Until) {
			return e
		}
	}
	return nil
}

// HostPatterns is a list of host patterns: a name or an address itself,
// *.suffix for all names below one, or * for every host. It never changes after
// NewHostPatterns; the zero value has no host.
type HostPatterns struct {
	at   map[string][]int // where a pattern stands in the list, ascending; by what is behind the star, the dot included
	wild bool             // a star is among them
}

// NewHostPatterns reads patterns; case, and how a name in another script is
// written, make no difference (see [robots.ParseHost]).
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

var errPattern = errors.New("a star stands alone, or before the dot that a suffix begins with")

// Has says whether a host, in the form of [robots.Origin], fits one of the patterns.
func (p *HostPatterns) Has(host string) bool { return p.next(host, 0) >= 0 }

// next gives the place of the first pattern from a place on that a host fits;
// -1: none does. The cost grows with the host's labels, not with the list.
func (p *HostPatterns) next(host string, from int) int {
	if len(p.at) == 0 {
		return -1
	}
	first := p.place(host, from, -1)
	if !p.wild {
		return first
	}
	first = p.place("", from, first)
	for i := 1; i < len(host); i++ {
		if host[i] == '.' {
			first = p.place(host[i:], from, first)
		}
	}
	return first
}

// place is the smaller of first, unless that is -1, and the place of a key.
func (p *HostPatterns) place(key string, from, first int) int {
	at := p.at[key]
	i, _ := slices.BinarySearch(at, from)
	if i < len(at) && (first < 0 || at[i] < first) {
		return at[i]
	}
	return first
}
