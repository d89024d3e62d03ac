//go:build unix

package audit

import (
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"robotsproxy/cmd/internal/e2e"
	"robotsproxy/robots/testkit"
)

// A pausingReader reads a FIFO, except while it pauses. To the proxy, a FIFO that nobody reads is a disk that hangs.
type pausingReader struct {
	file *os.File
	turn chan struct{} // holds one token, except while it pauses
}

func (r *pausingReader) run() {
	for b := make([]byte, 64<<10); ; {
		r.turn <- <-r.turn
		if _, err := r.file.Read(b); err != nil {
			return
		}
	}
}

// TestDiskThatHangs: while a write of the audit does not return, nothing is sent, health says why, and the proxy can
// be stopped.
func TestDiskThatHangs(t *testing.T) {
	testkit.Long(t, "a shutdown that waits for the disk")
	t.Parallel()
	o := e2e.NewOrigin(t, "hangs", e2e.Forbidding)
	o.Handle("/yes", e2e.TextPage("text/plain", "yes"))
	file := filepath.Join(t.TempDir(), "audit")
	testkit.Fifo(t, file)
	reads, err := os.OpenFile(file, os.O_RDWR|syscall.O_NONBLOCK, 0) // so that it does not end before serve begins
	testkit.Must(t, err)
	defer reads.Close()
	reader := &pausingReader{file: reads, turn: make(chan struct{}, 1)}
	reader.turn <- struct{}{}
	go reader.run()
	p := e2e.StartProxy(t, e2e.Unpaced.With(e2e.Settings{"audit.file": file, "audit.fifo": true}))
	p.WantCode = 1 // records are lost
	c := p.Client(t, false)
	hang := func() {
		<-reader.turn
		testkit.Eventually(t, "requests are refused", func() bool {
			return e2e.Get(t, c, o.URL("http", "/yes")).Status == http.StatusServiceUnavailable
		})
	}
	for _, scheme := range e2e.Schemes {
		if got := e2e.Get(t, c, o.URL(scheme, "/yes")); got.Status != http.StatusOK {
			t.Fatalf("%s: status %d while the disk responds", scheme, got.Status)
		}
	}
	hang()
	sent := len(o.Pages("http"))
	for _, scheme := range e2e.Schemes {
		for range 10 {
			resp, err := c.Get(o.URL(scheme, "/yes"))
			if err != nil && scheme == "https" && strings.Contains(err.Error(), http.StatusText(http.StatusServiceUnavailable)) {
				// The client did not keep its tunnel, and CONNECT is refused.
				continue
			}
			testkit.Must(t, err)
			e2e.WantOwn(t, e2e.Read(t, resp), http.StatusServiceUnavailable, "proxy_internal_error")
		}
	}
	if got := len(o.Pages("http")) + len(o.Pages("https")); got != sent+1 {
		t.Errorf("%d requests were sent that could not be recorded", got-sent-1)
	}
	resp, err := e2e.Operator(t).Get("http://" + p.Admin + "/healthz")
	testkit.Must(t, err)
	health, _ := io.ReadAll(resp.Body)
	resp.Body.Close()
	if resp.StatusCode != http.StatusServiceUnavailable || !strings.Contains(string(health), "the disk does not respond") {
		t.Errorf("/healthz answers %d: %s", resp.StatusCode, health)
	}
	reader.turn <- struct{}{}
	testkit.Eventually(t, "the proxy recovers", func() bool { return p.Healthy(t) })
	if got := e2e.Get(t, c, o.URL("http", "/yes")); got.Status != http.StatusOK {
		t.Errorf("status %d after the disk responds again", got.Status)
	}
	hang()
	p.End(t)
	for _, said := range []string{"audit write failed", "audit written again"} {
		if !strings.Contains(p.Stderr.String(), said) {
			t.Errorf("the log does not say %q", said)
		}
	}
}

// TestFilesThatKeepNothing: the proxy does not start with an audit or anchors in a file that keeps nothing.
func TestFilesThatKeepNothing(t *testing.T) {
	t.Parallel()
	link := filepath.Join(t.TempDir(), "audit.jsonl")
	testkit.Must(t, os.Symlink(os.DevNull, link))
	for _, c := range []struct {
		settings e2e.Settings
		said     string
	}{
		{e2e.Settings{"audit.file": link}, link + ": not a regular file: write records to a file, to standard output (-), or to a FIFO with audit.fifo"},
		{e2e.Settings{"audit.file": os.DevNull, "audit.fifo": true}, os.DevNull + ": audit.fifo is set, and this is no FIFO"},
		{e2e.Settings{"audit.anchor": map[string]string{"file": link}}, "audit.anchor.file: " + link + ": not a regular file"},
	} {
		p := e2e.Launch(t, e2e.NewSetup(t, c.settings))
		testkit.Within(t, "serve ends", p.Exited)
		if said := p.Stderr.String(); p.Code != 1 || !strings.Contains(said, c.said) {
			t.Errorf("%v: status %d: %s", c.settings, p.Code, said)
		}
	}
}
