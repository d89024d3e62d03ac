package cache

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"time"
	"unique"

	"robotsproxy/robots"
	"robotsproxy/robots/fetch"
)

// The format of an entry in a Store. Integers are big-endian; a time is nanoseconds since 1970
// in 8 bytes, 0 for none.
//
//	format      1 byte
//	origin      a string: 4 bytes of length, and itself
//	failed      a time: the first failure
//	tried       a time: the last failure
//	delay       8 bytes, nanoseconds: from then to the next try
//	result      the last
//	held        1 byte: 1 if another result follows, the stale one; else 0
//	sum         SHA-256 of all before
//
// The format of a result:
//
//	url         a string
//	agent       a string, the User-Agent that was sent
//	status      8 bytes
//	redirects   8 bytes
//	max age     8 bytes, nanoseconds; -1: none
//	fetched     a time
//	flags       1 byte, see flagsOf
//	error       a string, "" without an error
//	body        a string
//
// decode rejects entries with any other format.
const format = 3

// A savedNumbers is the part of a saved result with a fixed size.
type savedNumbers struct {
	Status, Redirects, MaxAge, Fetched int64
	Flags                              uint8
}

// flagsOf returns the flags of a result, in the order of their bits. failed says that it has an error.
func flagsOf(a *fetch.Result, failed *bool) [5]*bool {
	return [...]*bool{&a.TooManyRedirects, &a.Connected, failed, &a.RedirectDisallowed, &a.DeadRedirect}
}

// MaxSaved is the maximum size of a saved entry, in bytes: two files, and space for URLs and an
// error.
const MaxSaved = 2*robots.MaxBytes + 256<<10

// maxAhead is how far in the future the time of a saved result may be, because the wall clock
// may have been set back a little. An entry further in the future is not used, because it would
// stay fresh for that much longer.
const maxAhead = time.Minute

var errDamaged = errors.New("malformed saved entry")

// A savedEntry is the form of an entry in a Store.
type savedEntry struct {
	origin string
	failures
	last *fetch.Result

	// stale is nil if there is none.
	stale *fetch.Result
}

// encode returns the saved form of e.
func encode(e *Entry) []byte {
	k := savedEntry{origin: e.origin.String(), failures: e.failures, last: e.last.result}
	if e.stale != nil {
		k.stale = e.stale.result
	}
	size := 512 + len(k.last.Body)
	if k.stale != nil {
		size += len(k.stale.Body)
	}
	return k.append(make([]byte, 0, size))
}

func (s *savedEntry) append(b []byte) []byte {
	b = append(b, format)
	b = appendString(b, s.origin)
	b = appendNumbers(b, []int64{nanoseconds(s.firstFailure), nanoseconds(s.lastFailure), int64(s.retryAfter)})
	b = appendResult(b, s.last)
	if s.stale == nil {
		b = append(b, 0)
	} else {
		b = appendResult(append(b, 1), s.stale)
	}
	sum := sha256.Sum256(b)
	return append(b, sum[:]...)
}

func appendResult(b []byte, a *fetch.Result) []byte {
	b = appendString(b, a.URL)
	b = appendString(b, a.UserAgent)
	errText, failed := "", a.Err != nil
	if failed {
		errText = a.Err.Error()
	}
	n := savedNumbers{int64(a.Status), int64(a.Redirects), int64(a.MaxAge), nanoseconds(a.Fetched), 0}
	for bit, flag := range flagsOf(a, &failed) {
		if *flag {
			n.Flags |= 1 << bit
		}
	}
	b = appendString(appendNumbers(b, n), errText)
	if !kindOf(a).hasText() {
		return appendString(b, "")
	}
	return appendString(b, a.Body)
}

func appendString[T string | []byte](b []byte, s T) []byte {
	return append(binary.BigEndian.AppendUint32(b, uint32(len(s))), s...)
}

// appendNumbers appends numbers, or a struct of numbers.
func appendNumbers(b []byte, numbers any) []byte {
	b, err := binary.Append(b, binary.BigEndian, numbers)
	if err != nil {
		panic("cache: " + err.Error())
	}
	return b
}

// nanoseconds returns the saved form of a time, and timeOf the time.
func nanoseconds(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}

func timeOf(nanoseconds int64) time.Time {
	if nanoseconds == 0 {
		return time.Time{}
	}
	return time.Unix(0, nanoseconds)
}

