package audit

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"robotsproxy/cmd/internal/e2e"
	"robotsproxy/robots/testkit"
)

func TestFullDisk(t *testing.T) {
	t.Parallel()
	o := e2e.NewOrigin(t, "full", e2e.Forbidding)
	o.Handle("/yes", e2e.TextPage("text/plain", "yes"))
	disk := e2e.SmallDisk(t, "256k")
	file := filepath.Join(disk, "audit.jsonl")
	p := e2e.StartProxy(t, e2e.Unpaced.With(e2e.Settings{"audit.file": file}))
	p.Audit = file
	c := p.Client(t, false)
	var answered []string
	refuse := func() bool {
		id, err := e2e.RefusedID(c, o.URL("http", "/no"))
		if err == nil {
			answered = append(answered, id)
		}
		return err == nil
	}
	if !refuse() {
		t.Fatal("not refused by the rule while there is room")
	}
	ballast := e2e.Fill(t, disk)
	for refuse() { // a page of the disk may have some space left
	}
	e2e.WantOwn(t, e2e.Get(t, c, o.URL("http", "/no")), http.StatusServiceUnavailable, "proxy_internal_error")
	pages := len(o.Pages("http"))
	e2e.WantOwn(t, e2e.Get(t, c, o.URL("http", "/yes")), http.StatusServiceUnavailable, "proxy_internal_error")
	if len(o.Pages("http")) != pages {
		t.Error("a request went out that could not be recorded")
	}
	if p.Healthy(t) {
		t.Error("/healthz says that all is well")
	}
	// What is said of the disk is not that of a minute ago.
	operator := e2e.Operator(t)
	testkit.Eventually(t, "no space is said to be left", func() bool {
		return strings.Contains(string(e2e.Get(t, operator, "http://"+p.Admin+"/about").Body), ", 0 B free")
	})
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, "the proxy recovers", func() bool { return p.Healthy(t) })
	if got := e2e.Get(t, c, o.URL("http", "/yes")); got.Status != http.StatusOK {
		t.Errorf("status %d after there is room again", got.Status)
	}
	if !refuse() {
		t.Error("not refused by the rule after there is room again")
	}
	recorded := map[string]bool{}
	for _, r := range e2e.ReadLines(t, p.Audit) { // the ones that keep the chain complete
		recorded[r.ID] = true
	}
	for _, id := range answered {
		if !recorded[id] {
			t.Errorf("refusal %s was answered and is not recorded", id)
		}
	}
}

// TestFullDiskStopsTheQueue: requests that were waiting for their turn when the disk became full are not sent.
func TestFullDiskStopsTheQueue(t *testing.T) {
	t.Parallel()
	o := e2e.NewOrigin(t, "queue", e2e.Forbidding)
	o.Handle("/yes", e2e.TextPage("text/plain", "yes"))
	disk := e2e.SmallDisk(t, "256k")
	file := filepath.Join(disk, "audit.jsonl")
	p := e2e.StartProxy(t, e2e.Settings{"audit.file": file, "pace.requests_per_second": 2, "pace.max_concurrent": 1})
	p.WantCode = 1 // records are lost
	c := p.Client(t, false)
	const asked = 12
	statuses := make(chan int, asked)
	for range asked {
		go func() { statuses <- e2e.Get(t, c, o.URL("http", "/yes")).Status }()
	}
	testkit.Eventually(t, "the queue is at work", func() bool { return len(o.Pages("http")) > 1 })
	e2e.Fill(t, disk)
	refused := 0
	for range asked {
		if <-statuses == http.StatusServiceUnavailable {
			refused++
		}
	}
	sent := len(o.Pages("http"))
	if sent+refused != asked || refused < asked/2 { // the first one after that finds out that the disk is full
		t.Errorf("%d were sent, %d refused, of %d", sent, refused, asked)
	}
}

