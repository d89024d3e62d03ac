package robots_test

import (
	"testing"

	"robotsproxy/robots"
)

func TestCutFTPType(t *testing.T) {
	for _, c := range []struct {
		given, path string
		code        byte
	}{
		{"/a;type=a", "/a", 'a'},
		{"/a;type=I", "/a", 'i'},
		{"/a/;TYPE=d", "/a/", 'd'},
		{"/;type=d", "/", 'd'},
		{"/a;type=i;type=d", "/a;type=i", 'd'},
		{"/a?b;type=i", "/a?b", 'i'},
		{"/a;type=x", "/a;type=x", 0},
		{"/a;type=", "/a;type=", 0},
		{"/a;type=ii", "/a;type=ii", 0},
		{"/a;type=d/b", "/a;type=d/b", 0},
		{"/a%3Btype=d", "/a%3Btype=d", 0},
		{"/", "/", 0},
		{"", "", 0},
	} {
		if path, code := robots.CutFTPType(c.given); path != c.path || code != c.code {
			t.Errorf("%s: %s, %q; want %s, %q", c.given, path, code, c.path, c.code)
		}
	}
}
