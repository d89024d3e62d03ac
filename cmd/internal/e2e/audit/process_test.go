package audit

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"

	"robotsproxy/cmd/internal/e2e"
	"robotsproxy/robots/testkit"
)

// kill ends a proxy without a warning.
func kill(t *testing.T, p *e2e.Proxy) {
	t.Helper()
	p.Signal(t, syscall.SIGKILL)
	testkit.Within(t, "serve ends", p.Exited)
}

// linesOf returns the lines of a kind, or the events of a name.
func linesOf(t *testing.T, p *e2e.Proxy, what string) []e2e.Record {
	t.Helper()
	return slices.DeleteFunc(e2e.ReadLines(t, p.Audit), func(r e2e.Record) bool { return r.Kind != what && r.Event != what })
}

// TestKilledWhileRequestsAreUnderWay: a tunnel, an upgrade, a stream and a download leave lines, and the next
// start names them.
func TestKilledWhileRequestsAreUnderWay(t *testing.T) {
	t.Parallel()
	for _, sync := range []string{"interval", "always"} {
		t.Run(sync, func(t *testing.T) {
			t.Parallel()
			o, secret := e2e.NewOrigin(t, "killed", ""), e2e.NewOrigin(t, "tunnel", "")
			ends := make(chan struct{})
			defer close(ends)
			endless := func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/stream" {
					w.Header().Set("Content-Type", "text/event-stream")
				}
				fmt.Fprint(w, "data: begun\n\n")
				w.(http.Flusher).Flush()
				<-ends
			}
			o.Handle("/stream", endless)
			o.Handle("/download", endless)
			o.Handle("/quick", e2e.TextPage("text/plain", "quick"))
			o.Handle("/socket", e2e.EchoPage(t))
			p := e2e.StartProxy(t, e2e.Unpaced.With(e2e.Settings{"audit.sync": sync, "tls.tunnel": []string{secret.Name}, "pace.max_concurrent": 10}))
			tunnel := p.Connect(t, secret.Hostport("https"))
			defer tunnel.Close()
			if begun := linesOf(t, p, "begun"); len(begun) != 1 || begun[0].URL != secret.Hostport("https") || begun[0].Reason != "tunnel" {
				t.Errorf("when the client is told that its tunnel stands, the audit has %+v", begun)
			}
			socket := p.Dial(t)
			e2e.Upgrade(t, socket, o.URL("http", "/socket"), o.Hostport("http"))
			if begun := linesOf(t, p, "begun"); len(begun) != 2 || begun[1].URL != o.URL("http", "/socket") {
				t.Errorf("when the client is told that its upgrade stands, the audit has %+v", begun)
			}
			c := p.Client(t, false)
			for _, url := range []string{o.URL("http", "/stream"), o.URL("https", "/download")} {
				resp, err := c.Get(url)
				testkit.Must(t, err)
				defer resp.Body.Close()
			}
			e2e.Get(t, c, o.URL("http", "/quick"))
			testkit.Eventually(t, "all that is under way has a line", func() bool { return len(linesOf(t, p, "begun")) == 4 })
			kill(t, p)
			var ids []string
			for _, r := range linesOf(t, p, "begun") {
				if ids = append(ids, r.ID); r.Decision != "allow" || r.Client != "127.0.0.1" || r.Host == "" {
					t.Errorf("%+v", r)
				}
			}
			p = p.Again(t)
			testkit.Eventually(t, "they are named", func() bool { return len(linesOf(t, p, "unfinished")) == 1 })
			if found := linesOf(t, p, "unfinished")[0]; !slices.Equal(found.IDs, ids) || found.Count != 4 {
				t.Errorf("got %q, %d; want %q", found.IDs, found.Count, ids)
			}
			said := e2e.Command(t, "audit", "explain", "-c", p.Config, ids[0]).Want(t, 1).Stderr
			if !strings.Contains(said, "the request has begun") || !strings.Contains(said, "the proxy ended before it did") {
				t.Errorf("audit explain: %s", said)
			}
			e2e.Command(t, "audit", "verify", "-c", p.Config).Want(t, 0)
		})
	}
}

// TestEventsOfTheProcess: start, stop, a reload and another CA are in the audit.
func TestEventsOfTheProcess(t *testing.T) {
	t.Parallel()
	p := e2e.StartProxy(t, nil)
	wantConfig := func(r e2e.Record) {
		t.Helper()
		text, err := os.ReadFile(p.Config)
		testkit.Must(t, err)
		if sum := sha256.Sum256(text); r.Config != hex.EncodeToString(sum[:]) {
			t.Errorf("the configuration's hash is %q", r.Config)
		}
	}
	p = p.EndAgain(t)
	kill(t, p)
	p = p.Again(t)
	starts := linesOf(t, p, "start")
	for i, want := range []string{"a new audit", "stopped in order at 20", "did not stop in order"} {
		if !strings.Contains(starts[i].Detail, want) || starts[i].Version == "" || starts[i].CA == "" {
			t.Errorf("start %d: %+v", i+1, starts[i])
		}
		wantConfig(starts[i])
	}
	p.Rewrite(t, e2e.Settings{"pace.requests_per_second": 5, "hosts": []map[string]any{{"match": "x.test", "robots": "deny", "reason": "r"}}, "usage.purposes": []string{"search"}})
	p.Signal(t, syscall.SIGHUP)
	testkit.Eventually(t, "the reload is recorded", func() bool { return len(linesOf(t, p, "reload")) == 1 })
	reloaded := linesOf(t, p, "reload")[0]
	wantConfig(reloaded)
	if keys := slices.Sorted(slices.Values(reloaded.Keys)); !slices.Equal(keys, []string{"hosts", "pace.requests_per_second", "usage.purposes"}) {
		t.Errorf("%q", keys)
	}
	e2e.Command(t, "ca", "rotate", "-c", p.Config).Want(t, 0)
	p.Signal(t, syscall.SIGHUP)
	testkit.Eventually(t, "the other CA is recorded", func() bool { return len(linesOf(t, p, "rotated")) == 1 })
	if r := linesOf(t, p, "rotated")[0]; r.CA == "" || r.CA == starts[2].CA {
		t.Errorf("%+v", r)
	}
	p.End(t)
	lines := e2e.ReadLines(t, p.Audit)
	if last := lines[len(lines)-1]; last.Event != "stop" {
		t.Errorf("the last line is %+v", last)
	}
}

// TestShortLivesCannotBeCutOff: the proxy notices the end of a life that was killed as soon as it answered.
func TestShortLivesCannotBeCutOff(t *testing.T) {
	t.Parallel()
	p := e2e.StartProxy(t, nil)
	p.End(t)
	before := e2e.ReadText(t, p.Audit)
	p = p.Again(t)
	kill(t, p)
	e2e.WriteFile(t, p.Audit, before)
	p = p.Again(t)
	if text := e2e.ReadText(t, p.Audit); !strings.Contains(text, `"event":"cut"`) {
		t.Errorf("no event says that lines are missing:\n%s", text)
	}
}
