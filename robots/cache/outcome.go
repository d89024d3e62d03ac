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

// refuses says whether nothing may be fetched.
func (o Outcome) refuses() bool { return o != NoFile && o != Rules }

// kind sorts answers as finely as any dialect needs.
type kind uint8

const (
	noConnection kind = iota
	broken            // reached; reset, timeout, bad HTTP, unreadable body, dead redirect
	odd               // a status with no meaning here: 300, 304, 600
	serverError       // 5xx
	tooMany           // 429
	clientError       // other 4xx
	lost              // too many redirects, or one that leads nowhere
	barred            // a redirect to an address that the robots.txt there disallows
	otherSuccess      // 2xx but 200
	success           // 200
)

func kindOf(a *fetch.Result) kind {
	switch s := a.Status; {
	case a.Err != nil && (!a.Connected || a.OwnFailure):
		return noConnection
	case a.RedirectDisallowed:
		return barred
	case a.Err != nil:
		return broken
	case a.BadRedirect:
		return lost
	case s == 0:
		return noConnection
	case s == 200:
		return success
	case s >= 201 && s <= 299:
		return otherSuccess
	case s == 429:
		return tooMany
	case s >= 400 && s <= 499:
		return clientError
	case s >= 500 && s <= 599:
		return serverError
	}
	return odd
}

// hasText: the answer brings a text, which may be rules.
func (k kind) hasText() bool { return k == success || k == otherSuccess }

// settled: the origin has said what it has to say, and it is kept for its time
// to live. The others are asked again soon, whatever a dialect makes of them.
func (k kind) settled() bool {
	return k.hasText() || k == clientError || k == lost
}

// outcome is the one place where a dialect meets HTTP.
func outcome(k kind, d robots.Dialect) Outcome {
	if d.Name == "" {
		return Unreachable
	}
	switch k {
	case noConnection:
		return NoConnection
	case success: // RFC 9309 2.3.1.1
		return Rules
	case otherSuccess:
		if !d.Only200 {
			return Rules
		}
		return NoFile
	case clientError, lost: // RFC 9309 2.3.1.3, 2.3.1.2
		return NoFile
	case tooMany: // a busy server, if not by the RFC's letter, which is of all 4xx
		if d.Only200 || d.NoFileOn429 {
			return NoFile
		}
	case barred:
		if d.NoFileOnDisallowedRedirect {
			return NoFile
		}
	case serverError, odd:
		if d.Only200 {
			return NoFile
		}
	}
	return Unreachable // RFC 9309 2.3.1.4
}
