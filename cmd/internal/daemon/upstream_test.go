package daemon

import (
	"slices"
	"strings"
	"testing"

	"robotsproxy/cmd/internal/config"
	"robotsproxy/proxy/egress"
)

func TestEnvironment(t *testing.T) {
	for _, c := range []struct {
		name string
		env  map[string]string
		want egress.Environment
	}{
		{"none", nil, egress.Environment{}},
		{"lower case first", map[string]string{"http_proxy": "a", "HTTP_PROXY": "b", "HTTPS_PROXY": "c", "NO_PROXY": "d"}, egress.Environment{HTTP: "a", HTTPS: "c", NoProxy: "d"}},
		{"all_proxy", map[string]string{"ALL_PROXY": "a", "https_proxy": "b"}, egress.Environment{HTTP: "a", HTTPS: "b", FTP: "a"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := environment(func(name string) string { return c.env[name] }); got != c.want {
				t.Errorf("%+v, want %+v", got, c.want)
			}
		})
	}
}

// TestHostParents: the name of an upstream proxy has no login, and is that of one URL alone.
func TestHostParents(t *testing.T) {
	texts := []string{
		"", "direct", "socks5://10.0.0.7:1080", "http://proxy.test:3128", "http://key-4711:s3cr@proxy.test:3128", "http://key-4711:s3cr2@proxy.test:3128",
		"http://proxy.test:3128", "http://key-4711:s3cr2@proxy.test:3128",
	}
	want := []string{
		"", "direct", "socks5://10.0.0.7:1080", "http://proxy.test:3128", "http://proxy.test:3128 (2)", "http://proxy.test:3128 (3)",
		"http://proxy.test:3128", "http://proxy.test:3128 (3)",
	}
	var entries []config.Host
	for _, text := range texts {
		entries = append(entries, config.Host{Parent: text})
	}
	names, parents := hostParents(entries)
	if !slices.Equal(names, want) {
		t.Errorf("%q, want %q", names, want)
	}
	for i, text := range texts[2:] {
		if got := parents[names[i+2]]; got == nil || got.String() != text {
			t.Errorf("%s is %s, want %s", names[i+2], got, text)
		}
	}
	if direct, named := parents["direct"]; !named || direct != nil {
		t.Errorf("direct is %s, %t", direct, named)
	}
	_, parents = hostParents([]config.Host{{Parent: "http://u:s3cr%@h"}})
	if c, err := egress.New(egress.Options{Parents: parents}); err == nil || strings.Contains(err.Error(), "s3cr") {
		t.Errorf("no URL: %v, %v", c, err)
	}
}

// TestFileParents: what changes the way of a robots.txt differs, and nothing else.
func TestFileParents(t *testing.T) {
	base := []config.Host{{Match: "a", Parent: "direct"}, {Match: "b", Paths: []string{"/x"}, Parent: "http://p"}, {Match: "c"}}
	for _, c := range []struct {
		name  string
		other []config.Host
		same  bool
	}{
		{"an entry without one behind", append(slices.Clone(base), config.Host{Match: "d"}), true},
		{"another for paths", []config.Host{base[0], {Match: "b", Paths: []string{"/x"}, Parent: "http://q"}, base[2]}, true},
		{"another reason", []config.Host{{Match: "a", Parent: "direct", Reason: "x"}, base[1]}, true},
		{"another", []config.Host{{Match: "a", Parent: "http://p"}}, false},
		{"one more", append(slices.Clone(base), config.Host{Match: "d", Parent: "direct"}), false},
		{"an entry before", append([]config.Host{{Match: "d"}}, base...), false},
		{"none", base[1:], false},
	} {
		if got := slices.Equal(fileParents(base), fileParents(c.other)); got != c.same {
			t.Errorf("%s: the same: %t, want %t", c.name, got, c.same)
		}
	}
}
