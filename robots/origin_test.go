package robots_test

import (
	"strings"
	"testing"

	"robotsproxy/robots"
)

func TestParseOrigin(t *testing.T) {
	label := strings.Repeat("a", 63)
	longest := strings.Join([]string{label, label, label, label[:61]}, ".")
	for _, c := range []struct {
		name, scheme, hostport string
		want                   robots.Origin
		text, addr             string
	}{
		{"RFC 3986 6.2.3: no port", "http", "example.com", robots.Origin{Scheme: "http", Host: "example.com", Port: 80}, "http://example.com", "example.com:80"},
		{"RFC 3986 6.2.3: no port, https", "https", "example.com", robots.Origin{Scheme: "https", Host: "example.com", Port: 443}, "https://example.com", "example.com:443"},
		{"RFC 3986 6.2.3: an empty port", "https", "example.com:", robots.Origin{Scheme: "https", Host: "example.com", Port: 443}, "https://example.com", "example.com:443"},
		{"RFC 3986 6.2.3: the default port", "https", "example.com:443", robots.Origin{Scheme: "https", Host: "example.com", Port: 443}, "https://example.com", "example.com:443"},
		{"RFC 1738 3.2: ftp", "ftp", "example.com", robots.Origin{Scheme: "ftp", Host: "example.com", Port: 21}, "ftp://example.com", "example.com:21"},
		{"RFC 1738 3.2: the default port of ftp", "FTP", "example.com:21", robots.Origin{Scheme: "ftp", Host: "example.com", Port: 21}, "ftp://example.com", "example.com:21"},
		{"RFC 1738 3.2: another port of ftp", "ftp", "[::1]:2121", robots.Origin{Scheme: "ftp", Host: "::1", Port: 2121}, "ftp://[::1]:2121", "[::1]:2121"},
		{"RFC 9309 2.3: another scheme's port", "http", "example.com:21", robots.Origin{Scheme: "http", Host: "example.com", Port: 21}, "http://example.com:21", "example.com:21"},
		{"RFC 9309 2.3: another port is another origin", "http", "example.com:443", robots.Origin{Scheme: "http", Host: "example.com", Port: 443}, "http://example.com:443", "example.com:443"},
		{"RFC 3986 6.2.2.1: case", "HTTP", "Example.COM", robots.Origin{Scheme: "http", Host: "example.com", Port: 80}, "http://example.com", "example.com:80"},
		{"RFC 1034 3.1: a trailing dot", "http", "example.com.:8080", robots.Origin{Scheme: "http", Host: "example.com", Port: 8080}, "http://example.com:8080", "example.com:8080"},
		{"RFC 5890: IDN", "https", "B\u00dcCHER.example", robots.Origin{Scheme: "https", Host: "xn--bcher-kva.example", Port: 443}, "https://xn--bcher-kva.example", "xn--bcher-kva.example:443"},
		{"RFC 5890: IDN as Punycode", "https", "XN--bcher-kva.example", robots.Origin{Scheme: "https", Host: "xn--bcher-kva.example", Port: 443}, "https://xn--bcher-kva.example", "xn--bcher-kva.example:443"},
		{"UTS 46: \u00df is itself", "https", "stra\u00dfe.example", robots.Origin{Scheme: "https", Host: "xn--strae-oqa.example", Port: 443}, "https://xn--strae-oqa.example", "xn--strae-oqa.example:443"},
		{"UTS 46: the dots there are", "https", "b\u00fccher\u3002example", robots.Origin{Scheme: "https", Host: "xn--bcher-kva.example", Port: 443}, "https://xn--bcher-kva.example", "xn--bcher-kva.example:443"},
		{"UTS 46: digits of any width", "http", "\uff11\uff12\uff17.0.0.1", robots.Origin{Scheme: "http", Host: "127.0.0.1", Port: 80}, "http://127.0.0.1", "127.0.0.1:80"},
		{"RFC 3986 3.2.2: escapes", "http", "%62%C3%BCcher%2eexample", robots.Origin{Scheme: "http", Host: "xn--bcher-kva.example", Port: 80}, "http://xn--bcher-kva.example", "xn--bcher-kva.example:80"},
		{"underscores", "http", "a_b.example", robots.Origin{Scheme: "http", Host: "a_b.example", Port: 80}, "http://a_b.example", "a_b.example:80"},
		{"underscores with IDN", "http", "_\u00fc.example", robots.Origin{Scheme: "http", Host: "xn--_-eha.example", Port: 80}, "http://xn--_-eha.example", "xn--_-eha.example:80"},
		{"hyphens", "http", "r3---sn.example", robots.Origin{Scheme: "http", Host: "r3---sn.example", Port: 80}, "http://r3---sn.example", "r3---sn.example:80"},
		{"one label", "http", "localhost:3000", robots.Origin{Scheme: "http", Host: "localhost", Port: 3000}, "http://localhost:3000", "localhost:3000"},
		{"IPv4", "http", "192.0.2.1:80", robots.Origin{Scheme: "http", Host: "192.0.2.1", Port: 80}, "http://192.0.2.1", "192.0.2.1:80"},
		{"RFC 5952: IPv6", "https", "[2001:DB8:0::1]", robots.Origin{Scheme: "https", Host: "2001:db8::1", Port: 443}, "https://[2001:db8::1]", "[2001:db8::1]:443"},
		{"RFC 4291 2.5.5.2: IPv4 in IPv6", "http", "[::ffff:192.0.2.1]:8080", robots.Origin{Scheme: "http", Host: "192.0.2.1", Port: 8080}, "http://192.0.2.1:8080", "192.0.2.1:8080"},
		{"RFC 4291 2.5.5.2: in hexadecimal", "https", "[0:0::FFFF:c000:201]", robots.Origin{Scheme: "https", Host: "192.0.2.1", Port: 443}, "https://192.0.2.1", "192.0.2.1:443"},
		{"RFC 5952: IPv6 with a port", "http", "[::1]:8080", robots.Origin{Scheme: "http", Host: "::1", Port: 8080}, "http://[::1]:8080", "[::1]:8080"},
		{"RFC 1035 2.3.4: as long as can be", "http", longest, robots.Origin{Scheme: "http", Host: longest, Port: 80}, "http://" + longest, longest + ":80"},
	} {
		got, err := robots.ParseOrigin(c.scheme, c.hostport)
		if err != nil || got != c.want {
			t.Errorf("%s: got %+v, %v, want %+v", c.name, got, err, c.want)
			continue
		}
		if got.String() != c.text || got.Addr() != c.addr || got.RobotsURL() != c.text+"/robots.txt" {
			t.Errorf("%s: got %q, %q, %q", c.name, got.String(), got.Addr(), got.RobotsURL())
		}
	}
}