func TestFullDiskGoesOnWhereItMay(t *testing.T) {
	t.Parallel()
	o := e2e.NewOrigin(t, "full", e2e.Forbidding)
	o.Handle("/yes", e2e.TextPage("text/plain", "yes"))
	disk := e2e.SmallDisk(t, "256k")
	file := filepath.Join(disk, "audit.jsonl")
	p := e2e.StartProxy(t, e2e.Unpaced.With(e2e.Settings{"audit.file": file, "audit.on_error": "continue"}))
	c := p.Client(t, false)
	e2e.Get(t, c, o.URL("http", "/no"))
	ballast := e2e.Fill(t, disk)
	const asked = 20
	for range asked {
		if got := e2e.Get(t, c, o.URL("http", "/no")); got.Status != http.StatusForbidden {
			t.Errorf("status %d", got.Status)
		}
		if got := e2e.Get(t, c, o.URL("http", "/yes")); got.Status != http.StatusOK {
			t.Errorf("status %d", got.Status)
		}
	}
	testkit.Eventually(t, "/healthz says that records are not written", func() bool { return !p.Healthy(t) })
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, "what was kept is written", func() bool { return len(e2e.ReadAudit(t, file)) == 2*asked+1 })
}

func TestDirectoryTakenAway(t *testing.T) {
	t.Parallel()
	o := e2e.NewOrigin(t, "away", e2e.Forbidding)
	dir := filepath.Join(t.TempDir(), "log")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "audit.jsonl")
	p := e2e.StartProxy(t, e2e.Unpaced.With(e2e.Settings{"audit.file": file}))
	c := p.Client(t, false)
	if _, err := e2e.RefusedID(c, o.URL("http", "/no")); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	e2e.WantOwn(t, e2e.Get(t, c, o.URL("http", "/no")), http.StatusServiceUnavailable, "proxy_internal_error")
	if p.Healthy(t) {
		t.Error("/healthz says that all is well")
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, "the proxy recovers", func() bool { return p.Healthy(t) })
	if _, err := e2e.RefusedID(c, o.URL("http", "/no")); err != nil {
		t.Error(err)
	}
	lines := e2e.ReadLines(t, file)
	if len(lines) < 2 || lines[0].Seq != 4 { // the start, the fetch and the first refusal are gone
		t.Fatalf("%d lines, the first %+v", len(lines), lines)
	}
	replaced := false
	for _, r := range lines {
		replaced = replaced || r.Event == "replaced"
	}
	if !replaced {
		t.Error("no line says that the lines before are not there")
	}
}

func TestOneWriterAtATime(t *testing.T) {
	t.Parallel()
	p := e2e.StartProxy(t, nil)
	second := e2e.Launch(t, e2e.NewSetup(t, e2e.Settings{"audit.file": p.Audit}))
	testkit.Within(t, "the second serve ends", second.Exited)
	if said := second.Stderr.String(); second.Code != 1 || !strings.Contains(said, p.Audit+": another process writes the file") {
		t.Errorf("status %d: %s", second.Code, said)
	}
}

// If the reader of a pipe closes it, the audit cannot be written. The proxy reports that
// as it reports a full disk.
func TestReaderOfTheAuditLeaves(t *testing.T) {
	t.Parallel()
	o := e2e.NewOrigin(t, "leaves", e2e.Forbidding)
	pipe := filepath.Join(t.TempDir(), "pipe")
	testkit.Fifo(t, pipe)
	reader := make(chan *os.File, 1)
	go func() {
		f, err := os.Open(pipe)
		if err != nil {
			t.Error(err)
		}
		reader <- f
	}()
	p := e2e.StartProxyBy(t, e2e.Unpaced.With(e2e.Settings{"audit.file": "-"}), "sh", "-c", `exec "$0" "$@" > '`+pipe+`'`)
	p.WantCode = 1 // lines that are unwritten at the end
	c := p.Client(t, false)
	if _, err := e2e.RefusedID(c, o.URL("http", "/no")); err != nil {
		t.Fatal(err)
	}
	(<-reader).Close()
	var answer e2e.Result
	testkit.Eventually(t, "a record cannot be written", func() bool {
		answer = e2e.Get(t, c, o.URL("http", "/no"))
		return answer.Status != http.StatusForbidden
	})
	e2e.WantOwn(t, answer, http.StatusServiceUnavailable, "proxy_internal_error")
	if p.Healthy(t) {
		t.Error("/healthz says that all is well")
	}
}
