package robots_test

import (
	"net/http"
	"strings"
	"testing"

	"robotsproxy/robots"
)

func TestParseTarget(t *testing.T) {
	for _, c := range []struct{ name, method, url, origin, pathQuery string }{
		{"RFC 9110 7.7: reserved characters", "GET", "http://a.test/AC%2FDC|live", "http://a.test", "/AC%2FDC|live"},
		{"RFC 9110 7.7: dot segments", "GET", "http://a.test/a%2f..%2fb/../c", "http://a.test", "/a%2f..%2fb/../c"},
		{"RFC 3986 2.1: broken escapes", "GET", "http://a.test/100%/%4/%zz?%", "http://a.test", "/100%/%4/%zz?%"},
		{"RFC 3986 2: bytes that no URI has", "GET", "http://a.test/\"<>\\^`{|}\xff\u00fc", "http://a.test", "/\"<>\\^`{|}\xff\u00fc"},
		{"a path that begins with two slashes", "GET", "http://a.test//b/c", "http://a.test", "//b/c"},
		{"RFC 9110 4.2.3: no path", "GET", "http://a.test", "http://a.test", "/"},
		{"RFC 9110 4.2.3: a query alone", "GET", "http://a.test?b=c://d", "http://a.test", "/?b=c://d"},
		{"an empty query", "GET", "http://a.test/?", "http://a.test", "/?"},
		{"RFC 3986 6.2.2.1: case", "GET", "HTTPS://A.Test:443/B", "https://a.test", "/B"},
		{"RFC 9112 3.2.4: OPTIONS without a path", "OPTIONS", "http://a.test", "http://a.test", "*"},
		{"RFC 9112 3.2.4: OPTIONS with a path", "OPTIONS", "http://a.test/", "http://a.test", "/"},
		{"RFC 9112 3.2.4: OPTIONS with a query", "OPTIONS", "http://a.test?b", "http://a.test", "/?b"},
	} {
		got, err := robots.ParseTarget(c.method, c.url)
		if err != nil || got.Origin.String() != c.origin || got.PathQuery != c.pathQuery {
			t.Errorf("%s: got %s %q, %v", c.name, got.Origin, got.PathQuery, err)
			continue
		}
		u := got.URL()
		if u.Scheme+"://"+u.Host != c.origin || robots.PathQueryOf(u) != c.pathQuery {
			t.Errorf("%s: its URL is %#v", c.name, u)
		}
		if again, err := robots.ParseTarget(c.method, got.String()); err != nil || again != got {
			t.Errorf("%s: %q is read as %+v, %v", c.name, got, again, err)
		}
	}
}

func TestParseTargetErrors(t *testing.T) {
	for url, want := range map[string]string{
		"":                    "no scheme",
		"a.test/":             "no scheme",
		"/a?b=http://c/":      "no scheme",
		"gopher://a.test/":    "the scheme must be",
		"http:///a":           "the host is empty",
		"http://u:p@a.test/":  "credentials in the URL",
		"http://a.test/a b":   "the path contains a blank",
		"http://a.test/?a b":  "the query contains a blank",
		"http://a.test/\x7f":  "the path contains the control byte 0x7F",
		"http://a.test/?\r\n": "the query contains the control byte 0x0D",
		"http://a.test/#a":    "the path contains a fragment",
		"http://a.test#a":     "the path contains a fragment",
	} {
		if got, err := robots.ParseTarget("GET", url); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %+v, %v; want %q", url, got, err, want)
		}
	}
	if got, err := robots.NewTarget("GET", robots.Origin{}, "*"); err == nil {
		t.Errorf("GET *: got %+v", got)
	}
}

// FuzzTarget: a target keeps its bytes, or says what is wrong with them. net/http writes them as they are.
func FuzzTarget(f *testing.F) {
	for _, seed := range []string{"/AC%2FDC|live", "/a%2f..%2fb|z", "/x%3By%2Bz\"", "/100%/x", "//a|b", "/\xff?\xff", "*", "", "?a", "/a b", "/a#b"} {
		f.Add("GET", seed)
		f.Add("OPTIONS", seed)
	}
	f.Fuzz(func(t *testing.T, method, sent string) {
		o := robots.Origin{Scheme: "http", Host: "a.test", Port: 80}
		got, err := robots.NewTarget(method, o, sent)
		bad := strings.ContainsFunc(sent, func(r rune) bool { return r <= ' ' || r == 0x7f || r == '#' })
		switch {
		case err == nil && (bad || sent != "" && got.PathQuery != sent && got.PathQuery != "/"+sent):
			t.Fatalf("%q is read as %q", sent, got.PathQuery)
		case err != nil && !bad && (sent == "" || sent[0] == '/' || sent[0] == '?'):
			t.Fatalf("%q: %v", sent, err)
		case err != nil:
			return
		}
		if strings.HasPrefix(got.PathQuery, "//") { // in absolute form
			return
		}
		var wire strings.Builder
		r := &http.Request{Method: "GET", URL: got.URL(), Host: "a.test"}
		if err := r.Write(&wire); err != nil {
			t.Fatal(err)
		}
		if line, _, _ := strings.Cut(wire.String(), "\r\n"); line != "GET "+got.PathQuery+" HTTP/1.1" {
			t.Errorf("%q is written as %q", sent, line)
		}
	})
}
