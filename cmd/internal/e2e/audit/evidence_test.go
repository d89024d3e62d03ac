package audit

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"robotsproxy/cmd/internal/e2e"
	"robotsproxy/robots/testkit"
)

// Every refusal that a client has read is in the file, whatever happens to the proxy, and
// the next process continues the chain. With audit.sync: always, the same holds for every
// response that a client has read to its end.
func TestKillLosesNoRefusal(t *testing.T) {
	t.Parallel()
	o := e2e.NewOrigin(t, "killed", e2e.Forbidding)
	o.Handle("/yes", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "yes") })
	for _, sync := range []string{"none", "interval", "always"} {
		t.Run(sync, func(t *testing.T) {
			t.Parallel()
			h := e2e.NewSetup(t, e2e.Unpaced.With(e2e.Settings{"audit.sync": sync, "audit.max_size": "64KiB", "audit.max_files": 10_000}))
			lines := 0
			for life := range 3 {
				p := e2e.Launch(t, h)
				p.AwaitReady(t)
				seen := underLoad(t, p, o, 60)
				p.Cmd.Process.Kill()
				<-p.Exited
				seen.stop()
				recorded := map[string]bool{}
				all := wholeTrail(t, p.Audit)
				for _, r := range all {
					recorded[r.ID], recorded[r.URL] = true, true
				}
				for _, url := range seen.allowed {
					if sync == "always" && !recorded[url] {
						t.Errorf("life %d: %s was answered and is not recorded", life, url)
					}
				}
				for _, id := range seen.ids() {
					if !recorded[id] {
						t.Errorf("life %d: refusal %s was answered and is not recorded", life, id)
					}
				}
				if len(all) < lines+len(seen.ids()) {
					t.Errorf("life %d: %d lines after %d and %d refusals", life, len(all), lines, len(seen.ids()))
				}
				lines = len(all)
			}
		})
	}
}

// load is what clients have received from a proxy under load.
type load struct {
	mu      sync.Mutex // guards refused and allowed
	refused []string   // IDs
	allowed []string   // URLs

	cancel context.CancelFunc
	all    sync.WaitGroup
}

func (l *load) ids() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.refused
}

func (l *load) stop() {
	l.cancel()
	l.all.Wait()
}

// underLoad returns after the given number of refusals; the clients continue.
func underLoad(t *testing.T, p *e2e.Proxy, o *e2e.Origin, refusals int) *load {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	l := &load{cancel: cancel}
	enough := make(chan struct{})
	for n := range 16 {
		c := p.Client(t, n%2 == 0)
		l.all.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				if n%4 == 0 { // some requests are allowed
					l.get(c, o.URL("http", fmt.Sprintf("/yes?life=%p&client=%d&request=%d", l, n, i)))
				}
				id, err := e2e.RefusedID(c, o.URL([]string{"http", "https"}[n%2], fmt.Sprintf("/no/%d/%d", n, i)))
				if err != nil {
					return // the proxy has ended
				}
				l.mu.Lock()
				if l.refused = append(l.refused, id); len(l.refused) == refusals {
					close(enough)
				}
				l.mu.Unlock()
			}
		})
	}
	testkit.Within(t, "refusals are answered", enough)
	return l
}

// get requests an allowed URL.
func (l *load) get(c *http.Client, url string) {
	resp, err := c.Get(url)
	if err != nil {
		return
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err == nil {
		l.mu.Lock()
		l.allowed = append(l.allowed, url)
		l.mu.Unlock()
	}
}

// wholeTrail reads the audit of a proxy that has ended, including closed files. If a file
// exists both plain and compressed, the plain one is complete.
func wholeTrail(t *testing.T, file string) (all []e2e.Record) {
	t.Helper()
	asides, err := filepath.Glob(strings.TrimSuffix(file, ".jsonl") + "-*.jsonl*")
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]string{file: file}
	for _, name := range asides {
		plain, zipped := strings.CutSuffix(name, ".gz")
		if !strings.HasSuffix(name, ".part") && (!zipped || names[plain] == "") {
			names[plain] = name
		}
	}
	delete(names, file)
	var last e2e.Chained
	for _, plain := range append(slices.Sorted(maps.Keys(names)), file) {
		var records []e2e.Record
		records, last = e2e.ParseLines(t, unzipped(t, cmp.Or(names[plain], file)), last)
		all = append(all, records...)
	}
	return all
}

func unzipped(t *testing.T, file string) []byte {
	t.Helper()
	text, err := os.ReadFile(file)
	if os.IsNotExist(err) {
		return nil // the process ended between two files
	}
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasSuffix(file, ".gz") {
		return text
	}
	r, err := gzip.NewReader(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	if text, err = io.ReadAll(r); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	return text
}
