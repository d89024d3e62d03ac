package robots_test

import (
	"bytes"
	"compress/gzip"
	"strings"
	"testing"
	"unicode/utf16"

	"robotsproxy/robots"
)

func gzipped(t *testing.T, text string) string {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if _, err := z.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// utf16of returns a text as UTF-16, little endian, with a byte order mark.
func utf16of(text string) string {
	b := []byte("\xFF\xFE")
	for _, unit := range utf16.Encode([]rune(text)) {
		b = append(b, byte(unit), byte(unit>>8))
	}
	return string(b)
}

func TestDecode(t *testing.T) {
	const text = "User-agent: *\nDisallow: /\u1ee5\U0001F916\n"
	zipped := gzipped(t, text)
	long := strings.Repeat("Disallow: /abcdefghi\n", robots.MaxBytes/10)
	for _, c := range []struct {
		name, text, want, coding string
		fails                    bool
	}{
		{"UTF-8", text, text, "", false},
		{"nothing", "", "", "", false},
		{"gzip", zipped, text, "gzip", false},
		{"gzip in two members", zipped + zipped, text + text, "gzip", false},
		{"gzip with text behind it", zipped + "<!-- -->", text, "gzip", false},
		{"gzip that breaks off", zipped[:len(zipped)-9], "", "gzip", true},
		{"gzip with a wrong checksum", zipped[:len(zipped)-8] + "\x00" + zipped[len(zipped)-7:], "", "gzip", true},
		{"no gzip", "\x1f\x8b" + text, "", "gzip", true},
		{"a bomb", gzipped(t, long), long[:robots.MaxBytes/21*21], "gzip", false},
		{"gzip whose second member breaks off", zipped + zipped[:3], "", "gzip", true},
		{"gzip whose second member is corrupt", zipped + zipped[:2] + "\xFF" + zipped[3:], "", "gzip", true},
		{"UTF-16", utf16of(text), text, "utf-16le", false},
		{"UTF-16 with half a character", utf16of(text) + "\x00\xD8a", text + "\uFFFD", "utf-16le", false},
		{"UTF-16 in gzip", gzipped(t, utf16of(text)), text, "gzip+utf-16le", false},
		{"a mark of UTF-16 before UTF-8", "\xFE\xFF" + text, text, "utf-16-mark", false},
		{"a mark alone", "\xFE\xFF", "", "utf-16-mark", false},
		{"UTF-16 that is cut", utf16of(long)[:robots.MaxBytes], long[:robots.MaxBytes/2/21*21], "utf-16le", false},
		{"UTF-16 that is longer in UTF-8", utf16of("#" + strings.Repeat("\u1ee5", robots.MaxBytes/2-3)), "", "utf-16le", false},
	} {
		got, coding, err := robots.Decode(c.text, robots.Standard())
		if coding != c.coding || (err != nil) != c.fails || got != c.want {
			t.Errorf("%s: got %d bytes %.50q, %q, %v", c.name, len(got), got, coding, err)
		}
		f := robots.ParseFor(robots.Origin{}, c.text, robots.Standard())
		if (f == nil) != c.fails || !c.fails && f.Coding() != c.coding {
			t.Errorf("%s: parsed %v, %q", c.name, f != nil, f.Coding())
		}
		if got, coding, err := robots.Decode(c.text, robots.Dialect{Name: "not careful"}); got != c.text || coding != "" || err != nil {
			t.Errorf("%s: another dialect decodes it: %.50q, %q, %v", c.name, got, coding, err)
		}
	}
}

// TestDecodeCut checks that a rule is not read whose end a limit has cut.
func TestDecodeCut(t *testing.T) {
	const begins, ends = "User-agent: *\nDisallow: /\n#", "\nAllow: /"
	padded := func(size int) string {
		return begins + strings.Repeat("x", size-len(begins)-len(ends)) + ends + "public/only\n"
	}
	for name, text := range map[string]string{
		"plain":          padded(robots.MaxBytes),
		"UTF-16":         utf16of(padded(robots.MaxBytes/2 - 1)),
		"a mark":         "\xFF\xFE" + padded(robots.MaxBytes-2),
		"gzip":           gzipped(t, padded(robots.MaxBytes)),
		"a mark in gzip": gzipped(t, "\xFF\xFE"+padded(robots.MaxBytes-2)),
		"UTF-16 in gzip": gzipped(t, utf16of(padded(robots.MaxBytes/2-1))),
	} {
		text = text[:min(len(text), robots.MaxBytes)]
		if v := robots.Parse([]byte(text), robots.Standard()).For("a").Match("/secret"); v.Allow && v.Line > 0 {
			t.Errorf("%s: %+v", name, v)
		}
	}
}

func TestSizeOfDecoded(t *testing.T) {
	text := "User-agent: *\nDisallow: /a\n" + strings.Repeat("# comment\n", 1000)
	plain := robots.Parse([]byte(text), robots.Standard()).Size()
	if got := robots.Parse([]byte(gzipped(t, text)), robots.Standard()).Size(); got < plain+len(text) {
		t.Errorf("%d bytes, %d without the text", got, plain)
	}
}
