package ftp

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"unicode"
)

func TestCheckPath(t *testing.T) {
	for path, ok := range map[string]bool{
		"/": true, "/;type=d": true, "/a": true, "/a/": true, "/a/b;type=i": true, "/a%3Bb": true, "/a~/~b/.b/..c/...": true, "/a?b": true, "/-a": true,
		"/" + strings.Repeat("a", maxPath-1): true, "/" + strings.Repeat("a", maxPath): false,
		"": false, "a": false, "*": false,
		"//": false, "//a": false, "/a//b": false, "/a//": false,
		"/%2Fa": false, "/a%2fb": false, "/a/..%2F..%2Fb": false,
		"/~a/b": false, "/%7E/b": false, "/a%5C..%5Cb": false, "/a\\b": false,
		"/a/../b": false, "/./a": false, "/..": false, "/%2e%2E/a": false, "/a/.;type=d": false,
		"/a%0D%0ADELE%20b": false, "/a%0D": false, "/a%0a": false, "/a%00b": false, "/a%7f": false, "/a%1b": false, "/a%FFb": false,
		"/%20a": false, "/a%20": false, "/a%20/b": false, "/a%zz": false, "/a%": false,
	} {
		if err := CheckPath(path); (err == nil) != ok || err != nil && !errors.Is(err, ErrPath) {
			t.Errorf("%q: %v", path, err)
		}
	}
}

// Each request is one command with one argument, and each path has one URL.
func FuzzPath(f *testing.F) {
	for _, path := range []string{"/", "/a/b%20c;type=i", "/a%3Bb/?;type=d", "/%C3%BC/~x/", "/a%0D%0AQUIT", "//a", "/%2e%2e/a", "/a?b/c"} {
		f.Add(path)
	}
	f.Fuzz(func(t *testing.T, path string) {
		p, err := parsePath(path)
		if err != nil {
			return
		}
		name := p.String()
		if strings.HasPrefix(name, "/") || len(name) > maxPath || strings.ContainsFunc(name, func(r rune) bool { return r < 0x80 && unicode.IsControl(r) }) {
			t.Fatalf("%q asks for %q", path, name)
		}
		again, err := parsePath(p.url())
		if err != nil || !again.dir || !slices.Equal(again.names, p.names) {
			t.Fatalf("%q asks for %q; its address %q for %q, %v", path, p.names, p.url(), again.names, err)
		}
	})
}
