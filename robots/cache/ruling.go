package cache

import (
	"fmt"
	"time"
	"weak"

	"robotsproxy/robots"
	"robotsproxy/robots/fetch"
	"robotsproxy/robots/tdmrep"
)

// A Ruling is what an Entry means under a dialect. The zero Ruling refuses.
type Ruling struct {
	Meaning Meaning

	// File is set with Rules, except under tdmrep.Dialect.
	File *robots.File

	// TDMRep is set with Rules under tdmrep.Dialect.
	TDMRep *tdmrep.File

	// Result is that of the file in use, the stale one if Stale is set. If there is no file, it is that
	// of the failed fetch.
	Result *fetch.Result

	// Stale says that a stale file is used while the origin fails.
	Stale bool

	// Err is the cause of Unreachable, NoConnection and Stale, and of NoFile if the origin has failed
	// for Dialect.NoFileAfter.
	Err error

	// Retry is the time of the next try, with Unreachable and NoConnection.
	Retry time.Time

	// short is Result without its body. It is nil if the body is small.
	short *shortResult
}

// setFile sets the file of a Ruling with Rules. A file that cannot be read is no usable response; it is
// fetched again at retry.
func (r *Ruling) setFile(c *compiled, retry time.Time) {
	if c.broken != nil {
		r.Meaning, r.Stale, r.Err, r.Retry = Unreachable, false, fmt.Errorf("fetch %s: %w", r.Result.URL, c.broken.err), retry
		return
	}
	r.File, r.TDMRep = c.file, c.tdmrep
}

// Fetched returns when the file in use was fetched, or when it was found that there is none. It
// returns the zero time if neither is in use.
func (r Ruling) Fetched() time.Time {
	// NoFile with an error means that the origin has failed for Dialect.NoFileAfter.
	if r.Meaning.refuses() || r.Meaning == NoFile && r.Err != nil {
		return time.Time{}
	}
	return r.Result.Fetched
}

// Shrink drops references to data that the Entry may free while the Ruling is still in use:
// the file, and the body of Result unless it is small. It reports whether the body is large.
func (r *Ruling) Shrink() (large bool) {
	r.File, r.TDMRep = nil, nil
	if r.short == nil {
		return false
	}
	r.Result = &r.short.result
	return true
}

// FullResult returns Result with its body, even after Shrink. It returns nil if the Entry has
// freed the body since.
func (r *Ruling) FullResult() *fetch.Result {
	if r.short == nil || r.Result != &r.short.result {
		return r.Result
	}
	return r.short.full.Value()
}

// smallBody is the maximum length, in bytes, of a body that Shrink keeps: a request in flight
// takes several times that.
const smallBody = 8 << 10

// A shortResult is a result without its body.
type shortResult struct {
	result fetch.Result
	full   weak.Pointer[fetch.Result]
}

// newShortResult returns nil for a result with a small body.
func newShortResult(a *fetch.Result) *shortResult {
	if len(a.Body) <= smallBody {
		return nil
	}
	b := &shortResult{result: *a, full: weak.Make(a)}
	b.result.Body = nil
	return b
}
