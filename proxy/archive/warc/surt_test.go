package warc

import (
	"strings"
	"testing"
)

// session is a session ID, of which a SURT has none.
var session = strings.Repeat("0123abCD", 4)

// surts are the SURTs of URLs.
var surts = map[string]string{
	"http://www.example.com/":            "com,example)/",
	"https://WWW34.Example.COM":          "com,example)/",
	"http://www2example.com/":            "com,www2example)/",
	"http://example.com:80/":             "com,example)/",
	"https://example.com:80/":            "com,example:80)/",
	"http://example.com:8080/":           "com,example:8080)/",
	"https://example.com:443/a":          "com,example)/a",
	"http://example.com:/a":              "com,example)/a",
	"http://user:pw@example.com/":        "com,example)/",
	"http://example.com./":               "com,example)/",
	"ftp://ftp.example.com/pub/":         "com,example,ftp)/pub",
	"http://192.0.2.1/":                  "1,2,0,192)/",
	"http://[2001:db8::1]:8080/":         "2001:db8::1:8080)/",
	"http://bücher.example/":             "example,xn--bcher-kva)/",
	"http://example.com/goo/":            "com,example)/goo",
	"http://example.com/goo/?":           "com,example)/goo",
	"http://example.com?x":               "com,example)/?x",
	"http://example.com/A/../b/./C":      "com,example)/b/c",
	"http://example.com//two///slashes":  "com,example)/two/slashes",
	"http://example.com/blah/..":         "com,example)/",
	"http://example.com/../x":            "com,example)/../x",
	"http://example.com/page#part":       "com,example)/page",
	"http://example.com/%7Ea%20b%2Fc":    "com,example)/~a%20b/c",
	"http://example.com/%25%32%35":       "com,example)/%25",
	"http://example.com/%2525252525":     "com,example)/%25",
	"http://example.com/%%%25%32%35asd%": "com,example)/%25%25%25asd%25",
	"http://example.com/%C3%BC":          "com,example)/%c3%bc",
	"http://example.com/ü":               "com,example)/%c3%bc",
	"http://example.com/a b":             "com,example)/a%20b",
	"http://example.com/ab%23cd":         "com,example)/ab%23cd",

	"http://example.com/goo/?a=2&b&a=1":   "com,example)/goo?a=1&a=2&b",
	"http://example.com/?b=b&a=b&b=a&A=a": "com,example)/?a=a&a=b&b=a&b=b",
	"http://example.com/?a=1&":            "com,example)/?&a=1",
	"http://example.com/?a=&a":            "com,example)/?a&a=",
	"http://example.com/?a1=x&a=y":        "com,example)/?a=y&a1=x",
	"http://example.com/visit.gif?&r=http%3A//a.test/&b=X%205.0%20%28Y%3B%20z%29": "com,example)/visit.gif?&b=x%205.0%20(y;%20z)&r=http://a.test/",
	"http://example.com/index.php?PHPSESSID=" + session + "&action=profile;u=1":   "com,example)/index.php?action=profile;u=1",
	"http://example.com/?one=two&jsessionid=" + session:                           "com,example)/?&one=two",
	"http://example.com/?sid=" + session:                                          "com,example)/",
	"http://example.com/?jsessionid=" + session + "0":                             "com,example)/?jsessionid=" + strings.ToLower(session) + "0",
	"http://example.com/?aspsessionidABCDEFGH=ABCDEFGHIJKLMNOPQRSTUVWX&x=y":       "com,example)/?x=y",
	"http://example.com/?CFID=1169580&CFTOKEN=48630702&dt=1":                      "com,example)/?dt=1",
	"http://example.com/(S(4hqa0555fwsecu455xqckv45))/mileg.aspx":                 "com,example)/mileg.aspx",
	"http://example.com/(4hqa0555fwsecu455xqckv45)/mileg.aspx?page=1":             "com,example)/mileg.aspx?page=1",
	"http://example.com/photos/36050182@N05/":                                     "com,example)/photos/36050182@n05",

	"dns:archive.example":        "dns:archive.example",
	"urn:uuid:X":                 "urn:uuid:X",
	"metadata://gnu.org/x":       "org,gnu)/x",
	"mailto:a@example.com?x=://": "mailto:a@example.com?x=://",
	"urn:a b\t%20#\u0085":        "urn:a%20b%09%20#%C2%85",
	"":                           "",
}

func TestSURT(t *testing.T) {
	t.Parallel()
	for url, want := range surts {
		if got := SURT(url); got != want {
			t.Errorf("%s: %s, want %s", url, got, want)
		}
	}
}

// FuzzSURT: a key has no spaces and only printable ASCII.
func FuzzSURT(f *testing.F) {
	f.Add("http://www.example.com:80/A/../%2520?b&a=%C3#x")
	f.Add("dns: \x00")
	f.Fuzz(func(t *testing.T, url string) {
		for _, c := range SURT(url) {
			if c <= ' ' || c >= 0x7f {
				t.Fatalf("%q: %q", url, SURT(url))
			}
		}
	})
}
