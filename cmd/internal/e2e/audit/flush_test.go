package audit

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

	"robotsproxy/cmd/internal/e2e"
	"robotsproxy/robots/testkit"
)

// TestNobodyFlushesTheAudit: many long requests that are refused immediately do not push
// an earlier record out of the audit, and all of them are accounted for.
func TestNobodyFlushesTheAudit(t *testing.T) {
	testkit.Long(t, "volume")
	t.Parallel()
	const senders, perSecond, burst, longest = 8, 100, 1000, 8 << 10
	o := e2e.NewOrigin(t, "flush", e2e.Forbidding)
	p := e2e.StartProxy(t, e2e.Unpaced.With(e2e.Settings{"audit.max_size": "64MiB", "audit.max_files": 1}))
	early, err := e2e.RefusedID(p.Client(t, false), o.URL("http", "/no"))
	if err != nil {
		t.Fatal(err)
	}
	long := strings.Repeat("\xff", longest)
	url := func(to string) string { return to + long[len(to):] }
	began := time.Now()
	flood(t, p, senders, http.StatusBadRequest, 100, "GET http://u:p@h.example/?"+long+" HTTP/1.1", "Host: h.example", "User-Agent: "+long)
	flood(t, p, senders, http.StatusForbidden, 100, "GET "+url("http://h.example:22/?")+" HTTP/1.1", "Host: h.example", "User-Agent: "+long)
	const cheap, ruled = 2 * senders * 100, burst + 2*perSecond
	if took := flood(t, p, senders, http.StatusForbidden, ruled/senders, "GET "+url(o.URL("http", "/no?"))+" HTTP/1.1", "Host: h.example", "User-Agent: FooBot/1.0"); took < 2*time.Second {
		t.Errorf("%d refusals by a rule were answered in %v", ruled, took)
	}
	seconds := int(time.Since(began)/time.Second) + 1
	p.End(t)

	e2e.Command(t, "audit", "explain", "-c", p.Config, early).Want(t, 0)
	recorded, counted, last := accounted(t, p, early)
	if recorded["rule"] != ruled {
		t.Errorf("%d recorded of %d refusals by a rule", recorded["rule"], ruled)
	}
	if n := recorded["malformed"] + recorded["port"]; n+counted != cheap || n > perSecond*(seconds+1) {
		t.Errorf("%v recorded and %d counted of %d in %d s", recorded, counted, cheap, seconds)
	}
	e2e.Command(t, "audit", "explain", "-c", p.Config, last).Want(t, 0)
	for line := range bytes.Lines(unzipped(t, p.Audit)) {
		if len(line) > 5*longest+4<<10 {
			t.Errorf("a line has %d bytes: %.200s", len(line), line)
		}
	}
	out := e2e.Command(t, "audit", "verify", "-c", p.Config).Want(t, 0).Stdout
	if counted > 0 && !strings.Contains(strings.ReplaceAll(out, ",", ""), fmt.Sprintf("\ncounted %d refusal", counted)) {
		t.Errorf("verify: %s", out)
	}
	t.Logf("%v recorded, %d counted in %d s", recorded, counted, seconds)
}

// accounted sums up the audit of a proxy that has ended, except one record: the recorded refusals by reason,
// and those that were only counted.
func accounted(t *testing.T, p *e2e.Proxy, but string) (recorded map[string]int, counted int, last string) {
	t.Helper()
	recorded = map[string]int{}
	for _, r := range wholeTrail(t, p.Audit) {
		switch {
		case r.Event == "counted":
			counted += r.Count
			if r.Client != "127.0.0.1" || r.Clients != 1 {
				t.Errorf("event %+v", r)
			}
		case r.Kind == "" && r.ID != but:
			recorded[r.Reason]++
			last = r.ID
		}
	}
	return recorded, counted, last
}

// flood makes some senders repeat a request. Each one must be answered with status.
func flood(t *testing.T, p *e2e.Proxy, senders, status, times int, head ...string) (took time.Duration) {
	from := time.Now()
	var all sync.WaitGroup
	for range senders {
		all.Go(func() { sendAgain(t, p, status, times, head...) })
	}
	all.Wait()
	return time.Since(from)
}

// sendAgain repeats a request.
func sendAgain(t *testing.T, p *e2e.Proxy, status, times int, head ...string) {
	w := p.Dial(t)
	for range times {
		w.Send(t, head...)
		resp, err := http.ReadResponse(w.R, nil)
		if err != nil || resp.StatusCode != status {
			t.Errorf("%v, %v", resp, err)
			return
		}
		io.Copy(io.Discard, resp.Body)
		if resp.Close {
			w.Close()
			w = p.Dial(t)
		}
	}
}

// TestVerifyTellsRemovedFromTakenAway: lines that the proxy removed from the beginning
// are recorded as removed, and lines that somebody else removed are missing.
func TestVerifyTellsRemovedFromTakenAway(t *testing.T) {
	testkit.Long(t, "volume")
	t.Parallel()
	o := e2e.NewOrigin(t, "taken", e2e.Forbidding)
	p := e2e.StartProxy(t, e2e.Unpaced.With(e2e.Settings{"audit.max_size": "64KiB", "audit.max_files": 3}))
	load := underLoad(t, p, o, 300)
	first := filepath.Join(filepath.Dir(p.Audit), "audit-000000000001.jsonl")
	testkit.Eventually(t, "the first file is removed", func() bool {
		left, _ := filepath.Glob(first + "*")
		_, err := os.Stat(p.Audit)
		asides, _ := filepath.Glob(strings.Replace(first, "000000000001", "*", 1) + "*")
		return len(left) == 0 && err == nil && len(asides) > 0
	})
	load.stop()
	p.End(t)
	p = p.Again(t) // the new process continues the chain
	p.End(t)
	if out := e2e.Command(t, "audit", "verify", "-c", p.Config).Want(t, 0).Stdout; !strings.Contains(out, "before them, and recorded that") {
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
	if got := e2e.Command(t, "audit", "verify", "-c", p.Config).Want(t, 1); !strings.Contains(got.Stderr, ": missing: seq 1 to ") {
		t.Errorf("verify: %s", got.Stderr)
	}
	seq := strings.TrimLeft(strings.TrimPrefix(strings.TrimSuffix(strings.TrimSuffix(filepath.Base(asides[1]), ".gz"), ".jsonl"), "audit-"), "0")
	e2e.Command(t, "audit", "verify", "-c", p.Config, "--from", seq).Want(t, 0)
}
