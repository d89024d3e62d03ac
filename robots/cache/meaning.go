package cache

import (
	"fmt"
	"unsafe"

	"robotsproxy/robots"
	"robotsproxy/robots/fetch"
)

// A Meaning is what a response means under a dialect.
type Meaning uint8

// The outcomes. Zero refuses.
const (
	Unreachable  Meaning = iota // connected, but no usable response: nothing is allowed (RFC 9309 2.3.1.4)
	NoConnection                // no connection: no request could be sent either
	NoFile                      // there are no rules: everything is allowed (RFC 9309 2.3.1.3)
	Rules                       // the file decides
)

// String returns the outcome in words.
func (m Meaning) String() string {
	names := [...]string{Unreachable: "unreachable", NoConnection: "no connection", NoFile: "no file", Rules: "rules"}
	if int(m) < len(names) {
		return names[m]
	}
	return fmt.Sprintf("Meaning(%d)", uint8(m))
}

// refuses reports whether nothing may be fetched.
func (m Meaning) refuses() bool { return m != NoFile && m != Rules }

// A kind classifies results. It distinguishes everything that any dialect distinguishes.
type kind uint8

const (
	noConnection       kind = iota
	broken                  // connected, then a reset, timeout, bad HTTP or unreadable body
	oddStatus               // a status without a meaning for robots.txt, such as 600
	serverError             // 5xx
	tooManyRequests         // 429
	clientError             // other 4xx
	tooManyRedirects        // more than fetch.MaxRedirects
	deadRedirect            // a 3xx that cannot be followed
	redirectDisallowed      // a redirect to a URL that the robots.txt of its origin disallows
	brokenText              // 2xx with a text that breaks off, which only a dialect that decodes it knows
	otherSuccess            // 2xx other than 200
	success                 // 200
)

func kindOf(a *fetch.Result) kind {
	switch s := a.Status; {
	case a.Err != nil && (!a.Connected || a.OwnFailure):
		return noConnection
	case a.RedirectDisallowed:
		return redirectDisallowed
	case a.DeadRedirect:
		return deadRedirect
	case a.Err != nil:
		return broken
	case a.TooManyRedirects:
		return tooManyRedirects
	case s == 0:
		return noConnection
	case s >= 200 && s <= 299 && textError(a) != nil:
		return brokenText
	case s == 200:
		return success
	case s >= 201 && s <= 299:
		return otherSuccess
	case s == 429:
		return tooManyRequests
	case s >= 400 && s <= 499:
		return clientError
	case s >= 500 && s <= 599:
		return serverError
	}
	return oddStatus
}

// textError returns why a careful dialect cannot decode the text of a result, or nil.
func textError(a *fetch.Result) error {
	// This makes no copy.
	_, _, err := robots.Decode(unsafe.String(unsafe.SliceData(a.Body), len(a.Body)), robots.Standard())
	return err
}

// hasText reports whether the response has a text, which may be rules.
func (k kind) hasText() bool { return k == success || k == otherSuccess || k == brokenText }

// settled reports whether the response is final, so that the cache keeps it for its ttl. Other
// responses are retried soon, whatever they mean under a dialect.
func (k kind) settled() bool {
	return k == success || k == otherSuccess || k == clientError || k == tooManyRedirects
}

// outcome returns what a kind of result means under a dialect.
func outcome(k kind, d robots.Dialect) Meaning {
	if d.Name == "" {
		return Unreachable
	}
	switch k {
	case noConnection:
		return NoConnection
	// RFC 9309 2.3.1.1.
	case success:
		return Rules
	case brokenText:
		if !d.Careful {
			return Rules
		}
	case otherSuccess:
		if !d.Only200 {
			return Rules
		}
		return NoFile
	// RFC 9309 2.3.1.3, 2.3.1.2.
	case clientError, tooManyRedirects:
		return NoFile
	// The server is busy, although the RFC's text includes 429 in all 4xx.
	case tooManyRequests:
		if d.Only200 || d.NoFileOn429 {
			return NoFile
		}
	case redirectDisallowed:
		if d.NoFileOnDisallowedRedirect {
			return NoFile
		}
	case deadRedirect:
		if d.Only200 || d.NoFileOnDeadRedirect {
			return NoFile
		}
	case serverError, oddStatus:
		if d.Only200 {
			return NoFile
		}
	}
	// RFC 9309 2.3.1.4.
	return Unreachable
}

// Failure returns why a result does not settle what the robots.txt says, or nil if it
// does.
func Failure(a *fetch.Result) error {
	switch {
	case kindOf(a).settled():
		return nil
	case a.Err != nil:
		return a.Err
	case kindOf(a) == brokenText:
		return fmt.Errorf("fetch %s: %w", a.URL, textError(a))
	}
	return fmt.Errorf("fetch %s: status %d", a.URL, a.Status)
}

// A FetchOutcome is how a fetch ended. The set is closed.
type FetchOutcome string

// The outcomes of a fetch under the standard dialect.
const (
	FetchedRules        FetchOutcome = "rules"         // a file
	FetchedNoFile       FetchOutcome = "no-file"       // there is none
	FetchedUnreachable  FetchOutcome = "unreachable"   // connected, but no usable response
	FetchedNoConnection FetchOutcome = "no-connection" // no connection
	FetchedOwnFailure   FetchOutcome = "ours"          // a failure of the proxy's own, not of the origin
)

// FetchOutcomeOf returns the outcome of the fetch with this result.
func FetchOutcomeOf(a *fetch.Result) FetchOutcome {
	if a.OwnFailure {
		return FetchedOwnFailure
	}
	return fetchOutcomes[outcome(kindOf(a), robots.Standard())]
}

// fetchOutcomes maps each Meaning to its FetchOutcome, and includes FetchedOwnFailure.
var fetchOutcomes = [...]FetchOutcome{
	Unreachable: FetchedUnreachable, NoConnection: FetchedNoConnection, NoFile: FetchedNoFile, Rules: FetchedRules,
	Rules + 1: FetchedOwnFailure,
}
