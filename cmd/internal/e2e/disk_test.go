package e2e

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// smallDisk is a directory with room for so much, as "256k". It needs root.
func smallDisk(t *testing.T, size string) string {
	t.Helper()
	dir := t.TempDir()
	if os.Getuid() != 0 {
		t.Skip("only root can mount a small disk")
	}
	if err := syscall.Mount("none", dir, "tmpfs", 0, "size="+size); err != nil {
		t.Skipf("nothing can be mounted here: %v", err)
	}
	t.Cleanup(func() { syscall.Unmount(dir, syscall.MNT_DETACH) })
	return dir
}

// fill leaves no room on a disk.
func fill(t *testing.T, dir string) (ballast string) {
	t.Helper()
	ballast = filepath.Join(dir, "ballast")
	f, err := os.Create(ballast)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, size := range []int{64 << 10, 4 << 10, 1} {
		for {
			if _, err := f.Write(make([]byte, size)); err != nil {
				break
			}
		}
	}
	return ballast
}

// healthy says what /healthz answers.
func (p *proxy) healthy(t *testing.T) bool {
	t.Helper()
	resp, err := http.Get("http://" + p.admin + "/healthz")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}

func TestFullDisk(t *testing.T) {
	t.Parallel()
	o := newOrigin(t, "full", forbidding)
	o.handle("/yes", textPage("text/plain", "yes"))
	disk := smallDisk(t, "256k")
	file := filepath.Join(disk, "audit.jsonl")
	p := startProxy(t, outOfTheWay.with(settings{"audit.file": file}))
	p.audit = file
	c := p.client(t, false)
	var answered []string
	refuse := func() bool {
		id, err := refusedID(c, o.url("http", "/no"))
		if err == nil {
			answered = append(answered, id)
		}
		return err == nil
	}
	if !refuse() {
		t.Fatal("not refused by the rule while there is room")
	}
	ballast := fill(t, disk)
	for refuse() { // a page may have some room left
	}
	wantOwn(t, get(t, c, o.url("http", "/no")), http.StatusServiceUnavailable, "proxy_internal_error")
	pages := len(o.pages("http"))
	wantOwn(t, get(t, c, o.url("http", "/yes")), http.StatusServiceUnavailable, "proxy_internal_error")
	if len(o.pages("http")) != pages {
		t.Error("a request went out that could not be recorded")
	}
	if p.healthy(t) {
		t.Error("/healthz says that all is well")
	}
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	eventually(t, patience, "the proxy recovers", func() bool { return p.healthy(t) })
	if got := get(t, c, o.url("http", "/yes")); got.Status != http.StatusOK {
		t.Errorf("status %d after there is room again", got.Status)
	}
	if !refuse() {
		t.Error("not refused by the rule after there is room again")
	}
	recorded := map[string]bool{}
	for _, r := range readLines(t, p.audit) { // which holds the chain together
		recorded[r.ID] = true
	}
	for _, id := range answered {
		if !recorded[id] {
			t.Errorf("refusal %s was answered and is not recorded", id)
		}
	}
}

func TestFullDiskGoesOnWhereItMay(t *testing.T) {
	t.Parallel()
	o := newOrigin(t, "full", forbidding)
	o.handle("/yes", textPage("text/plain", "yes"))
	disk := smallDisk(t, "256k")
	file := filepath.Join(disk, "audit.jsonl")
	p := startProxy(t, outOfTheWay.with(settings{"audit.file": file, "audit.on_error": "continue"}))
	c := p.client(t, false)
	get(t, c, o.url("http", "/no"))
	ballast := fill(t, disk)
	const asked = 20
	for range asked {
		if got := get(t, c, o.url("http", "/no")); got.Status != http.StatusForbidden {
			t.Errorf("status %d", got.Status)
		}
		if got := get(t, c, o.url("http", "/yes")); got.Status != http.StatusOK {
			t.Errorf("status %d", got.Status)
		}
	}
	eventually(t, patience, "/healthz says that records are not written", func() bool { return !p.healthy(t) })
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	eventually(t, patience, "what was kept is written", func() bool { return len(readAudit(t, file)) == 2*asked+1 })
}

func TestDirectoryTakenAway(t *testing.T) {
	t.Parallel()
	o := newOrigin(t, "away", forbidding)
	dir := filepath.Join(t.TempDir(), "log")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "audit.jsonl")
	p := startProxy(t, outOfTheWay.with(settings{"audit.file": file}))
	c := p.client(t, false)
	if _, err := refusedID(c, o.url("http", "/no")); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	wantOwn(t, get(t, c, o.url("http", "/no")), http.StatusServiceUnavailable, "proxy_internal_error")
	if p.healthy(t) {
		t.Error("/healthz says that all is well")
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	eventually(t, patience, "the proxy recovers", func() bool { return p.healthy(t) })
	if _, err := refusedID(c, o.url("http", "/no")); err != nil {
		t.Error(err)
	}
	lines := readLines(t, file)
	if len(lines) < 2 || lines[0].Seq != 3 { // the fetch and the first refusal are gone
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
	p := startProxy(t, nil)
	second := launch(t, newHouse(t, settings{"audit.file": p.audit}))
	within(t, patience, "the second serve ends", second.exited)
	if said := second.stderr.String(); second.code != 1 || !strings.Contains(said, p.audit+": another process writes it") {
		t.Errorf("status %d: %s", second.code, said)
	}
}

// Who reads the audit from a pipe may leave: then it cannot be written, and the proxy
// says so as it does of a disk.
func TestReaderOfTheAuditLeaves(t *testing.T) {
	t.Parallel()
	o := newOrigin(t, "leaves", forbidding)
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	reader := make(chan *os.File, 1)
	go func() {
		f, err := os.Open(pipe)
		if err != nil {
			t.Error(err)
		}
		reader <- f
	}()
	p := startBy(t, outOfTheWay.with(settings{"audit.file": "-"}), "sh", "-c", `exec "$0" "$@" > '`+pipe+`'`)
	p.wantCode = 1 // what is unwritten at the end
	c := p.client(t, false)
	if _, err := refusedID(c, o.url("http", "/no")); err != nil {
		t.Fatal(err)
	}
	(<-reader).Close()
	var answer result
	eventually(t, patience, "a record cannot be written", func() bool {
		answer = get(t, c, o.url("http", "/no"))
		return answer.Status != http.StatusForbidden
	})
	wantOwn(t, answer, http.StatusServiceUnavailable, "proxy_internal_error")
	if p.healthy(t) {
		t.Error("/healthz says that all is well")
	}
}
