//go:build !race

package cache

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"robotsproxy/robots"
	"robotsproxy/robots/fetch"
	"robotsproxy/robots/testkit"
)

// small is a Fetcher of files of the most common size.
type small struct{}

func (small) Fetch(_ context.Context, r fetch.Request) *fetch.Result {
	o := r.Origin
	var text strings.Builder
	text.WriteString("User-agent: *\n")
	for i := range 13 {
		fmt.Fprintf(&text, "Disallow: /directory-%d/%.5s\n", i, o.Host)
	}
	body := []byte(text.String())
	sum := sha256.Sum256(body)
	return &fetch.Result{
		URL: o.RobotsURL(), Status: 200, Body: body[:len(body):len(body)], SHA256: hex.EncodeToString(sum[:]),
		MaxAge: -1, Connected: true, Fetched: time.Now(),
	}
}

// TestHeap measures the heap that an origin with a small file takes, and compares it with the
// weight of its entry.
func TestHeap(t *testing.T) {
	testkit.Long(t, "volume")
	const origins = 20_000
	c := newCache(t, Options{Fetcher: small{}, MaxBytes: 1 << 30})
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	for i := range origins {
		e, err := c.Lookup(t.Context(), Query{Origin: host(i)}, robots.Standard())
		if err != nil || e.Under(robots.Standard()).File == nil {
			t.Fatal(err)
		}
	}
	each := int(heap()-before) / origins
	weighed := int(c.entries.WeightedSize()) / origins
	t.Logf("%d bytes an origin, weighed as %d", each, weighed)
	if each > 2100 {
		t.Errorf("an origin takes %d bytes, want at most 2,100", each)
	}
	if each > weighed {
		t.Errorf("an origin takes %d bytes, but is weighed as %d", each, weighed)
	}
	runtime.KeepAlive(c)
}
