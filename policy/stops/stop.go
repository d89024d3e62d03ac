// Package stops knows when nothing may be sent to a host: while an operator has paused it, or while it cools down after it has
// refused a client too often.
//
// A [Table] has the stops of one process. It can be stored, and shared with other processes: of two changes of one stop, the later
// one counts, and a stop that has ended is remembered for a while, so that a process that was away does not bring it back.
package stops

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"robotsproxy/robots"
)

// A Kind says why nothing may be sent.
type Kind string

// The kinds.
const (
	Paused   Kind = "paused"    // an operator has paused the host
	CoolDown Kind = "cool-down" // the host has refused a client too often
)

// The maximum lengths in bytes of texts in a Stop.
const (
	MaxReason = 500
	MaxBy     = 200
	maxClient = 512

	// MaxText is the maximum length of a Stop in JSON, in which every character of its texts may be escaped.
	MaxText = 8 << 10
)

const (
	// MaxLength is how long a Stop with an end may last.
	MaxLength = 10 * 366 * 24 * time.Hour

	// MaxCoolDown is how long a CoolDown may last, and MaxStatuses how many Statuses a Stop has.
	MaxCoolDown = 24 * time.Hour
	MaxStatuses = 20
)

// A Stop says that nothing may be sent to a host, or to any host, for one client or for all. It is a value, and its Statuses never
// change, so any number of goroutines may share it.
type Stop struct {
	Kind Kind `json:"kind"`

	// Host is in the form of [robots.Origin]; "": every host.
	Host string `json:"host,omitempty"`

	// Client is the key of a client's fair share; "": all clients.
	Client string `json:"client,omitempty"`

	// Since is when it began.
	Since time.Time `json:"since"`

	// Until is when it ends; zero: when somebody ends it.
	Until time.Time `json:"until,omitzero"`

	// Reason is why an operator has paused the host, which a pause must have. By is the operator who has changed the Stop last. Each is
	// one line of printable text.
	Reason string `json:"reason,omitempty"`
	By     string `json:"by,omitempty"`

	// Statuses are the HTTP statuses that caused a CoolDown, in ascending order, and Length is how long it lasts. The next CoolDown
	// lasts twice as long.
	Statuses []int         `json:"statuses,omitempty"`
	Length   time.Duration `json:"length_ns,omitempty"`

	// Changed is when it was changed last; zero: long ago. Ended says that it was ended then.
	Changed time.Time `json:"changed,omitzero"`
	Ended   bool      `json:"ended,omitempty"`
}

// A Key identifies a Stop.
type Key struct {
	Kind         Kind
	Host, Client string
}

// Key returns the Key of s.
func (s *Stop) Key() Key { return Key{s.Kind, s.Host, s.Client} }

// String returns the Key as text that no other Key has.
func (k Key) String() string { return string(k.Kind) + "|" + k.Host + "|" + k.Client }

// StatusText returns the Statuses of a CoolDown as "status 403, 429".
func (s *Stop) StatusText() string {
	var words []string
	for _, status := range s.Statuses {
		words = append(words, strconv.Itoa(status))
	}
	return "status " + strings.Join(words, ", ")
}

// Holds reports whether s stops requests at a time: it has neither ended nor run out.
func (s *Stop) Holds(at time.Time) bool { return !s.Ended && (s.Until.IsZero() || at.Before(s.Until)) }

// How long a Stop that is over is remembered. A pause: because a replica that was away may still tell of an earlier state. A
// cool-down: because the next one is longer.
const (
	pauseKept    = 31 * 24 * time.Hour
	coolDownKept = 24 * time.Hour
)

// KeptUntil returns until when s must be remembered; zero: for ever.
func (s *Stop) KeptUntil() time.Time {
	if !s.Ended && s.Until.IsZero() {
		return time.Time{}
	}
	from, kept := s.Changed, pauseKept
	if s.Until.After(from) {
		from = s.Until
	}
	if s.Kind == CoolDown {
		kept = coolDownKept
	}
	return from.Add(kept).Round(0)
}

// ErrInvalid matches the error of a Stop with invalid or missing values.
var ErrInvalid = errors.New("invalid stop")

// check returns an error that matches ErrInvalid if a value of s is invalid or missing.
func (s *Stop) check() error {
	for _, rule := range []struct {
		broken bool
		what   string
	}{
		{s.Kind != Paused && s.Kind != CoolDown, "unknown kind"},
		{s.Host != "" && !isHost(s.Host), "the host is no host name"},
		{!isLine(s.Client, maxClient), "the client is not one line of text"},
		{s.Kind == Paused && s.Reason == "", "a pause needs a reason"},
		{!isLine(s.Reason, MaxReason), fmt.Sprintf("the reason must be one line of printable text of at most %d bytes", MaxReason)},
		{!isLine(s.By, MaxBy), fmt.Sprintf("who did it must be one line of printable text of at most %d bytes", MaxBy)},
		{!isTime(s.Since) || !isTimeOrZero(s.Until) || !isTimeOrZero(s.Changed), "a time is out of range"},
		{s.Until.Sub(s.Since) > MaxLength, "it would last for more than ten years"},
		{len(s.Statuses) > MaxStatuses || slices.ContainsFunc(s.Statuses, isNoStatus), "the statuses are no HTTP statuses, or too many"},
		{s.Length < 0 || s.Length > MaxLength, "the length is out of range"},
		{s.Kind == CoolDown && !s.isCoolDown(), "a cool-down is for a host, and ends within a day"},
	} {
		if rule.broken {
			return fmt.Errorf("%w: %s", ErrInvalid, rule.what)
		}
	}
	return nil
}

func (s *Stop) isCoolDown() bool {
	return s.Host != "" && !s.Until.IsZero() && max(s.Until.Sub(s.Since), s.Length) <= MaxCoolDown
}

func isHost(s string) bool {
	host, err := robots.ParseHost(s)
	return err == nil && host == s
}

// isLine reports whether s is one line of printable text of at most most bytes.
func isLine(s string, most int) bool {
	return len(s) <= most && utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) })
}

// isTime reports whether t is a time that JSON and Unix time have.
func isTime(t time.Time) bool { return t.Year() >= 1970 && t.Year() <= 9999 }

func isTimeOrZero(t time.Time) bool { return t.IsZero() || isTime(t) }

func isNoStatus(n int) bool { return n < 100 || n > 599 }

// Text returns s as JSON.
func (s Stop) Text() []byte {
	s.Since, s.Until, s.Changed = s.Since.UTC(), s.Until.UTC(), s.Changed.UTC()
	// All times of a Stop that was checked have a JSON.
	text, _ := json.Marshal(s)
	return text
}

// Read returns the Stop that Text has returned as text. It returns an error for anything else: others may have written it.
func Read(text []byte) (s Stop, err error) {
	if len(text) > MaxText {
		return s, fmt.Errorf("%w: %d bytes", ErrInvalid, len(text))
	}
	if err := json.Unmarshal(text, &s); err != nil {
		return Stop{}, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	if err := s.check(); err != nil {
		return Stop{}, err
	}
	return s, nil
}