// decode decodes what encode has returned. The result does not share memory with b.
func decode(b []byte) (*savedEntry, error) {
	body := len(b) - sha256.Size
	if body < 0 || len(b) > MaxSaved || sha256.Sum256(b[:body]) != [sha256.Size]byte(b[body:]) {
		return nil, errDamaged
	}
	r := decoder{rest: b[:body]}
	if r.byte() != format {
		return nil, errDamaged
	}
	k := &savedEntry{origin: r.string()}
	var failed [3]int64
	r.numbers(&failed)
	k.firstFailure, k.lastFailure, k.retryAfter = timeOf(failed[0]), timeOf(failed[1]), time.Duration(failed[2])
	k.last = r.result()
	switch r.byte() {
	case 0:
	case 1:
		k.stale = r.result()
	default:
		r.bad = true
	}
	if r.bad || len(r.rest) > 0 || !k.consistent() {
		return nil, errDamaged
	}
	return k, nil
}

// consistent reports whether k can be the form of an entry.
func (s *savedEntry) consistent() bool {
	if kindOf(s.last).settled() {
		return s.failures == failures{} && s.stale == nil
	}
	return !s.firstFailure.IsZero() && !s.firstFailure.After(s.lastFailure) && s.retryAfter > 0 &&
		(s.stale == nil || kindOf(s.stale).settled())
}

// entry returns the Entry of k for s, with lifetimes as of now. It returns nil if a time in it is too
// far in the future.
func (s *savedEntry) entry(k key, now time.Time, c timing) *Entry {
	newest := later(s.last.Fetched, later(s.firstFailure, s.lastFailure))
	if s.stale != nil {
		newest = later(newest, s.stale.Fetched)
	}
	if newest.After(now.Add(maxAhead)) {
		return nil
	}
	at := earlier(s.last.Fetched, now)
	last := newResponse(s.last, at, c)
	if last.kind.settled() {
		return newSettled(k, last, at, c)
	}
	var stale *response
	if s.stale != nil {
		stale = newResponse(s.stale, earlier(s.stale.Fetched, now), c)
	}
	failed := failures{earlier(s.firstFailure, now), earlier(s.lastFailure, now), min(s.retryAfter, max(maxRetry, c.retry))}
	retry := failed.lastFailure.Add(failed.retryAfter)
	if last.kind == noConnection {
		// The next lookup tries again: the type of the error is lost, and the configuration may have
		// changed.
		retry = now
	}
	return newFailing(k, last, stale, failed, retry, c)
}

// A decoder decodes values from the beginning of rest. After an error, bad is set and all
// values are zero.
type decoder struct {
	rest []byte
	bad  bool
}

func (d *decoder) take(n int) []byte {
	if d.bad || n < 0 || n > len(d.rest) {
		d.bad = true
		return nil
	}
	b := d.rest[:n]
	d.rest = d.rest[n:]
	return b
}

func (d *decoder) byte() byte {
	if b := d.take(1); b != nil {
		return b[0]
	}
	return 0
}

// numbers decodes numbers, or a struct of numbers.
func (d *decoder) numbers(to any) {
	if b := d.take(binary.Size(to)); b != nil {
		_, err := binary.Decode(b, binary.BigEndian, to)
		d.bad = err != nil
	}
}

func (d *decoder) bytes() []byte {
	if b := d.take(4); b != nil {
		return d.take(int(binary.BigEndian.Uint32(b)))
	}
	return nil
}

func (d *decoder) string() string { return string(d.bytes()) }

func (d *decoder) result() *fetch.Result {
	// Most entries have the same User-Agent, which is kept once.
	url, agent := d.string(), unique.Make(d.string()).Value()
	var n savedNumbers
	d.numbers(&n)
	a := &fetch.Result{
		URL: url, UserAgent: agent, Status: int(n.Status), Redirects: int(n.Redirects),
		MaxAge: time.Duration(n.MaxAge), Fetched: timeOf(n.Fetched),
	}
	failed := false
	for bit, flag := range flagsOf(a, &failed) {
		*flag = n.Flags&(1<<bit) != 0
	}
	errText := d.string()
	if failed {
		a.Err = errors.New(errText)
	}
	body := d.bytes()
	if kindOf(a).hasText() {
		sum := sha256.Sum256(body)
		a.Body, a.SHA256 = bytes.Clone(body), hex.EncodeToString(sum[:])
	} else if len(body) > 0 {
		d.bad = true
	}
	if n.Flags >= 1<<len(flagsOf(a, &failed)) || n.Status < 0 || n.Status > 999 || n.Redirects < 0 || n.Redirects > fetch.MaxRedirects ||
		a.MaxAge < -1 || len(body) > robots.MaxBytes || a.Err == nil && errText != "" {
		d.bad = true
	}
	return a
}
