package operations

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"robotsproxy/cmd/internal/e2e"
	"robotsproxy/robots/testkit"
)

// TestReplicasAreListed: each replica shows the others, and warns if they differ or are too few.
func TestReplicasAreListed(t *testing.T) {
	testkit.Long(t, "three replicas")
	t.Parallel()
	store := storeURL(t)
	common := e2e.Settings{"store.redis": store, "store.replicas": 3}
	one := e2e.StartProxy(t, common.With(e2e.Settings{"store.replica": "one", "admin.url": "https://one.example/"}))
	two := e2e.StartProxy(t, common.With(e2e.Settings{"store.replica": "two"}))
	operator := e2e.Operator(t)
	page := func(p *e2e.Proxy, path string) string {
		return string(e2e.Get(t, operator, "http://"+p.Admin+path).Body)
	}
	warns := func(p *e2e.Proxy, want ...string) {
		t.Helper()
		testkit.Eventually(t, strings.Join(want, " and "), func() bool {
			text := page(p, "/healthz")
			for _, w := range want {
				if !strings.Contains(text, w) {
					return false
				}
			}
			return strings.Count(text, "warning: ") == len(want)
		})
	}
	const fewer = "2 of 3 replicas (store.replicas) share the store, so requests are sent 1.5 times slower than permitted"
	warns(one, fewer)
	warns(two, fewer)
	testkit.Eventually(t, "two lists one", func() bool { return strings.Contains(page(two, "/about"), `<a href="https://one.example/"`) })
	if text := page(two, "/about"); !strings.Contains(text, "<title>About · two · robotsproxy</title>") {
		t.Errorf("the page does not name its replica: %.300s", text)
	}
	three := e2e.StartProxy(t, common.With(e2e.Settings{"store.replica": "three", "pace.max_wait": "61s"}))
	warns(one, "replicas run different configurations: ")
	three.AwaitMetric(t, "robotsproxy_store_configurations", 2)
	one.AwaitMetric(t, "robotsproxy_store_versions", 1)
}

// TestOlderStateIsSeenByTheStore: a state directory that was replaced by an older one is found by the checkpoint that the replica
// has given the others before.
func TestOlderStateIsSeenByTheStore(t *testing.T) {
	testkit.Long(t, "starts three times")
	t.Parallel()
	p := e2e.StartProxy(t, e2e.Settings{"store.redis": storeURL(t), "store.replicas": 2, "store.replica": "one"})
	const atStore = "robotsproxy_audit_checkpoint_timestamp_seconds store"
	shared := func() {
		t.Helper()
		testkit.Eventually(t, "a checkpoint is shared", func() bool { return p.Metrics(t)[atStore] > 0 })
		p.End(t)
	}
	shared()
	older := filepath.Join(t.TempDir(), "older")
	copyState := func(to, from string) {
		t.Helper()
		if out, err := exec.Command("cp", "-Rp", from, to).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	copyState(older, p.State)
	p = p.Again(t)
	shared()
	testkit.Must(t, os.RemoveAll(p.State))
	copyState(p.State, older)
	p = p.Again(t)
	for _, part := range []string{"audit differs from what the proxy wrote", "are missing"} {
		if !strings.Contains(p.Stderr.String(), part) {
			t.Errorf("the log lacks %q", part)
		}
	}
	if got := e2e.Get(t, e2e.Operator(t), "http://"+p.Admin+"/healthz"); !strings.Contains(string(got.Body), "missing") {
		t.Errorf("/healthz: %s", got.Body)
	}
}

// TestStoreOfAnotherAudit: what a replica has shared of an audit in another place says nothing about the present one.
func TestStoreOfAnotherAudit(t *testing.T) {
	testkit.Long(t, "starts five times")
	t.Parallel()
	settings := e2e.Settings{"store.redis": storeURL(t), "store.replicas": 2, "store.replica": "one", "audit.sync": "none"}
	p := e2e.StartProxy(t, settings)
	for range 2 {
		p = p.EndAgain(t)
	}
	testkit.Eventually(t, "a checkpoint is shared", func() bool {
		return p.Metrics(t)["robotsproxy_audit_checkpoint_timestamp_seconds store"] > 0
	})
	p.Rewrite(t, settings.With(e2e.Settings{"audit.file": filepath.Join(t.TempDir(), "audit.jsonl")}))
	for range 3 {
		p = p.EndAgain(t)
		if strings.Contains(p.Stderr.String(), "differs") {
			t.Fatalf("%s", p.Stderr)
		}
	}
}
