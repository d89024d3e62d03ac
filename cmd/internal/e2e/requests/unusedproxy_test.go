package requests

import (
	"net/http"
	"strings"
	"testing"

	"robotsproxy/cmd/internal/e2e"
	"robotsproxy/robots/testkit"
)

// A proxy variable that is not used is named in the log when a host cannot be reached, and to no client.
func TestUnusedProxyIsNamed(t *testing.T) {
	t.Parallel()
	const want = "http_proxy=http://corp.test:3128 is set; robotsproxy does not use it: set egress.parent: env"
	p := e2e.StartProxyBy(t, e2e.Unpaced, "env", "http_proxy=http://"+parentUser+":s3cr3t@corp.test:3128")
	for _, url := range []string{"http://" + testkit.DeadEnd(t, "127.0.0.1") + "/", "http://nowhere.test/"} {
		got := e2e.Get(t, p.Client(t, false), url)
		if got.Status != http.StatusBadGateway || strings.Contains(string(got.Body), "corp.test") || strings.Contains(string(got.Body), "http_proxy") {
			t.Errorf("%s: %d\n%s", url, got.Status, got.Body)
		}
	}
	if n := strings.Count(p.Stderr.String(), want); n != 1 {
		t.Errorf("%d warnings:\n%s", n, p.Stderr)
	}
	wantNoPassword(t, p)

	cmd := e2e.Prepare(t, p.RunArgs("sh", "-c", "curl -q -sS -o /dev/null http://nowhere.test/")...)
	cmd.Env = append(cmd.Env, "http_proxy=http://"+parentUser+":s3cr3t@corp.test:3128")
	e2e.NeedPeer(t, "curl")
	if out := e2e.Finish(t, cmd); strings.Count(out.Stderr, "robotsproxy: "+want+"\n") != 1 || strings.Contains(out.Stderr, "s3cr") {
		t.Errorf("the summary of run:\n%s", out.Stderr)
	}

	cmd = e2e.Prepare(t, "check", "http://nowhere.test/")
	cmd.Env = append(cmd.Env, "http_proxy=http://"+parentUser+":s3cr3t@corp.test:3128")
	if out := e2e.Finish(t, cmd); out.Stderr != "robotsproxy: "+want+"\n" {
		t.Errorf("check:\n%s", out.Stderr)
	}
}
