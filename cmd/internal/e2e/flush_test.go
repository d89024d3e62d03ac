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
	const senders, perSecond, burst, longest = 8, 100, 1000, 8 << 10
	o := newOrigin(t, "flush", forbidding)
	p := startProxy(t, outOfTheWay.with(settings{"audit.max_size": "64MiB", "audit.max_files": 1}))
	early, err := refusedID(p.client(t, false), o.url("http", "/no"))
	if err != nil {
		t.Fatal(err)
	}
	long := strings.Repeat("\xff", longest)
	url := func(to string) string { return to + long[len(to):] }
	began := time.Now()
	sent := map[string]int{}
	for _, kind := range []struct {
		reason, url, agent string
		status             int
		each               int // of each sender
	}{
		{"malformed", "http://u:p@h.example/?" + long, long, http.StatusBadRequest, 400},
		{"port", url("http://h.example:22/?"), long, http.StatusForbidden, 400},
		{"rule", url(o.url("http", "/no?")), "FooBot/1.0", http.StatusForbidden, (burst + 2*perSecond) / senders},
	} {
		from := time.Now()
		var all sync.WaitGroup
		for range senders {
			all.Go(func() {
				p.flood(t, kind.status, kind.each, "GET "+kind.url+" HTTP/1.1", "Host: h.example", "User-Agent: "+kind.agent)
			})
		}
		all.Wait()
		if took := time.Since(from); kind.reason == "rule" && took < 2*time.Second {
			t.Errorf("%d refusals by a rule were answered in %v", senders*kind.each, took)
		}
		sent[kind.reason] = senders * kind.each
	}
	seconds := int(time.Since(began)/time.Second) + 1
	p.end(t)

	command(t, "audit", "explain", "-c", p.config, early).want(t, 0)
	recorded, counted, last := map[string]int{}, 0, ""
	for _, r := range wholeTrail(t, p.audit) {
		switch {
		case r.Event == "counted":
			counted += r.Count
			if r.Client != "127.0.0.1" || r.Clients != 1 {
				t.Errorf("event %+v", r)
			}
		case r.Kind == "" && r.ID != early:
			recorded[r.Reason]++
			last = r.ID
		}
	}
	if recorded["rule"] != sent["rule"] {
		t.Errorf("%d recorded of %d refusals by a rule", recorded["rule"], sent["rule"])
	}
	if cheap := recorded["malformed"] + recorded["port"]; cheap+counted != sent["malformed"]+sent["port"] || cheap > perSecond*(seconds+1) {
		t.Errorf("%v recorded and %d counted of %v in %d s", recorded, counted, sent, seconds)
	}
	command(t, "audit", "explain", "-c", p.config, last).want(t, 0)
	for line := range bytes.Lines(unzipped(t, p.audit)) {
		if len(line) > 3*longest+4<<10 {
			t.Errorf("a line has %d bytes: %.200s", len(line), line)
		}
	}
	out := command(t, "audit", "verify", "-c", p.config).want(t, 0).stdout
	if counted > 0 && !strings.Contains(out, fmt.Sprintf("\ncounted %d refusal", counted)) {
		t.Errorf("verify: %s", out)
	}
	t.Logf("%v recorded, %d counted in %d s", recorded, counted, seconds)
}

// flood sends a request so many times, one after the other; each is answered with status.
func (p *proxy) flood(t *testing.T, status, times int, head ...string) {
	w := p.dial(t)
	for range times {
		w.send(t, head...)
		resp, err := http.ReadResponse(w.r, nil)
		if err != nil || resp.StatusCode != status {
			t.Errorf("%v, %v", resp, err)
			return
		}
		io.Copy(io.Discard, resp.Body)
		if resp.Close {
			w.Close()
			w = p.dial(t)
		}
	}
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
