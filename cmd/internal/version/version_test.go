package version

import (
	"runtime/debug"
	"strings"
	"testing"
)

func TestVersion(t *testing.T) {
	info := &debug.BuildInfo{Main: debug.Module{Version: "v1.2.3"}, Settings: []debug.BuildSetting{
		{Key: "vcs.revision", Value: "abc"}, {Key: "vcs.modified", Value: "true"},
	}}
	for _, c := range []struct {
		info *debug.BuildInfo
		want []string
	}{
		{nil, []string{"robotsproxy devel (go"}},
		{&debug.BuildInfo{Main: debug.Module{Version: "(devel)"}}, []string{"robotsproxy devel (go"}},
		{info, []string{"robotsproxy v1.2.3 (go", ", commit abc with changes)"}},
	} {
		for _, want := range c.want {
			if got := version(c.info); !strings.Contains(got, want) {
				t.Errorf("%q, want %q", got, want)
			}
		}
	}
}
