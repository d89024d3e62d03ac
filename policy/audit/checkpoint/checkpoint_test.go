package checkpoint

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"robotsproxy/robots/testkit"
)

var sample = Checkpoint{
	Origin: "robotsproxy/proxy-1", Size: 4910, Root: tlog.RecordHash([]byte("x")), Seq: 5010,
	Time: time.Date(2026, 11, 27, 19, 0, 0, 0, time.UTC),
}

// newKey returns a key with a name, and the verifier of its signatures.
func newKey(t testing.TB, name string) (Key, note.Verifiers) {
	t.Helper()
	secret, err := NewKey(name)
	testkit.Must(t, err)
	keys, err := ParseKeys([]byte(secret + "\n"))
	testkit.Must(t, err)
	known, err := ParsePublic([]byte(keys[0].Public + "\n"))
	testkit.Must(t, err)
	return keys[0], known
}

// TestNoteText checks the bytes of a note (C2SP tlog-checkpoint).
func TestNoteText(t *testing.T) {
	key, _ := newKey(t, "robotsproxy/proxy-1")
	signed, err := sample.Sign(key)
	testkit.Must(t, err)
	want := "robotsproxy/proxy-1\n4910\n" + sample.Root.String() + "\nseq 5010\ntime 2026-11-27T19:00:00Z\n\n— robotsproxy/proxy-1 "
	if rest, ok := strings.CutPrefix(string(signed), want); !ok || strings.Count(rest, "\n") != 1 || !strings.HasSuffix(rest, "\n") {
		t.Errorf("%s", signed)
	}
	if first := sample.First(); first != 101 {
		t.Errorf("the first line is %d", first)
	}
}

// TestTrust checks who is said to have signed a note.
func TestTrust(t *testing.T) {
	one, knownOne := newKey(t, "one")
	two, knownTwo := newKey(t, "two")
	_, stranger := newKey(t, "one")
	signed, err := sample.Sign(one, two)
	testkit.Must(t, err)
	// A key that is listed twice is one.
	both, err := ParsePublic([]byte(one.Public + "\n\n" + two.Public + "\n" + one.Public))
	testkit.Must(t, err)
	changed := []byte(strings.Replace(string(signed), "seq 5010", "seq 5011", 1))
	for _, c := range []struct {
		name  string
		text  []byte
		known note.Verifiers
		err   bool
	}{
		{"the first key", signed, knownOne, false},
		{"the second key", signed, knownTwo, false},
		{"both", signed, both, false},
		{"another key of that name", signed, stranger, true},
		{"no keys", signed, nil, true},
		{"changed text", changed, knownOne, true},
	} {
		got, err := Open(c.text, c.known)
		if (err != nil) != c.err {
			t.Errorf("%s: %v", c.name, err)
		}
		if c.name != "changed text" && got != sample {
			t.Errorf("%s: %+v", c.name, got)
		}
	}
	if _, err := Open(changed, stranger); !errors.Is(err, ErrUntrusted) {
		t.Errorf("changed, and signed by an unknown key: %v", err)
	}
	if _, err := Open(changed, knownOne); errors.Is(err, ErrUntrusted) {
		t.Errorf("a signature that does not fit: %v", err)
	}
}

