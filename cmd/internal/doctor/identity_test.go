package doctor

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"robotsproxy/cmd/internal/cli"
	"robotsproxy/cmd/internal/config"
	"robotsproxy/proxy/signature"
	"robotsproxy/robots/testkit"
)

func TestDoctorIdentity(t *testing.T) {
	key := filepath.Join(t.TempDir(), "bot.pem")
	testkit.Must(t, os.WriteFile(key, signature.NewKey().PEM(), 0o600))
	signing := func(change func(*config.Config)) *doctor {
		cfg := config.Default()
		cfg.Identity.Sign.Key, cfg.Identity.Sign.Agent = key, "https://127.0.0.1:1/keys" // a forbidden address: nothing is sent
		change(&cfg)
		return &doctor{cfg: cfg, flags: &doctorFlags{}}
	}
	const unpublished = "the key directory of https://127.0.0.1:1/keys cannot be used"
	for _, c := range []struct {
		name string
		d    *doctor
		want []string // status and a part of each result
	}{
		{"off", &doctor{cfg: config.Default(), flags: &doctorFlags{}}, []string{"skip requests are not signed"}},
		{"elsewhere", &doctor{remote: true}, []string{"skip cannot be checked here"}},
		{"no key", signing(func(c *config.Config) { c.Identity.Sign.Key = "/nowhere" }), []string{"FAIL identity.sign.key: open /nowhere"}},
		{"no directory", signing(func(*config.Config) {}), []string{"FAIL " + unpublished}},
		{"no interception", signing(func(c *config.Config) { c.TLS.Intercept = false }), []string{"FAIL " + unpublished, "warn the proxy intercepts no HTTPS"}},
		{"some tunnels", signing(func(c *config.Config) { c.TLS.Tunnel = []string{"example.com"} }), []string{"FAIL " + unpublished, "ok requests to the hosts in tls.tunnel are not signed"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := here(checkIdentity)(t.Context(), c.d)
			if len(got) != len(c.want) {
				t.Fatalf("%+v", got)
			}
			for i, found := range got {
				if text := found.Status.String() + " " + found.Detail; !strings.HasPrefix(text, c.want[i]) || (found.Hint == "") != (found.Status >= cli.StatusSkip) {
					t.Errorf("%q (%q), want %q", text, found.Hint, c.want[i])
				}
			}
		})
	}
}
