package runner

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"net/netip"
	"slices"

	"robotsproxy/policy/explain/humanize"
)

// Bounds of directPairs.
const (
	maxDirect   = 1000 // counted apart
	directShown = 5    // printed
)

// A directPair is a program of the command and an address to which it connected without the proxy.
type directPair struct {
	// program is the name that the process gives itself.
	program string
	to      netip.AddrPort
	udp     bool
}

// directConns counts connections without the proxy. The zero value is ready for use, and a nil pointer has
// no connections.
type directConns struct {
	counts map[directPair]int64

	// others counts connections of further directPairs than maxDirect.
	others int64
}

// add counts a connection.
func (c *directConns) add(d directPair) {
	if _, ok := c.counts[d]; !ok && len(c.counts) >= maxDirect {
		c.others++
		return
	}
	if c.counts == nil {
		c.counts = map[directPair]int64{}
	}
	c.counts[d]++
}

// pairs returns the programs and addresses with the most connections first.
func (c *directConns) pairs() []directPair {
	if c == nil {
		return nil
	}
	return slices.SortedFunc(maps.Keys(c.counts), func(a, b directPair) int {
		return cmp.Or(cmp.Compare(c.counts[b], c.counts[a]), cmp.Compare(a.program, b.program), a.to.Compare(b.to))
	})
}

// print prints what went past the proxy.
func (c *directConns) print(w io.Writer) {
	pairs := c.pairs()
	shown := pairs[:min(len(pairs), directShown)]
	for _, d := range shown {
		over := ""
		if d.udp {
			over = " over UDP"
		}
		fmt.Fprintf(w, "robotsproxy: went past the proxy: %s to %s%s (at least %s)\n",
			cmp.Or(humanize.Word(d.program), `""`), d.to, over, count(c.counts[d], "connection"))
	}
	if len(pairs) == len(shown) {
		return
	}
	more := c.others
	for _, d := range pairs[len(shown):] {
		more += c.counts[d]
	}
	fmt.Fprintf(w, "robotsproxy: and at least %s\n", count(more, "more connection"))
}
