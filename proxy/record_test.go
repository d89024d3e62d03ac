package proxy

import "testing"

func TestWithoutUserinfo(t *testing.T) {
	for _, c := range []struct{ target, want string }{
		{"http://bob:s3cret@site.test/a@b?c@d", "http://site.test/a@b?c@d"},
		{"http://a@b@site.test", "http://site.test"},
		{"http://site.test/a@b", "http://site.test/a@b"},
		{"bob:s3cret@site.test:443", "site.test:443"},
		{"/a@b//c@d", "/a@b//c@d"},
		{"/a?b=http://c", "/a?b=http://c"},
		{"*", "*"},
		{"", ""},
		{"http:/u:p@x/a", "x/a"},
		{"http:///u:p@x/a?q@r", "http://x/a?q@r"},
		{"http:\\\\u:p@x", "x"},
		{"/~user@home", "/~user@home"},
	} {
		if got := withoutUserinfo(c.target); got != c.want {
			t.Errorf("%q: got %q, want %q", c.target, got, c.want)
		}
	}
}
