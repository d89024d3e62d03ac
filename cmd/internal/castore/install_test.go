package castore

import (
	"strings"
	"testing"

	"robotsproxy/cmd/internal/config"
)

// TestSudoCommand: root changes the same stores as the user wanted, but no database of root's own browser.
func TestSudoCommand(t *testing.T) {
	for _, c := range []struct {
		name string
		f    installFlags
		want string
	}{
		{"the system's store alone", installFlags{}, ""},
		{"Java too", installFlags{java: true}, " --java"},
		{"Java alone", installFlags{java: true, noSystem: true}, " --java --no-system"},
		{"browsers too", installFlags{browsers: true, previous: true}, " --previous"},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.f.State = "/state"
			if got := newStores(&c.f, config.Config{StateDir: c.f.State}, "uninstall").sudoCommand; !strings.HasSuffix(got, " ca uninstall --state /state"+c.want) {
				t.Errorf("%s, want an end of %q", got, c.want)
			}
		})
	}
}
