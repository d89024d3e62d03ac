package cache

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"robotsproxy/robots"
	"robotsproxy/robots/fetch"
)

// saved returns entries of all kinds.
func saved() map[string]*Entry {
	now := time.Unix(1_700_000_000, 123456789)
	entry := func(a fetch.Result, before *Entry) *Entry {
		a.URL, a.Fetched = "https://example.com/robots.txt", now
		return newEntry(key{origin: site}, &a, before, now, usual)
	}
	text, long := file(time.Hour), file(-1)
	long.Body = bytes.Repeat([]byte("#"), robots.MaxBytes)
	reset := fetch.Result{MaxAge: -1, Connected: true, Redirects: 5, Err: errors.New("read: \x00\xff reset")}
	return map[string]*Entry{
		"file":           entry(text, nil),
		"empty":          entry(fetch.Result{Status: 206, Connected: true}, nil),
		"no file":        entry(status(404), nil),
		"lost":           entry(fetch.Result{Status: 301, TooManyRedirects: true, Connected: true, MaxAge: -1}, nil),
		"failed":         entry(reset, nil),
		"no connection":  entry(unconnected(), nil),
		"nothing":        entry(fetch.Result{}, nil),
		"copy":           entry(reset, entry(text, nil)),
		"longest":        entry(status(503), entry(long, nil)),
		"copy of none":   entry(status(503), entry(status(410), nil)),
		"second failure": entry(status(500), entry(reset, entry(text, nil))),
	}
}

// TestSavedForm: an encoded entry decodes to the same entry.
func TestSavedForm(t *testing.T) {
	for name, e := range saved() {
		t.Run(name, func(t *testing.T) {
			encoded := encode(e)
			k, err := decode(encoded)
			if err != nil || len(encoded) > MaxSaved {
				t.Fatalf("%d bytes: %v", len(encoded), err)
			}
			if !bytes.Equal(k.append(nil), encoded) {
				t.Error("it is saved otherwise the second time")
			}
			back := k.entry(key{origin: site}, e.last.result.Fetched, usual)
			if e.last.kind == noConnection {
				return // see TestRestartAsksTheUnreached
			}
			if back.failures.retryAfter != e.failures.retryAfter || !back.lastFailure.Equal(e.lastFailure) || !back.firstFailure.Equal(e.firstFailure) || back.last.result.UserAgent != e.last.result.UserAgent || (back.stale == nil) != (e.stale == nil) {
				t.Errorf("%+v, was %+v", back, e)
			}
			for by := range lifetimeCount {
				if a, b := back.lifetimes[by], e.lifetimes[by]; !a.refreshAt.Equal(b.refreshAt) || !a.expires.Equal(b.expires) || !a.usableUntil.Equal(b.usableUntil) {
					t.Errorf("life %+v, was %+v", a, b)
				}
			}
			for i, d := range robots.Dialects() {
				a, b := back.Under(d), e.Under(d)
				if a.Meaning != b.Meaning || a.Stale != b.Stale || !a.Retry.Equal(b.Retry) || (a.Err == nil) != (b.Err == nil) || a.Err != nil && a.Err.Error() != b.Err.Error() {
					t.Errorf("column %d: %+v, was %+v", i, a, b)
				}
			}
		})
	}
}

// TestDamage: decode rejects every changed, missing and additional byte.
func TestDamage(t *testing.T) {
	for _, name := range []string{"file", "copy", "lost"} {
		encoded := encode(saved()[name])
		for i := range encoded {
			if _, err := decode(encoded[:i]); err == nil {
				t.Fatalf("%s: its first %d bytes are an entry", name, i)
			}
			changed := bytes.Clone(encoded)
			changed[i] ^= 1 << (i % 8)
			if _, err := decode(changed); err == nil {
				t.Fatalf("%s: byte %d may be changed", name, i)
			}
		}
		if _, err := decode(append(encoded, 0)); err == nil {
			t.Errorf("%s: a byte more is no damage", name)
		}
	}
}

// seal appends the checksum.
func seal(encoded []byte) []byte {
	sum := sha256.Sum256(encoded)
	return append(bytes.Clone(encoded), sum[:]...)
}

// TestInconsistent: decode rejects values that no Entry can have.
func TestInconsistent(t *testing.T) {
	then := time.Unix(1_700_000_000, 0)
	text, bad := file(-1), status(503)
	text.Fetched, bad.Fetched = then, then
	failed := failures{firstFailure: then, lastFailure: then.Add(time.Second), retryAfter: time.Minute}
	for name, k := range map[string]savedEntry{
		"a file that failed":         {last: &text, failures: failed},
		"a file beside a copy":       {last: &text, stale: &text},
		"a failure that never was":   {last: &bad},
		"tried before it failed":     {last: &bad, failures: failures{then, then.Add(-1), time.Minute}},
		"tried again at once":        {last: &bad, failures: failures{then, then, 0}},
		"a copy of a failure":        {last: &bad, failures: failed, stale: &bad},
		"more hops than are made":    {last: &fetch.Result{Status: 200, Redirects: fetch.MaxRedirects + 1}},
		"a status beyond HTTP":       {last: &fetch.Result{Status: 1000}, failures: failed},
		"an age below none":          {last: &fetch.Result{Status: 200, MaxAge: -2}},
		"a file longer than is read": {last: &fetch.Result{Status: 200, Body: []byte(strings.Repeat("#", robots.MaxBytes+1))}},
		"longer than anything":       {last: &text, origin: strings.Repeat("x", MaxSaved)},
	} {
		if got, err := decode(k.append(nil)); err == nil {
			t.Errorf("%s: %+v", name, got)
		}
	}
	whole := savedEntry{last: &text}
	encoded := whole.append(nil)
	encoded = encoded[:len(encoded)-sha256.Size]
	encoded[0] = format + 1
	if _, err := decode(seal(encoded)); err == nil {
		t.Error("another format is read")
	}
	k := savedEntry{last: &bad, failures: failures{then, then, 1000 * time.Hour}}
	if e := k.entry(key{origin: site}, then, usual); e.retryAfter != maxRetry {
		t.Errorf("tried again after %v", e.retryAfter)
	}
}

// FuzzSaved: an entry that decodes encodes to the same bytes, and has a Ruling.
func FuzzSaved(f *testing.F) {
	for _, e := range saved() {
		if encoded := encode(e); len(encoded) < 1<<10 {
			f.Add(encoded[:len(encoded)-sha256.Size])
		}
	}
	f.Fuzz(func(t *testing.T, encoded []byte) {
		sealed := seal(encoded)
		k, err := decode(sealed)
		if err != nil {
			if k != nil {
				t.Error("an entry beside an error")
			}
			return
		}
		if again := k.append(nil); !bytes.Equal(again, sealed) {
			t.Errorf("read %x, written %x", sealed, again)
		}
		now := time.Unix(1_700_000_000, 0)
		e := k.entry(key{origin: site}, now, usual)
		if e == nil {
			return
		}
		if l := e.lifetimes[byMaxAge]; l.usableUntil.After(now.Add(day + time.Hour)) {
			t.Errorf("used until %v, %v from now", l.usableUntil, l.usableUntil.Sub(now))
		}
		for _, d := range robots.Dialects() {
			e.usableAt(d, now, true)
			e.Under(d)
		}
		if back, err := decode(encode(e)); err != nil || !reflect.DeepEqual(back.last.Body, k.last.Body) {
			t.Errorf("%+v, %v", back, err)
		}
	})
}
