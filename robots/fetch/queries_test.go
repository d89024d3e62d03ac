package fetch

import "testing"

func TestDropQueries(t *testing.T) {
	for text, want := range map[string]string{
		"":                          "",
		"is it? yes":                "is it? yes",
		"http://a.test/b?secret":    "http://a.test/b",
		"/b?secret=1&x=/y c":        "/b c",
		"https://a.test?k /x?y z?w": "https://a.test /x z?w",
		"http://a.test/\n?x":        "http://a.test/\n?x",
		`Get "http://a.test/b?secret with spaces": dial tcp: refused`: `Get "http://a.test/b": dial tcp: refused`,
		`fetch http://a.test/robots.txt?k: status 404`:                `fetch http://a.test/robots.txt status 404`,
		"https://a.test/l1?x https://a.test/l2?y":                     "https://a.test/l1 https://a.test/l2",
		`to "/b?x" and "/c?y"`:                                        `to "/b" and "/c"`,
		`http://a.test/x?a="secret`:                                   `http://a.test/x`,
		`the Location "http:?token=secret" is no URL`:                 `the Location "http:" is no URL`,
		`the Location "%zz?token=secret" cannot be parsed`:            `the Location "%zz" cannot be parsed`,
		`the Location "http:/a\" b?token=secret" has no host`:         `the Location "http:/a\" b" has no host`,
	} {
		if got := DropQueries(text); got != want {
			t.Errorf("%q becomes %q, want %q", text, got, want)
		}
	}
}
