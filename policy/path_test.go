package policy

import "testing"

func TestWithoutDots(t *testing.T) {
	for in, want := range map[string]string{
		"/":                   "/",
		"/a/b?c=../d":         "/a/b?c=../d",
		"/a/../b":             "/b",
		"/a/./b":              "/a/b",
		"/a/..":               "/",
		"/a/b/..":             "/a/",
		"/a/.":                "/a/",
		"/../../a":            "/a",
		"/a/%2e%2E/b":         "/b",
		"/a/.%2e/b?x":         "/b?x",
		"/.well-known/x":      "/.well-known/x",
		"/a/...":              "/a/...",
		"/a/%2e%2e%2e/b":      "/a/%2e%2e%2e/b",
		"/%20/b":              "/%20/b",
		"/a//../b":            "/a/b",
		"/..":                 "/",
		"*":                   "*",
		"/mid/content=5/../6": "/mid/6",
	} {
		if got, other := withoutDots(in); got != want || other != (got != in) {
			t.Errorf("%s: %s, other %t; want %s", in, got, other, want)
		}
	}
}
