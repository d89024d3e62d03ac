package proxy

import (
	"net/netip"
	"regexp"
	"runtime"
	"testing"

	"robotsproxy/policy"
	"robotsproxy/robots/cache"
	"robotsproxy/robots/testkit"
)

var blockedInAssign = regexp.MustCompile(`\[sync\.Mutex\.Lock.*\]:\n(?:.+\n)*?.*\(\*clientConn\)\.assign\(`)

// TestAssignTwice checks that a connection counts once against its client's limit, although two of its requests name the
// client at once, as with HTTP/2.
func TestAssignTwice(t *testing.T) {
	const requests = 2
	h := &Handler{}
	all := &h.clientConns
	h.rules.install(Rules{MaxConnsPerClient: 1}, 1)
	address := "127.0.0.1"
	c := &clientConn{listener: &listener{h: h}, share: address}
	all.open(c)
	c.client.Store(&address)
	admitted := make(chan bool)
	all.mu.Lock()
	for range requests {
		go func() { admitted <- c.assign("crawler") }()
	}
	for stacks := make([]byte, 1<<20); len(blockedInAssign.FindAll(stacks[:runtime.Stack(stacks, true)], -1)) < requests; {
		runtime.Gosched()
	}
	all.mu.Unlock()
	for range requests {
		if !<-admitted {
			t.Error("a request of the client's only connection was refused")
		}
	}
	if n := all.of["crawler"]; n != 1 || len(all.of) != 1 {
		t.Errorf("counted as %v", all.of)
	}
}

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
	c := &tunnelConn{pass: all[0].Engine.Pass("first", "127.0.0.1")}
	c.admitted.Store(&admission{"first", 1})
	for _, step := range []struct {
		generation int
		want       string
		latest     string
	}{{1, "first", "first"}, {3, "third", "third"}, {2, "second", "third"}, {1, "first", "third"}, {3, "third", "third"}} {
		got, err := c.owner(all[step.generation-1])
		if latest := c.admitted.Load().client; got != step.want || err != nil || latest != step.latest {
			t.Errorf("generation %d: %q, %v, the latest is %q; want %q, %q", step.generation, got, err, latest, step.want, step.latest)
		}
	}
}
