package audit

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"robotsproxy/cmd/internal/e2e"
	"robotsproxy/robots/testkit"
)

// TestArchivePrivacy: what the audit leaves out, the archive leaves out as well.
func TestArchivePrivacy(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		own    e2e.Settings
		leaks  string // must not occur
		client string // begins the field client; "": there is none
	}{
		"by default":          {nil, "s3cret", "127.0.0.1"},
		"query_strings: drop": {e2e.Settings{"audit.query_strings": "drop"}, "whose", "127.0.0.1"},
		"clients: hash":       {e2e.Settings{"audit.clients": "hash"}, "127.0.0.1", ""},
		"clients: drop":       {e2e.Settings{"audit.clients": "drop"}, "client:", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := e2e.NewOrigin(t, "privacy", "")
			for _, path := range []string{"/a", "/b"} { // of which the second is a revisit
				o.Handle(path, func(w http.ResponseWriter, _ *http.Request) {
					w.Header().Set("Set-Cookie", "a=s3cret")
					w.Header().Set("Location", "/?whose=mine")
					w.WriteHeader(http.StatusFound)
					io.WriteString(w, "page")
				})
			}
			p, dir := startProxy(t, e2e.Settings{"archive.compress": "none"}.With(c.own))
			for _, path := range []string{"/a", "/b"} {
				e2e.Get(t, p.Client(t, false), o.URL("http", path+"?whose=mine"), "Cookie", "s3cret", "Authorization", "s3cret", "Referer", "http://x/?whose=mine")
			}
			p.End(t)
			client := e2e.ReadAudit(t, p.Audit)[0].Client
			if !strings.HasPrefix(client, c.client) {
				t.Errorf("the audit has the client %q", client)
			}
			revisits := 0
			for _, r := range readArchive(t, dir) {
				if r.Type == "revisit" {
					revisits++
				}
			}
			if revisits != 1 {
				t.Errorf("%d revisits", revisits)
			}
			for _, file := range completeFiles(t, dir) {
				text := strings.ReplaceAll(e2e.ReadText(t, file), o.Addr(), "") // it may begin like the client's address
				if strings.Contains(text, c.leaks) {
					t.Errorf("%q is in %s:\n%s", c.leaks, file, text)
				}
				if client != "" && !strings.Contains(text, "\r\nclient: "+client+"\r\n") {
					t.Errorf("the client %q is not in %s", client, file)
				}
			}
		})
	}
}

// TestOneArchiveWriterAtATime: a second proxy does not use the directory, and does not disturb the first one.
func TestOneArchiveWriterAtATime(t *testing.T) {
	t.Parallel()
	o := e2e.NewOrigin(t, "one", "")
	o.Handle("/page", e2e.TextPage("text/plain", "page"))
	p, dir := startProxy(t, nil)
	e2e.Get(t, p.Client(t, false), o.URL("http", "/page"))
	second := e2e.Launch(t, e2e.NewSetup(t, e2e.Settings{"archive.dir": dir}))
	testkit.Within(t, "the second serve ends", second.Exited)
	if said := second.Stderr.String(); second.Code != 1 || !strings.Contains(said, "archive.dir: "+dir) {
		t.Errorf("status %d: %s", second.Code, said)
	}
	out := e2e.Command(t, "run", "-c", e2e.NewSetup(t, nil).Config, "--warc", dir, "--", "true").Want(t, 1)
	if !strings.Contains(out.Stderr, dir) {
		t.Errorf("run: %s", out.Stderr)
	}
	e2e.Get(t, p.Client(t, false), o.URL("http", "/page"))
	p.End(t)
	if n := len(readArchive(t, dir)); n != 1+3*3 { // robots.txt too
		t.Errorf("%d records", n)
	}
}

// TestArchiveClientLeaves: a client that leaves at any time cuts its record, and no other one.
func TestArchiveClientLeaves(t *testing.T) {
	t.Parallel()
	const size, step = 800_000, 40_000
	o := e2e.NewOrigin(t, "leaves", "")
	o.Handle("/page", e2e.ChunkedPage(e2e.RandomBytes(size), step))
	o.Handle("/held", e2e.HeldPage("text/plain", "first", "never sent", nil))
	p, dir := startProxy(t, nil)
	read := func(path string, n int64) {
		w := p.Dial(t)
		w.Send(t, "GET "+o.URL("http", path)+" HTTP/1.1", "Host: "+o.Hostport("http"), "Connection: close")
		w.SetReadDeadline(time.Now().Add(testkit.Patience))
		io.CopyN(io.Discard, w, n)
		w.Close()
	}
	for n := int64(0); n <= size+step; n += step { // the sockets may take the whole page before the client leaves
		read("/page", n)
	}
	read("/held", 1)
	p.End(t)
	records := readArchive(t, dir)
	cut, whole := 0, 0
	for _, r := range e2e.ReadAudit(t, p.Audit) {
		switch c, ok := records[r.WARC.ID]; {
		case r.Status == 0 || r.WARC.ID == "" && r.Bytes == 0: // left before the origin has answered
		case !ok || c.URL != r.URL:
			t.Errorf("the audit has %+v, the archive %+v", r, c)
		case c.Truncated == "disconnect":
			cut++
		default:
			whole++
		}
	}
	if cut == 0 || whole == 0 {
		t.Errorf("%d records are cut, %d whole", cut, whole)
	}
}
