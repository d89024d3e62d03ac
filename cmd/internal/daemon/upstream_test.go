package daemon

import (
	"testing"

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
