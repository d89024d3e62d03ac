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

// The form of an entry in a Store, integers big-endian, and times as
// nanoseconds since 1970 in 8 octets, 0 for none:
//
//	format      1 octet
//	origin      a string: 4 octets of length, and itself
//	failed      a time
//	tried       a time
//	delay       8 octets, nanoseconds
//	answer      the last
//	held        1 octet: 1 where another answer follows, the copy; else 0
//	sum         SHA-256 of all before
//
// and of an answer:
//
//	url         a string
//	agent       a string, the User-Agent that was sent
//	status      8 octets
//	redirects   8 octets
//	max age     8 octets, nanoseconds; -1: none said
//	fetched     a time
//	marks       1 octet
//	error       a string, "" without the mark
//	body        a string
//
// There is one form of an entry, and nothing else is read: whatever is wrong,
// the whole is nothing.
const format = 2

// The marks of an answer.
const (
	markLost = 1 << iota
	markConnected
	markFailed
	markBarred
	allMarks = markLost | markConnected | markFailed | markBarred
)

// maxSaved is the most octets of a saved entry: two files, and room for
// addresses and an error.
const maxSaved = 2*robots.MaxBytes + 256<<10

var errDamaged = errors.New("not an entry as it was saved")

// kept is what a Store has of an entry.
type kept struct {
	origin string
	row
	last *fetch.Result
	held *fetch.Result // nil without one
}

func (k *kept) times() []time.Time {
	t := []time.Time{k.failed, k.tried, k.last.Fetched}
	if k.held != nil {
		t = append(t, k.held.Fetched)
	}
	return t
}

// encode gives the saved form of e.
func encode(e *Entry) []byte {
	k := kept{origin: e.origin.String(), row: e.row, last: e.last.answer}
	if e.held != nil {
		k.held = e.held.answer
	}
	size := 512 + len(k.last.Body)
	if k.held != nil {
		size += len(k.held.Body)
	}
	return k.append(make([]byte, 0, size))
}

func (k *kept) append(b []byte) []byte {
	b = append(b, format)
	b = appendString(b, k.origin)
	b = appendTime(b, k.failed)
	b = appendTime(b, k.tried)
	b = appendNumber(b, int64(k.delay))
	b = appendAnswer(b, k.last)
	if k.held == nil {
		b = append(b, 0)
	} else {
		b = appendAnswer(append(b, 1), k.held)
	}
	sum := sha256.Sum256(b)
	return append(b, sum[:]...)
}

func appendAnswer(b []byte, a *fetch.Result) []byte {
	b = appendString(b, a.URL)
	b = appendString(b, a.UserAgent)
	b = appendNumber(b, int64(a.Status))
	b = appendNumber(b, int64(a.Redirects))
	b = appendNumber(b, int64(a.MaxAge))
	b = appendTime(b, a.Fetched)
	var marks byte
	if a.BadRedirect {
		marks |= markLost
	}
	if a.Connected {
		marks |= markConnected
	}
	if a.RedirectDisallowed {
		marks |= markBarred
	}
	why := ""
	if a.Err != nil {
		marks |= markFailed
		why = a.Err.Error()
	}
	b = appendString(append(b, marks), why)
	if !kindOf(a).hasText() {
		return appendString(b, "")
	}
	return appendString(b, a.Body)
}

func appendString[T string | []byte](b []byte, s T) []byte {
	return append(binary.BigEndian.AppendUint32(b, uint32(len(s))), s...)
}

func appendNumber(b []byte, n int64) []byte { return binary.BigEndian.AppendUint64(b, uint64(n)) }

func appendTime(b []byte, t time.Time) []byte {
	if t.IsZero() {
		return appendNumber(b, 0)
	}
	return appendNumber(b, t.UnixNano())
}

// decode reads what encode wrote; nothing of the result is part of b.
func decode(b []byte) (*kept, error) {
	body := len(b) - sha256.Size
	if body < 0 || len(b) > maxSaved || sha256.Sum256(b[:body]) != [sha256.Size]byte(b[body:]) {
		return nil, errDamaged
	}
	r := reader{rest: b[:body]}
	if r.octet() != format {
		return nil, errDamaged
	}
	k := &kept{origin: r.string()}
	k.failed, k.tried, k.delay = r.time(), r.time(), time.Duration(r.number())
	k.last = r.answer()
	switch r.octet() {
	case 0:
	case 1:
		k.held = r.answer()
	default:
		r.bad = true
	}
	if r.bad || len(r.rest) > 0 || !k.possible() {
		return nil, errDamaged
	}
	return k, nil
}

// possible says whether the parts of k go together as those of an entry do.
func (k *kept) possible() bool {
	if kindOf(k.last).settled() {
		return k.row == row{} && k.held == nil
	}
	return !k.failed.IsZero() && !k.failed.After(k.tried) && k.delay > 0 &&
		(k.held == nil || kindOf(k.held).settled())
}

// A reader takes values off the front of rest; once it is bad all are zero.
type reader struct {
	rest []byte
	bad  bool
}

func (r *reader) take(n int) []byte {
	if r.bad || n < 0 || n > len(r.rest) {
		r.bad = true
		return nil
	}
	b := r.rest[:n]
	r.rest = r.rest[n:]
	return b
}

func (r *reader) octet() byte {
	if b := r.take(1); b != nil {
		return b[0]
	}
	return 0
}

func (r *reader) number() int64 {
	if b := r.take(8); b != nil {
		return int64(binary.BigEndian.Uint64(b))
	}
	return 0
}

// within is number, bad where it is not from least to most.
func (r *reader) within(least, most int64) int64 {
	n := r.number()
	if n < least || n > most {
		r.bad = true
		return 0
	}
	return n
}

func (r *reader) block() []byte {
	if b := r.take(4); b != nil {
		return r.take(int(binary.BigEndian.Uint32(b)))
	}
	return nil
}

func (r *reader) string() string { return string(r.block()) }

func (r *reader) time() time.Time {
	n := r.number()
	if n == 0 {
		return time.Time{}
	}
	return time.Unix(0, n)
}

func (r *reader) answer() *fetch.Result {
	a := &fetch.Result{
		URL:       r.string(),
		UserAgent: unique.Make(r.string()).Value(), // few differ
		Status:    int(r.within(0, 999)),
		Redirects: int(r.within(0, fetch.MaxRedirects)),
		MaxAge:    time.Duration(r.number()),
		Fetched:   r.time(),
	}
	marks := r.octet()
	a.BadRedirect, a.Connected, a.RedirectDisallowed = marks&markLost != 0, marks&markConnected != 0, marks&markBarred != 0
	why := r.string()
	if marks&markFailed != 0 {
		a.Err = errors.New(why)
	}
	body := r.block()
	if kindOf(a).hasText() {
		sum := sha256.Sum256(body)
		a.Body, a.SHA256 = bytes.Clone(body), hex.EncodeToString(sum[:])
	} else if len(body) > 0 {
		r.bad = true
	}
	if marks > allMarks || a.MaxAge < -1 || len(body) > robots.MaxBytes || a.Err == nil && why != "" {
		r.bad = true
	}
	return a
}