func TestParseOriginErrors(t *testing.T) {
	label := strings.Repeat("a", 63)
	for _, c := range []struct{ name, scheme, hostport string }{
		{"another scheme", "ftps", "example.com"},
		{"no scheme", "", "example.com"},
		{"no scheme", "", "example.com"},
		{"no host", "http", ""},
		{"no host, a port", "http", ":80"},
		{"no host but a dot", "http", "."},
		{"RFC 3986 3.2.1: user information", "http", "user:pw@example.com"},
		{"RFC 3986 3.2.1: a user", "http", "user@example.com"},
		{"port 0", "http", "example.com:0"},
		{"a port over 65535", "http", "example.com:65536"},
		{"a port with a sign", "http", "example.com:+80"},
		{"a port in letters", "http", "example.com:http"},
		{"two ports", "http", "example.com:80:80"},
		{"a path", "http", "example.com/a"},
		{"a query", "http", "example.com?a"},
		{"a fragment", "http", "example.com#a"},
		{"a space", "http", "exa mple.com"},
		{"a line end", "http", "example.com\r\nx: y"},
		{"NUL", "http", "example.com\x00"},
		{"DEL", "http", "example.com\x7f"},
		{"a broken escape", "http", "ex%6mple.com"},
		{"an escaped slash", "http", "example.com%2Fa"},
		{"an escaped blank", "http", "exa%20mple.com"},
		{"an escaped byte that is not UTF-8", "http", "ex%FFmple.com"},
		{"invalid UTF-8", "http", "ex\xffmple.com"},
		{"what stands for invalid UTF-8", "http", "ex\ufffdmple.com"},
		{"a character that no name has", "http", "\u2602\uff0fexample.com"},
		{"nothing but what is left out", "http", "\u00ad"},
		{"RFC 5893: mixed directions", "http", "a\u05d0.example"},
		{"RFC 1034 3.1: an empty label", "http", "example..com"},
		{"RFC 1034 3.1: an empty first label", "http", ".example.com"},
		{"RFC 1034 3.1: two trailing dots", "http", "example.com.."},
		{"RFC 1035 2.3.4: a label of 64 bytes", "http", "a" + label + ".com"},
		{"RFC 1035 2.3.4: a host of 254 bytes", "http", strings.Join([]string{label, label, label, label[:62]}, ".")},
		{"RFC 1035 2.3.4: more than is worth a look", "http", strings.Repeat("\u00fc.", 1<<20)},
		{"IPv6 without brackets", "http", "::1"},
		{"IPv6 half in brackets", "http", "[::1"},
		{"IPv6, half in brackets too", "http", "::1]"},
		{"RFC 6874: IPv6 with a zone", "http", "[fe80::1%25eth0]"},
		{"IPv6 and more", "http", "[::1]x"},
		{"a name in brackets", "http", "[example.com]"},
		{"IPv4 in brackets", "http", "[127.0.0.1]"},
		{"nothing in brackets", "http", "[]"},
		{"IPv4 in short", "http", "127.1"},
		{"IPv4 as a number", "http", "2130706433"},
		{"IPv4 in hexadecimal", "http", "0x7F000001"},
		{"IPv4 in octal", "http", "0177.0.0.1"},
		{"IPv4 out of range", "http", "256.0.0.1"},
	} {
		if got, err := robots.ParseOrigin(c.scheme, c.hostport); err == nil || got != (robots.Origin{}) {
			t.Errorf("%s: got %+v, %v", c.name, got, err)
		} else if len(err.Error()) > 500 || strings.ContainsAny(err.Error(), "\r\n\x00") {
			t.Errorf("%s: error %q", c.name, err)
		}
	}
}

func TestParseHost(t *testing.T) {
	for in, want := range map[string]string{
		"Example.COM.": "example.com", "B\u00fccher.example": "xn--bcher-kva.example", "192.0.2.1": "192.0.2.1",
		"2001:DB8::1": "2001:db8::1", "[2001:DB8::1]": "2001:db8::1", "a_b": "a_b",
		"": "", "example.com:80": "", "[::1]:80": "", "[example.com]": "", "[]": "", "::1]": "", "::1%eth0": "",
		"a..b": "", "127.1": "", "u@example.com": "", "a/b": "", "*": "", "a b": "",
	} {
		if got, err := robots.ParseHost(in); got != want || (err == nil) != (want != "") {
			t.Errorf("%q: %q, %v; want %q", in, got, err, want)
		}
	}
}

func TestParseOriginAllocatesNothing(t *testing.T) {
	for _, hostport := range []string{"example.com", "www.example.com:8443", "192.0.2.1"} {
		if n := testing.AllocsPerRun(10, func() { _, _ = robots.ParseOrigin("https", hostport) }); n != 0 {
			t.Errorf("%s: %v allocations", hostport, n)
		}
	}
}
