package proxy

import (
	"net/netip"
	"testing"

	"robotsproxy/policy"
	"robotsproxy/robots/cache"
	"robotsproxy/robots/testkit"
)

// TestTunnelOwner checks that a request in a tunnel belongs to the client as the request's own generation names it, and that
// the latest generation stays, whatever the order in which requests of several generations ask.
func TestTunnelOwner(t *testing.T) {
	loopback := []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	var all []*generation
	for i, name := range []string{"first", "second", "third"} {
		engine, err := policy.New(policy.Options{Cache: &cache.Cache{}, Clients: []policy.Client{{Name: name, Networks: loopback}}})
		testkit.Must(t, err)
		all = append(all, &generation{Rules: Rules{Engine: engine}, number: uint64(i + 1)})
	}
	c := &client{pass: all[0].Engine.Pass("first", "127.0.0.1", policy.Login{})}
	c.admitted.Store(&admission{"first", 1})
	for _, step := range []struct {
		generation int
		want       string
		latest     string
	}{{1, "first", "first"}, {3, "third", "third"}, {2, "second", "third"}, {1, "first", "third"}, {3, "third", "third"}} {
		got, err := c.owner(all[step.generation-1])
		if latest := c.admitted.Load().name; got != step.want || err != nil || latest != step.latest {
			t.Errorf("generation %d: %q, %v, the latest is %q; want %q, %q", step.generation, got, err, latest, step.want, step.latest)
		}
	}
}
