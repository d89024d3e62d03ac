package cache

import (
	"fmt"

	"robotsproxy/robots"
	"robotsproxy/robots/fetch"
)

// An Outcome is what an answer means under a dialect.
type Outcome uint8

// The outcomes. Zero refuses.
const (
	Unreachable  Outcome = iota // reached, but no usable answer: nothing is allowed (RFC 9309 2.3.1.4)
	NoConnection                // never reached: nothing can go out
	NoFile                      // there are no rules: everything is allowed (RFC 9309 2.3.1.3)
	Rules                       // the file decides
)

// String gives the outcome's name in words.
func (o Outcome) String() string {
	switch o {
	case Unreachable:
		return "unreachable"
	case NoConnection:
		return "no connection"
	case NoFile:
		return "no file"
	case Rules:
		return "rules"
	}
	return fmt.Sprintf("Outcome(%d)", uint8(o))
}

// kind sorts answers as finely as any dialect needs; what a kind means is in
// the dialect's table.
type kind uint8

const (
	noConnection kind = iota
	broken            // reached; reset, timeout, bad HTTP, unreadable body, dead redirect
	odd               // a status with no meaning here: 300, 304, 600
	serverError       // 5xx
	tooMany           // 429
	clientError       // other 4xx
	lost              // too many redirects, or one that leads nowhere
	success           // 2xx
	kinds
)

func kindOf(a *fetch.Answer) kind {
	switch s := a.Status; {
	case a.Err != nil && !a.Connected:
		return noConnection
	case a.Err != nil:
		return broken
	case a.Lost:
		return lost
	case s == 0:
		return noConnection
	case s >= 200 && s <= 299:
		return success
	case s == 429:
		return tooMany
	case s >= 400 && s <= 499:
		return clientError
	case s >= 500 && s <= 599:
		return serverError
	}
	return odd
}

// settled: the origin has said what it has to say, and it is kept for its time
// to live. The others are asked again soon, whatever a dialect makes of them.
func (k kind) settled() bool {
	return k == success || k == clientError || k == lost
}

// table is a dialect's reading of the kinds. The zero table refuses.
type table [kinds]Outcome

var standard = table{
	noConnection: NoConnection,
	broken:       Unreachable, // RFC 9309 2.3.1.4
	odd:          Unreachable,
	serverError:  Unreachable, // RFC 9309 2.3.1.4
	tooMany:      Unreachable, // a busy server, not a missing file
	clientError:  NoFile,      // RFC 9309 2.3.1.3
	lost:         NoFile,      // RFC 9309 2.3.1.2
	success:      Rules,       // RFC 9309 2.3.1.1
}

// outcome is the one place where a dialect meets HTTP.
func outcome(k kind, d robots.Dialect) Outcome {
	switch d.Name {
	case "standard":
		return standard[k]
	}
	return table{}[k]
}
