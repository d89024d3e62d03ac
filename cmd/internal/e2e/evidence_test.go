package e2e

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
)

const forbidding = "User-agent: *\nDisallow: /no\n"

// refusedID asks for what robots.txt forbids and gives the id in the answer.
func refusedID(c *http.Client, url string) (string, error) {
	resp, err := c.Get(url)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return "", err
	}
	_, id, ok := strings.Cut(string(text), "\nid:")
	if resp.StatusCode != http.StatusForbidden || !ok {
		return "", fmt.Errorf("status %d: %s", resp.StatusCode, text)
	}
	return strings.TrimSpace(id), nil
}

// Every refusal that a client has read is in the file, whatever becomes of the
// proxy; the chain goes on with the next one.
func TestKillLosesNoRefusal(t *testing.T) {
	t.Parallel()
	o := newOrigin(t, "killed", forbidding)
	o.handle("/yes", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "yes") })
	for _, sync := range []string{"none", "interval", "always"} {
		t.Run(sync, func(t *testing.T) {
			h := newHouse(t, outOfTheWay.with(settings{"audit.sync": sync, "audit.max_size": "64KiB", "audit.max_files": 10_000}))
			lines := 0
			for life := range 3 {
				p := launch(t, h)
				p.awaitReady(t)
				p.ca = strings.TrimSuffix(command(t, "ca", "path", "-c", p.config).want(t, 0).stdout, "\n")
				seen := underLoad(t, p, o, 60)
				p.cmd.Process.Kill()
				<-p.exited
				seen.stop()
				recorded := map[string]bool{}
				all := wholeTrail(t, p.audit)
				for _, r := range all {
					recorded[r.ID] = true
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

// load is what clients have seen of a proxy that is asked by many.
type load struct {
	mu      sync.Mutex // guards refused
	refused []string

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

// underLoad returns when so many refusals have been answered; the clients go on.
func underLoad(t *testing.T, p *proxy, o *origin, refusals int) *load {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	l := &load{cancel: cancel}
	enough := make(chan struct{})
	for n := range 16 {
		c := p.client(t, n%2 == 0)
		l.all.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				if n%4 == 0 { // some are allowed
					if resp, err := c.Get(o.url("http", "/yes")); err == nil {
						io.Copy(io.Discard, resp.Body)
						resp.Body.Close()
					}
				}
				id, err := refusedID(c, o.url([]string{"http", "https"}[n%2], fmt.Sprintf("/no/%d/%d", n, i)))
				if err != nil {
					return // the proxy is gone
				}
				l.mu.Lock()
				if l.refused = append(l.refused, id); len(l.refused) == refusals {
					close(enough)
				}
				l.mu.Unlock()
			}
		})
	}
	within(t, patience, "refusals are answered", enough)
	return l
}

// wholeTrail reads the audit of a proxy that has ended, with the files that were set
// aside. Of one that is there twice the plain one is whole.
func wholeTrail(t *testing.T, file string) (all []record) {
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
	var last chained
	for _, plain := range append(slices.Sorted(maps.Keys(names)), file) {
		var records []record
		records, last = parseLines(t, unzipped(t, cmp.Or(names[plain], file)), last)
		all = append(all, records...)
	}
	return all
}

func unzipped(t *testing.T, file string) []byte {
	t.Helper()
	text, err := os.ReadFile(file)
	if os.IsNotExist(err) {
		return nil // the end came between two files
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
