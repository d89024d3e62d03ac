// Package tdmrep parses the file in which a site reserves its rights on text and data mining
// (TDM), /.well-known/tdmrep.json, and matches paths against its rules. It follows the TDM
// Reservation Protocol, the final report of a W3C Community Group of 10 May 2024.
//
// The package is pure: it uses no clock, no network and no locks. A [File] never changes after
// [Parse]; any number of goroutines may share it. It does not decide what a reservation, or a
// file that is missing or broken, means to a request.
package tdmrep

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"unicode/utf8"
	"unsafe"

	"robotsproxy/robots"
)

// Path is the path of the file on its origin.
const Path = "/.well-known/tdmrep.json"

// maxPolicy is how many bytes the URL of a policy may have. A longer one is ignored: a part of it
// would be another URL.
const maxPolicy = 2 << 10

// maxElements is how many elements an array may have. Each takes time to read, even if it is no rule.
const maxElements = math.MaxUint16

// Dialect returns the meaning of the responses to the request for a tdmrep.json: that of RFC 9309
// for a robots.txt. A status 429 counts as an unreachable file.
func Dialect() robots.Dialect { return robots.Dialect{Name: "tdmrep"} }

// A Reservation is the value of tdm-reservation.
type Reservation uint8

// The values of a Reservation.
const (
	Unset       Reservation = iota // any value but 0 and 1 is a protocol error, and counts as none
	NotReserved                    // 0
	Reserved                       // 1
)

// A Rule is one object of the file.
type Rule struct {
	Reservation Reservation

	// Location is the pattern as written.
	Location string

	// Policy is the URL of the policy as written, with Reserved; "": there is none.
	Policy string

	// Index is that of the object in the array, from 1.
	Index int

	// GaveUp says that matching would take more than robots.MaxEffort steps: the rule is not known, and
	// the other fields are zero.
	GaveUp bool
}

// A File is one parsed tdmrep.json. A nil File has no rules.
type File struct {
	rules []Rule

	// patterns are the Location of each rule.
	patterns *robots.Patterns

	// size is the memory that the File takes, in bytes.
	size int
}

// Parse parses a tdmrep.json. It ignores what the report does not define, and objects without a
// location or a tdm-reservation, which are mandatory. The error says that the text is not a JSON
// array, or that it reaches a limit: a text of robots.MaxBytes may have been cut there, and a
// location has the limit of a pattern in a robots.txt. Rules that cannot be read may be the ones
// that reserve rights.
func Parse(text []byte) (*File, error) {
	f, err := parse(text)
	if err != nil {
		return nil, fmt.Errorf("parse tdmrep.json: %w", err)
	}
	return f, nil
}

func parse(text []byte) (*File, error) {
	switch {
	case len(text) >= robots.MaxBytes:
		return nil, fmt.Errorf("it has %d bytes or more", robots.MaxBytes)
	case robots.IsHTML(text):
		return nil, errors.New("it is an HTML page")
	// RFC 8259 8.1 requires UTF-8.
	case !utf8.Valid(text):
		return nil, errors.New("it is not UTF-8")
	}
	// A byte order mark may be ignored (RFC 8259 8.1).
	text = bytes.TrimPrefix(text, []byte("\ufeff"))
	var whole json.RawMessage
	if err := json.Unmarshal(text, &whole); err != nil {
		return nil, err
	}
	d := json.NewDecoder(bytes.NewReader(whole))
	// As text, no number is out of range.
	d.UseNumber()
	if t, err := d.Token(); err != nil || t != json.Delim('[') {
		return nil, errors.New("it must be an array of rules")
	}
	f := &File{size: int(unsafe.Sizeof(File{}))}
	var locations []string
	for index := 1; d.More(); index++ {
		r, ok, err := parseRule(d)
		switch {
		case err != nil:
			return nil, err
		case index > maxElements:
			return nil, fmt.Errorf("it has more than %d elements", maxElements)
		case ok:
			r.Index = index
			f.rules, locations = append(f.rules, r), append(locations, r.Location)
			f.size += len(r.Location) + len(r.Policy)
		}
	}
	f.rules = slices.Clip(f.rules)
	var err error
	if f.patterns, err = robots.NewPatterns(locations); err != nil {
		return nil, err
	}
	f.size += cap(f.rules)*int(unsafe.Sizeof(Rule{})) + f.patterns.Size()
	return f, nil
}

// parseRule reads the next element of the array. ok is false if it is no object with a location and a
// tdm-reservation. If an object has a name twice, its last value counts, as in JavaScript; of two
// values of tdm-reservation, 1 counts. There is no error in a text that is JSON.
func parseRule(d *json.Decoder) (r Rule, ok bool, err error) {
	begin, err := d.Token()
	if _, nested := begin.(json.Delim); !nested || err != nil {
		return Rule{}, false, err
	}
	object := begin == json.Delim('{')
	var located, reserved bool
	var v json.RawMessage
	for d.More() {
		var name json.Token
		if object {
			name, err = d.Token()
		}
		if err := errors.Join(err, d.Decode(&v)); err != nil {
			return Rule{}, false, err
		}
		switch name {
		case "location":
			r.Location, located = parseString(v)
		case "tdm-reservation":
			r.Reservation, reserved = max(r.Reservation, parseReservation(v)), true
		case "tdm-policy":
			r.Policy, _ = parseString(v)
		}
	}
	if _, err := d.Token(); err != nil {
		return Rule{}, false, err
	}
	if r.Reservation != Reserved || len(r.Policy) > maxPolicy {
		r.Policy = ""
	}
	return r, located && reserved, nil
}

func parseString(value json.RawMessage) (s string, ok bool) {
	ok = value[0] == '"' && json.Unmarshal(value, &s) == nil
	return s, ok
}

// parseReservation parses a value of tdm-reservation. JSON does not tell 1 from 1.0; a string is
// another value.
func parseReservation(value json.RawMessage) Reservation {
	switch n, err := strconv.ParseFloat(string(value), 64); {
	case err == nil && n == 0:
		return NotReserved
	case err == nil && n == 1:
		return Reserved
	}
	return Unset
}

// Match returns the first rule that matches a path with its query, as it stands in a URL: "The
// most specific match is the first in sequence." ok is false if none does: then tdm-reservation
// is unset. A rule with a protocol error in its tdm-reservation matches too.
func (f *File) Match(pathAndQuery string) (r Rule, ok bool) {
	var spent robots.Effort
	return f.MatchWithin(pathAndQuery, &spent)
}

// MatchWithin is Match for one of several forms of a path. It adds the steps it takes to *spent,
// and gives up when *spent exceeds robots.MaxEffort.
func (f *File) MatchWithin(pathAndQuery string, spent *robots.Effort) (r Rule, ok bool) {
	if f == nil {
		return Rule{}, false
	}
	switch i, gaveUp := f.patterns.First(pathAndQuery, spent); {
	case gaveUp:
		return Rule{GaveUp: true}, true
	case i >= 0:
		return f.rules[i], true
	}
	return Rule{}, false
}

// Size returns the number of bytes of memory that f takes.
func (f *File) Size() int {
	if f == nil {
		return 0
	}
	return f.size
}
