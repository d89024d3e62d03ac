package requests

import (
	"compress/gzip"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"robotsproxy/cmd/internal/e2e"
	"robotsproxy/robots/testkit"
)

// TestLabels: a record has the labels of its client, of the request and of its tunnel, and the origin gets none of them.
func TestLabels(t *testing.T) {
	t.Parallel()
	o := e2e.NewOrigin(t, "labels", e2e.Forbidding)
	o.Handle("/page", e2e.TextPage("text/plain", "a page"))
	entry := e2e.Entry{"name": "lab-a", "networks": []string{"127.0.0.0/8"}, "labels": []string{"team=web"}}
	dir := t.TempDir()
	p := e2e.StartProxy(t, e2e.Unpaced.With(e2e.Settings{"clients": []e2e.Entry{entry}, "archive": map[string]string{"dir": dir}}))
	client := p.Client(t, false)
	for _, c := range []struct {
		page, field, want string
		status            int
	}{
		{"/page?1", "", "team=web", http.StatusOK},
		{"/page?2", "job=news, a=1", "a=1,job=news,team=web", http.StatusOK},
		{"/page?3", "team=other", "team=web", http.StatusOK},
		{"/no", "job=news", "job=news,team=web", http.StatusForbidden},
		{"/page?4", "job", "team=web", http.StatusBadRequest},
		{"/page?5", "a=1,b=1,c=1,d=1,e=1,f=1,g=1,h=1", "team=web", http.StatusBadRequest},
	} {
		for _, scheme := range e2e.Schemes {
			var header []string
			if c.field != "" {
				header = []string{"Robotsproxy-Label", c.field}
			}
			if got := e2e.Get(t, client, o.URL(scheme, c.page), header...); got.Status != c.status {
				t.Errorf("%s %s: %v", scheme, c.field, got)
			}
			if r := e2e.AwaitRecord(t, p.Audit, o.URL(scheme, c.page)); r.Labels != c.want {
				t.Errorf("%s %s: labels %q, want %q", scheme, c.field, r.Labels, c.want)
			}
		}
	}
	tunnel := p.Dial(t)
	tunnel.Send(t, "CONNECT "+o.Hostport("https")+" HTTP/1.1", "Host: "+o.Hostport("https"), "Robotsproxy-Label: job=tunnel,a=2")
	if got := tunnel.Receive(t, http.MethodConnect); got.Status != http.StatusOK {
		t.Fatalf("%v", got)
	}
	inside := tunnel.Secure(t, p, o.Name, "http/1.1")
	inside.Send(t, "GET /page?6 HTTP/1.1", "Host: "+o.Hostport("https"), "Robotsproxy-Label: a=3", "robotsproxy-label: b=4")
	if got := inside.Receive(t, http.MethodGet); got.Status != http.StatusOK {
		t.Fatalf("%v", got)
	}
	if r := e2e.AwaitRecord(t, p.Audit, o.URL("https", "/page?6")); r.Labels != "a=3,b=4,job=tunnel,team=web" {
		t.Errorf("in a tunnel: labels %q", r.Labels)
	}
	for _, scheme := range e2e.Schemes {
		for _, h := range o.Arrivals(scheme) {
			for name := range h.Header {
				if strings.Contains(strings.ToLower(name), "label") {
					t.Errorf("the origin got %s: %q", name, h.Header[name])
				}
			}
		}
	}
	if out := e2e.Command(t, "audit", "tail", "--file", p.Audit, "--json", "--label", "job=news").Want(t, 0).Stdout; strings.Count(out, "\n") != 4 {
		t.Errorf("tail --label: %s", out)
	}
	if out := e2e.Command(t, "audit", "report", "--file", p.Audit, "--label", "job=news", "--label", "a=1", "--format", "json").Want(t, 0).Stdout; !strings.Contains(out, `"labels":"a=1,job=news"`) || !strings.Contains(out, `"requests":2`) {
		t.Errorf("report --label: %s", out)
	}
	p.End(t)
	files, _ := filepath.Glob(filepath.Join(dir, "*.warc.gz"))
	if len(files) != 1 {
		t.Fatalf("the archive has %q", files)
	}
	f, err := os.Open(files[0])
	testkit.Must(t, err)
	defer f.Close()
	r, err := gzip.NewReader(f)
	testkit.Must(t, err)
	text, err := io.ReadAll(r)
	testkit.Must(t, err)
	if n := strings.Count(string(text), "label: a=1\r\nlabel: job=news\r\nlabel: team=web\r\n"); n != 2 || strings.Contains(string(text), "Robotsproxy-Label") {
		t.Errorf("%d captures have the labels, want 2", n)
	}
}
