package e2e

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestNobodyFlushesTheAudit: an earlier record is still there after many requests that
// are refused at once and are as long as they may be, and all of these are accounted for.
func TestNobodyFlushesTheAudit(t *testing.T) {
	t.Parallel()
	const senders, each, perSecond = 8, 400, 100
	o := newOrigin(t, "flush", forbidding)
	p := startProxy(t, outOfTheWay.with(settings{"audit.max_size": "8MiB", "audit.max_files": 1}))
	early, err := refusedID(p.client(t, false), o.url("http", "/no"))
	if err != nil {
		t.Fatal(err)
	}
	long := strings.Repeat("\xff", 8<<10)
	head := []string{"GET http://u:p@h.example/?" + long + " HTTP/1.1", "Host: h.example", "User-Agent: " + long}
	began := time.Now()
	var all sync.WaitGroup
	for range senders {
		all.Go(func() {
			w := p.dial(t)
			for range each {
				w.send(t, head...)
				resp, err := http.ReadResponse(w.r, nil)
				if err != nil || resp.StatusCode != http.StatusBadRequest {
					t.Errorf("%v, %v", resp, err)
					return
				}
				io.Copy(io.Discard, resp.Body)
				if resp.Close {
					w.Close()
					w = p.dial(t)
				}
			}
		})
	}
	all.Wait()
	seconds := int(time.Since(began)/time.Second) + 1
	p.end(t)

	command(t, "audit", "explain", "-c", p.config, early).want(t, 0)
	recorded, counted := 0, 0
	for _, r := range wholeTrail(t, p.audit) {
		switch {
		case r.Event == "counted":
			counted += r.Count
			if r.Client != "127.0.0.1" || r.Clients != 1 {
				t.Errorf("event %+v", r)
			}
		case r.Reason == "malformed":
			recorded++
		}
	}
	if recorded+counted != senders*each || recorded > perSecond*(seconds+1) {
		t.Errorf("%d recorded and %d counted of %d in %d s", recorded, counted, senders*each, seconds)
	}
	for line := range bytes.Lines(unzipped(t, p.audit)) {
		if len(line) > 4<<10 { // the URL of these was none
			t.Errorf("a line has %d bytes: %.200s", len(line), line)
		}
	}
	out := command(t, "audit", "verify", "-c", p.config).want(t, 0).stdout
	if counted > 0 && !strings.Contains(out, fmt.Sprintf("\ncounted %d refusal", counted)) {
		t.Errorf("verify: %s", out)
	}
	t.Logf("%d recorded, %d counted in %d s", recorded, counted, seconds)
}

// TestVerifyTellsRemovedFromTakenAway: what the proxy removes of the beginning is said
// in the audit, and what somebody takes away is missing.
func TestVerifyTellsRemovedFromTakenAway(t *testing.T) {
	t.Parallel()
	o := newOrigin(t, "taken", forbidding)
	p := startProxy(t, outOfTheWay.with(settings{"audit.max_size": "64KiB", "audit.max_files": 3}))
	load := underLoad(t, p, o, 300)
	first := filepath.Join(filepath.Dir(p.audit), "audit-000000000001.jsonl")
	eventually(t, patience, "the first file is removed", func() bool {
		left, _ := filepath.Glob(first + "*")
		_, err := os.Stat(p.audit)
		asides, _ := filepath.Glob(strings.Replace(first, "000000000001", "*", 1) + "*")
		return len(left) == 0 && err == nil && len(asides) > 0
	})
	load.stop()
	p.end(t)
	p = p.again(t) // whose chain goes on
	p.end(t)
	if out := command(t, "audit", "verify", "-c", p.config).want(t, 0).stdout; !strings.Contains(out, "by audit.max_files, as a line says") {
		t.Errorf("verify: %s", out)
	}
	asides, err := filepath.Glob(strings.Replace(first, "000000000001", "*", 1) + "*")
	if err != nil || len(asides) < 2 {
		t.Fatalf("%q, %v", asides, err)
	}
	slices.Sort(asides)
	if err := os.Remove(asides[0]); err != nil {
		t.Fatal(err)
	}
	if got := command(t, "audit", "verify", "-c", p.config).want(t, 1); !strings.Contains(got.stderr, ": missing: seq 1 to ") {
		t.Errorf("verify: %s", got.stderr)
	}
	seq := strings.TrimLeft(strings.TrimPrefix(strings.TrimSuffix(strings.TrimSuffix(filepath.Base(asides[1]), ".gz"), ".jsonl"), "audit-"), "0")
	command(t, "audit", "verify", "-c", p.config, "--from", seq).want(t, 0)
}