func TestMalformedText(t *testing.T) {
	key, known := newKey(t, "key")
	root := sample.Root.String()
	for _, text := range []string{
		"\n", "origin\n1\n", "origin\n01\n" + root + "\nseq 1\ntime 2026-11-27T19:00:00Z\n", "origin\n-1\n" + root + "\nseq 1\ntime 2026-11-27T19:00:00Z\n",
		"origin\n1\n" + root + "\ntime 2026-11-27T19:00:00Z\n", "origin\n1\n" + root + "\nseq 1\n", "origin\n2\n" + root + "\nseq 1\ntime 2026-11-27T19:00:00Z\n",
		"origin\n1\n" + root[:8] + "\nseq 1\ntime 2026-11-27T19:00:00Z\n", "origin\n1\n" + root + "\nseq 1\n\ntime 2026-11-27T19:00:00Z\n",
		"origin\n1\n" + root + "\nseq +1\ntime 2026-11-27T19:00:00Z\n", "origin\n9223372036854775808\n" + root + "\nseq 9223372036854775808\ntime 2026-11-27T19:00:00Z\n",
		"\n1\n" + root + "\nseq 1\ntime 2026-11-27T19:00:00Z\n",
	} {
		signed, err := note.Sign(&note.Note{Text: text}, key)
		testkit.Must(t, err)
		if got, err := Open(signed, known); err == nil {
			t.Errorf("%q: %+v", text, got)
		}
	}
	for _, origin := range []string{"", "a\n7", "a\n\nb"} {
		c := sample
		c.Origin = origin
		if signed, err := c.Sign(key); err == nil {
			t.Errorf("origin %q: %s", origin, signed)
		}
	}
}

// TestNotes reads notes from files that also have other lines, and ends that are cut off.
func TestNotes(t *testing.T) {
	key, known := newKey(t, "key")
	two, _ := newKey(t, "two")
	first, err := sample.Sign(key)
	testkit.Must(t, err)
	second, err := sample.Sign(key, two)
	testkit.Must(t, err)
	a, b := string(first), string(second)
	anchor := "9002:" + strings.Repeat("ab", 32) + "\n"
	for name, c := range map[string]struct {
		file string
		want []string
	}{
		"one":              {a, []string{a}},
		"one after other":  {a + b, []string{a, b}},
		"empty lines":      {"\n\n" + a + "\n\n" + b + "\n", []string{a, b}},
		"anchors":          {anchor + anchor + "\n" + a + anchor + "\n" + b, []string{a, b}},
		"cut text":         {a + b[:20], []string{a}},
		"cut signature":    {a + b[:len(b)-1], []string{a, b[:strings.LastIndex(b, "— ")]}},
		"only a signature": {a + "\n— x y\n", []string{a}},
		"nothing":          {"", nil},
	} {
		var got []string
		for _, n := range Notes([]byte(c.file)) {
			got = append(got, string(n))
			if _, err := Open(n, known); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

func TestKeys(t *testing.T) {
	secret, err := NewKey("robotsproxy/proxy-1")
	testkit.Must(t, err)
	keys, err := ParseKeys([]byte("\n" + secret + " \n"))
	if err != nil || len(keys) != 1 || keys[0].Name() != "robotsproxy/proxy-1" {
		t.Errorf("%v %v", keys, err)
	}
	for _, name := range []string{"", "a b", "a+b"} {
		if _, err := NewKey(name); err == nil {
			t.Errorf("a key for %q", name)
		}
	}
	for _, file := range []string{"", "\n\n", secret[1:], secret + "\nx", strings.Replace(secret, "proxy-1", "proxy-2", 1)} {
		if _, err := ParseKeys([]byte(file)); err == nil || strings.Contains(err.Error(), secret[40:]) {
			t.Errorf("%q: %v", file, err)
		}
	}
	if _, err := ParsePublic([]byte("\n")); err == nil {
		t.Error("a file without a key was accepted")
	}
	if _, err := ParsePublic([]byte(keys[0].Public + "\n" + secret)); err == nil || !strings.HasPrefix(err.Error(), "line 2: ") {
		t.Errorf("%v", err)
	}
}

func FuzzOpen(f *testing.F) {
	key, known := newKey(f, "key")
	signed, err := sample.Sign(key)
	testkit.Must(f, err)
	f.Add(signed)
	f.Fuzz(func(t *testing.T, file []byte) {
		for _, n := range Notes(file) {
			c, err := Open(n, known)
			if err == nil && c != sample {
				t.Errorf("%q is trusted, and was not signed: %+v", n, c)
			}
			if (err == nil || errors.Is(err, ErrUntrusted)) && (c.Size < 0 || c.First() == 0) {
				t.Errorf("%q: %+v", n, c)
			}
		}
	})
}
