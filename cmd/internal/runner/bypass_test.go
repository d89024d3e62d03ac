package runner

import (
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
		l := bypassOf(strings.Split(c.command, " "))
		if (l == nil) != (c.want == "") || l != nil && !strings.HasPrefix(l.why, c.want) {
			t.Errorf("%s: %v, want %q", c.command, l, c.want)
		}
	}
	if bypassOf(nil) != nil {
		t.Error("a hint for nothing")
	}
}

// One name has one hint, and each is found by it.
func TestLeaksAreFound(t *testing.T) {
	seen := map[string]bool{}
	for i, l := range bypasses {
		for _, name := range l.names {
			if seen[name] || bypassNamed(name) != &bypasses[i] {
				t.Errorf("%s has two hints, or none", name)
			}
			seen[name] = true
		}
	}
}

func TestPrintLeak(t *testing.T) {
	for _, argv := range [][]string{{"true"}, {"httrack"}, {"a\x1b[2J"}} {
		var b strings.Builder
		printBypass(&b, argv, false)
		if !strings.HasPrefix(b.String(), "  ") || strings.Count(b.String(), "\n") > 2 || strings.Contains(b.String(), "\x1b") {
			t.Errorf("%q: %s", argv, b.String())
		}
	}
}

// TestNoRequestOfAConfinedCommand: nothing that a confined command sends bypasses the proxy.
func TestNoRequestOfAConfinedCommand(t *testing.T) {
	for _, argv := range [][]string{{"true"}, {"httrack"}} {
		var b strings.Builder
		printBypass(&b, argv, true)
		if text := b.String(); strings.Contains(text, "bypass") || !strings.HasPrefix(text, "  ") {
			t.Errorf("%q: %s", argv, text)
		}
	}
}
