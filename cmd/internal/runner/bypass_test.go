package runner

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
)

func TestLeakOf(t *testing.T) {
	for _, c := range []struct{ command, want string }{ // the beginning of the hint; "": no hint of its own
		{"httrack https://example.com/", "HTTrack"},
		{"/usr/bin/httrack", "HTTrack"},
		{"links2 -dump x", "Links"},
		{"wget2 x", "wget2 cannot use an HTTP proxy"},
		{"wget x", "wget bypasses"},
		{"python3.11 crawl.py", "In Python"},
		{"python3 crawl.py", "In Python"},
		{"node20 crawl.js", "Before version 24"},
		{"php8.2 crawl.php", "PHP"},
		{"./gradlew run", "Java"},
		{"env A=b timeout 5 httrack x", "HTTrack"},
		{"sh -c httrack x", "HTTrack"},
		{"sh -c cd x && (httrack x)", "HTTrack"},
		{"bash script.sh", ""},
		{"mytool links", ""},
		{"/", ""},
		{"3", ""},
	} {
		l := clientOf(strings.Split(c.command, " "))
		if (l == nil) != (c.want == "") || l != nil && !strings.HasPrefix(l.why, c.want) {
			t.Errorf("%s: %v, want %q", c.command, l, c.want)
		}
	}
	if clientOf(nil) != nil {
		t.Error("a hint for nothing")
	}
}

// One name has one hint, and each is found by it.
func TestLeaksAreFound(t *testing.T) {
	seen := map[string]bool{}
	for i, l := range clients {
		for _, name := range l.names {
			if seen[name] || clientNamed(name) != &clients[i] {
				t.Errorf("%s has two hints, or none", name)
			}
			seen[name] = true
		}
	}
}

// TestPrintBypass: the last line offers --confine first.
func TestPrintBypass(t *testing.T) {
	var python directConns
	python.add(directPair{program: "python3", to: netip.MustParseAddrPort("192.0.2.7:443")})
	for _, c := range []struct {
		name    string
		argv    []string
		past    *directConns
		nothing bool
		want    []string // the beginnings of the lines
	}{
		{"requests, and none past the proxy", []string{"python3"}, &directConns{}, false, nil},
		{"not watched", []string{"python3"}, nil, false, nil},
		{"no requests", []string{"true"}, nil, true, []string{"  (Go, Ruby", "robotsproxy: NOTHING WAS JUDGED. Use robotsproxy run --confine"}},
		{"no requests of a known client", []string{"httrack"}, nil, true, []string{"  HTTrack", "    robotsproxy run --confine", "robotsproxy: NOTHING"}},
		{"not printable", []string{"a\x1b[2J"}, nil, true, []string{"  (Go, Ruby", "robotsproxy: NOTHING"}},
		{"past the proxy, by one of two clients", []string{"sh", "-c", "curl x; ./crawl.py"}, &python, false,
			[]string{"robotsproxy: went past the proxy: python3 to 192.0.2.7:443", "  In Python", "    For urllib3", "robotsproxy: The proxy judged none of these connections. Use robotsproxy run --confine"}},
		{"all past the proxy", []string{"./crawl.py"}, &python, true,
			[]string{"robotsproxy: went past the proxy: python3", "  In Python", "    For urllib3", "robotsproxy: NOTHING WAS JUDGED."}},
	} {
		var b strings.Builder
		printBypass(&b, c.argv, c.past, c.nothing)
		lines := slices.Collect(strings.Lines(b.String()))
		if !slices.EqualFunc(lines, c.want, strings.HasPrefix) {
			t.Errorf("%s: %q, want %q", c.name, lines, c.want)
		}
	}
}
